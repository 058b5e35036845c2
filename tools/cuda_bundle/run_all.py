#!/usr/bin/env python3
"""Runs the CUDA tests and benchmarks of the folder it lies in on a machine with a device, and prints

    N passed, N failed

Needs a driver and cuBLAS: of $CUDA_HOME, /usr/local/cuda or pip's nvidia packages. cuDNN is used where it is found
there. Tests run in processes of a few, several at a time; what a crash or a hang left undone runs on in the next
process, and what failed runs once more alone, with launches that block: one failure hides no other. Everything is
under --out: report.md, tests.log (of what failed) and benchmarks.json. Ends with 0 when nothing failed, 1 when
something did, 3 without a device.
"""
import argparse
import concurrent.futures
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))


def library_folders():
    """Folders that may hold NVIDIA's libraries, best first."""
    home = os.environ.get("CUDA_HOME")
    folders = [f"{home}/lib64", f"{home}/lib"] if home else []
    folders += ["/usr/local/cuda/lib64", "/usr/local/cuda/targets/x86_64-linux/lib"]
    pythons = dict.fromkeys(filter(None, [sys.executable, shutil.which("python3")]))
    code = "import site, sys; print('\\n'.join(site.getsitepackages() + [site.getusersitepackages()] + sys.path))"
    for python in pythons:
        found = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False).stdout
        for place in dict.fromkeys(found.split("\n")):
            if place:
                folders += sorted(glob.glob(f"{place}/nvidia/*/lib"))
    return [folder for folder in folders if os.path.isdir(folder)]


def environment(**more):
    path = [os.path.join(HERE, "lib")] + library_folders()
    before = os.environ.get("LD_LIBRARY_PATH")
    return {**os.environ, "LD_LIBRARY_PATH": ":".join(path + ([before] if before else [])), **more}


class Outcome:
    """What became of tests: name -> (passed, failed, skipped, crashed, hung or not run; seconds; output)."""

    def __init__(self):
        self.results = {}

    def count(self, *kinds):
        return sum(result[0] in kinds for result in self.results.values())


def tests_of(program, env):
    listed = subprocess.run([program, "--gtest_list_tests"], capture_output=True, text=True, env=env, check=True, cwd=HERE)
    names, suite = [], ""
    for line in listed.stdout.split("\n"):
        line = line.split("#")[0].rstrip()
        if line.startswith("  "):
            names.append(suite + line.strip())
        elif line.endswith("."):
            suite = line
    return names


def run_tests(command, names, env, limit, outcome):
    """Runs `names` in one process, and in further ones what a crash or a hang leaves. `limit`: seconds of a process."""
    left = list(names)
    while left:
        process = subprocess.Popen(command + ["--gtest_filter=" + ":".join(left)], stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, errors="replace", env=env, cwd=HERE)
        try:
            output, hung = process.communicate(timeout=limit)[0], False
        except subprocess.TimeoutExpired:
            process.kill()
            output, hung = process.communicate()[0], True
        running, lines, done = None, [], 0
        for line in output.split("\n"):
            begin = re.match(r"\[ RUN      \] (\S+)", line)
            # What a test prints may come before the mark on the same line.
            end = re.search(r"\[(       OK|  FAILED|  SKIPPED) \] (\S+?),?( |$).*\((\d+) ms\)$", line)
            if begin:
                running, lines = begin.group(1), []
            elif end and running == end.group(2):
                kind = {"OK": "passed", "FAILED": "failed", "SKIPPED": "skipped"}[end.group(1).strip()]
                outcome.results[running] = (kind, int(end.group(4)) / 1000, "\n".join(lines))
                done += 1
                running = None
            else:
                lines.append(line)
        left = [name for name in left if name not in outcome.results]
        if running is None and process.returncode == 0 and not left:
            return
        if running is None and left:
            running = left[0] if done == 0 else None
        if running is not None:
            why = f"hung for {limit} s" if hung else f"crashed with status {process.returncode}"
            outcome.results[running] = ("failed", 0, why + "\n" + "\n".join(lines[-60:]))
            left = [name for name in left if name != running]


def in_parallel(jobs, calls):
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for future in [pool.submit(*call) for call in calls]:
            future.result()


def suites(arguments, env, log):
    program = os.path.join(HERE, "bin", "device_test")
    names = tests_of(program, env)
    alone = [name for name in names if not name.startswith("OpContract")]
    contract = [name for name in names if name.startswith("OpContract")]
    groups = [alone[i::12] for i in range(12)] + [contract[i::24] for i in range(24)]
    outcome = Outcome()
    begin = time.time()
    in_parallel(arguments.jobs, [(run_tests, [program], group, env, arguments.limit, outcome) for group in groups if group])
    again = Outcome()
    failed = [name for name in names if outcome.results[name][0] == "failed"]
    blocking = {**env, "CUDA_LAUNCH_BLOCKING": "1"}
    in_parallel(arguments.jobs, [(run_tests, [program], [name], blocking, arguments.limit, again) for name in failed[:80]])
    for name in failed:
        second = again.results.get(name, ("not run", 0, ""))
        log.write(f"=== {name}: {outcome.results[name][0]}; alone, with launches that block: {second[0]}\n")
        log.write(outcome.results[name][2][:6000] + "\n")
        if second[0] == "failed":
            log.write("--- alone\n" + second[2][:3000] + "\n")
    seconds = time.time() - begin
    slowest = sorted(outcome.results, key=lambda name: -outcome.results[name][1])[:5]
    text = [f"{outcome.count('passed')} passed, {outcome.count('failed')} failed, {outcome.count('skipped')} skipped in {seconds:.0f} s", ""]
    text += ["Failed:", ""] + [f"- {name} (alone: {again.results.get(name, ('not run',))[0]})" for name in failed] + [""] if failed else []
    text += ["Slowest: " + ", ".join(f"{name} {outcome.results[name][1]:.1f} s" for name in slowest)]
    return outcome, text


def sanitized(arguments, env, log):
    sanitizer = shutil.which("compute-sanitizer") or os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "bin/compute-sanitizer")
    outcome, text = Outcome(), []
    if not os.access(sanitizer, os.X_OK):
        return outcome, ["no compute-sanitizer"]
    program = os.path.join(HERE, "bin", "device_test")
    names = [name for name in tests_of(program, env) if name.startswith("OpContract_cuda.")]
    few = {**env, "TIDEPOOL_CONTRACT_CASES": "0.02"}
    calls, parts = [], {}
    for tool in ("memcheck", "racecheck", "synccheck"):
        command = [sanitizer, "--tool", tool, "--error-exitcode", "9", program]
        parts[tool] = Outcome()
        chosen = names if tool == "memcheck" else [name for name in names if re.search(r"_f32$", name)]
        calls += [(sanitized_group, command, chosen[i::8], few, arguments.limit, parts[tool], i) for i in range(8)]
    in_parallel(arguments.jobs, calls)
    for tool, part in parts.items():
        text.append(f"- {tool}: {part.count('passed')} groups passed, {part.count('failed')} failed")
        for name, result in sorted(part.results.items()):
            outcome.results[f"{tool} {name}"] = result
            if result[0] == "failed":
                log.write(f"=== {tool} {name}\n{result[2]}\n")
    return outcome, text


def sanitized_group(command, names, env, limit, outcome, index):
    begin = time.time()
    try:
        done = subprocess.run(command + ["--gtest_filter=" + ":".join(names)], capture_output=True, text=True, errors="replace",
                              env=env, cwd=HERE, timeout=limit, check=False)
        output = done.stdout + done.stderr
        kind = "passed" if done.returncode == 0 else "failed"
        kept = [line for line in output.split("\n") if line.startswith("=========") or "FAILED" in line or "Failure" in line]
        output = "\n".join(kept[:150])
    except subprocess.TimeoutExpired as error:
        kind, output = "hung", f"not done within {limit} s\n" + str(error.stdout)[-2000:]
    outcome.results[f"group {index}"] = (kind, time.time() - begin, output)


def benchmarks(arguments, env, _):
    program = os.path.join(HERE, "bin", "cuda_benchmark")
    path = os.path.join(arguments.out, "benchmarks.json")
    done = subprocess.run([program, "--benchmark_min_time=0.2", f"--benchmark_out={path}", "--benchmark_out_format=json"],
                          capture_output=True, text=True, env=env, cwd=HERE, timeout=300, check=False)
    outcome = Outcome()
    outcome.results["cuda_benchmark"] = ("passed" if done.returncode == 0 else "failed", 0, done.stderr)
    text = ["```", done.stdout.rstrip(), "```"] if done.returncode == 0 else ["```", done.stderr[-4000:], "```"]
    return outcome, text


def training(arguments, env, log):
    """Training steps beside PyTorch, where the Python that runs this has it."""
    program, outcome, text = os.path.join(HERE, "bin", "train_benchmark"), Outcome(), []
    models = arguments.models.split(",")
    for graphs, mode in ((False, "eager"), (False, "channels_last"), (True, "graphs")):
        for model in models:
            command = [program, "--force", "--device=cuda", f"--graphs={str(graphs).lower()}", f"--models={model}", "--threads=4",
                       f"--batches={arguments.batches}", "--rounds=5", "--round_seconds=0.2", "--data=examples/data/mnist",
                       f"--torch_peer=env -u LD_LIBRARY_PATH {sys.executable} torch_training.py --mode={mode} --device=cuda"]
            name = f"training {model} {mode}"
            try:
                done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=HERE, timeout=arguments.limit, check=False)
                outcome.results[name] = ("passed" if done.returncode == 0 else "failed", 0, done.stderr)
                if done.returncode == 0:
                    text += [f"{name}", ""] + [line for line in done.stdout.split("\n") if line.startswith("|")] + [""]
                else:
                    text += [f"{name}: {done.stderr[-600:]}", ""]
                    log.write(f"=== {name}\n{done.stderr}\n")
            except subprocess.TimeoutExpired:
                outcome.results[name] = ("failed", 0, "hung")
                text += [f"{name}: hung", ""]
    return outcome, text


PARTS = {"suites": suites, "benchmarks": benchmarks, "training": training, "sanitizer": sanitized}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="results", help="folder for what is found (results)")
    parser.add_argument("--jobs", type=int, default=8, help="processes at a time (8)")
    parser.add_argument("--limit", type=float, default=120, help="seconds of one process (120)")
    parser.add_argument("--parts", default=",".join(PARTS), help="of " + ", ".join(PARTS))
    parser.add_argument("--models", default="mlp,lenet,residual,lstm,transformer")
    parser.add_argument("--batches", default="128")
    arguments = parser.parse_args()
    arguments.out = os.path.abspath(arguments.out)
    wanted = arguments.parts.split(",")
    for part in wanted:
        if part not in PARTS:
            parser.error(f"--parts has \"{part}\", expected of {', '.join(PARTS)}")
    env = environment()
    try:
        info = subprocess.run([os.path.join(HERE, "bin", "cuda_info")], capture_output=True, text=True, env=env, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        sys.exit("cuda_info hung for 120 s")
    print(info.stdout.rstrip(), info.stderr.rstrip(), flush=True)
    if info.returncode != 0:
        print("0 passed, 0 failed (nothing was run)")
        sys.exit(3)
    os.makedirs(arguments.out, exist_ok=True)
    passed = failed = 0
    report = ["# CUDA on a device", "", info.stdout.strip(), ""]
    with open(os.path.join(arguments.out, "tests.log"), "w", encoding="utf-8") as log:
        for part in wanted:
            begin = time.time()
            try:
                outcome, text = PARTS[part](arguments, env, log)
            except Exception as error:  # the next part still runs
                outcome, text = Outcome(), [f"{part}: {error!r}"]
                outcome.results[part] = ("failed", 0, repr(error))
            passed += outcome.count("passed")
            failed += outcome.count("failed", "hung")
            report += [f"## {part}", ""] + text + [""]
            print("\n".join([f"## {part} ({time.time() - begin:.0f} s)"] + text), flush=True)
            log.flush()
            with open(os.path.join(arguments.out, "report.md"), "w", encoding="utf-8") as file:
                file.write("\n".join(report))
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
