#!/usr/bin/env python3
"""Runs the CUDA tests and benchmarks of the folder it lies in on a machine with a device, and prints

    N passed, N failed

Needs a driver and cuBLAS: of $CUDA_HOME, /usr/local/cuda or pip's nvidia packages. cuDNN is used where it is found
there. The C library is the machine's, or lib/c where that is older than the programs need. Tests run in processes of a few, several at a time; what a crash or a hang left undone runs on in the next
process, and what failed runs once more alone, with launches that block: one failure hides no other. Everything is
under --out: report.md, tests.log (of what failed) and benchmarks.json. Ends with 0 when nothing failed, 1 when
something did, 3 without a device.
"""
import argparse
import concurrent.futures
import csv
import glob
import io
import os
import re
import select
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
# What programs are started by: nothing, or the loader and the C library of the machine that built them.
START = []


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


def first_words(env):
    """cuda_info's; by the bundle's own loader where the machine's C library is older than the programs'."""
    command = [os.path.join(HERE, "bin", "cuda_info")]
    info = subprocess.run(command, capture_output=True, text=True, env=env, timeout=120, check=False)
    loader = os.path.join(HERE, "lib", "c", "ld-linux-x86-64.so.2")
    if info.returncode not in (0, 3) and "GLIBC_" in info.stderr and os.path.exists(loader):
        START[:] = [loader, "--library-path", os.path.join(HERE, "lib", "c") + ":" + env["LD_LIBRARY_PATH"]]
        info = subprocess.run(START + command, capture_output=True, text=True, env=env, timeout=120, check=False)
    return info


class Outcome:
    """What became of tests: name -> (passed, failed, skipped, crashed, hung or not run; seconds; output)."""

    def __init__(self):
        self.results = {}

    def count(self, *kinds):
        return sum(result[0] in kinds for result in self.results.values())


def tests_of(program, env):
    listed = subprocess.run(START + [program, "--gtest_list_tests"], capture_output=True, text=True, env=env, check=True, cwd=HERE)
    names, suite = [], ""
    for line in listed.stdout.split("\n"):
        line = line.split("#")[0].rstrip()
        if line.startswith("  "):
            names.append(suite + line.strip())
        elif line.endswith("."):
            suite = line
    return names


# When tests are not begun any more: a machine may be lent for minutes.
DEADLINE = [float("inf")]


def watched(command, env, limit):
    """The output and status of a process, which is ended when it has printed nothing for `limit` seconds."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env, cwd=HERE)
    parts, hung = [], False
    while True:
        if not select.select([process.stdout], [], [], limit)[0]:
            hung = True
            process.kill()
            break
        part = os.read(process.stdout.fileno(), 65536)
        if not part:
            break
        parts.append(part)
    return b"".join(parts).decode(errors="replace"), process.wait(), hung


def run_tests(command, names, env, limit, outcome):
    """Runs `names` in one process, and in further ones what a crash or a hang leaves. `limit`: seconds without a word."""
    left = list(names)
    while left:
        if time.time() > DEADLINE[0]:
            outcome.results.update((name, ("not run", 0, "")) for name in left)
            return
        output, status, hung = watched(command + ["--gtest_filter=" + ":".join(left)], env, limit)
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
        if running is None and status != 0 and not left and not any(outcome.results[name][0] == "failed" for name in names):
            outcome.results[f"end of the process of {names[0]}"] = ("failed", 0, f"status {status}\n" + "\n".join(lines[-60:]))
        if running is None and left:
            running = left[0] if done == 0 else None
        if running is not None:
            why = f"silent for {limit:.0f} s" if hung else f"crashed with status {status}"
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
    # Small groups, so that all processes have work to the end, and a deadline costs what is under way.
    groups = [alone[i::12] for i in range(12)] + [contract[i::72] for i in range(72)]
    outcome = Outcome()
    begin = time.time()
    in_parallel(arguments.jobs, [(run_tests, START + [program], group, env, arguments.limit, outcome) for group in groups if group])
    again = Outcome()
    failed = [name for name in outcome.results if outcome.results[name][0] == "failed"]
    blocking = {**env, "CUDA_LAUNCH_BLOCKING": "1"}
    in_parallel(arguments.jobs, [(run_tests, START + [program], [name], blocking, arguments.limit, again)
                                 for name in failed[:80] if name in names])
    for name in failed:
        second = again.results.get(name, ("not run", 0, ""))
        log.write(f"=== {name}: {outcome.results[name][0]}; alone, with launches that block: {second[0]}\n")
        log.write(outcome.results[name][2][:6000] + "\n")
        if second[0] == "failed":
            log.write("--- alone\n" + second[2][:3000] + "\n")
    seconds = time.time() - begin
    slowest = sorted(outcome.results, key=lambda name: -outcome.results[name][1])[:5]
    text = [f"{outcome.count('passed')} passed, {outcome.count('failed')} failed, {outcome.count('skipped')} skipped, "
            f"{outcome.count('not run')} not run in {seconds:.0f} s", ""]
    text += ["Failed:", ""] + [f"- {name} (alone: {again.results.get(name, ('not run',))[0]})" for name in failed] + [""] if failed else []
    text += ["Slowest: " + ", ".join(f"{name} {outcome.results[name][1]:.1f} s" for name in slowest)]
    return outcome, text


SMOKE = {  # a process for each part, so that one that does not come up is named
    "memory and streams": "CudaDeviceTest.*",
    "fills": "FillTest.*",
    "graphs": "CudaGraphTest.*",
    "cuBLAS": "MatMul.*",
    "cuDNN": "OpContract_cudnn.conv2d_f32",
    "a step": "CudaTraining.*",
}


def smoke(arguments, env, log):
    outcome, text = Outcome(), []
    program = os.path.join(HERE, "bin", "device_test")
    for part, tests in SMOKE.items():
        output, status, hung = watched(START + [program, "--gtest_filter=" + tests], {**env, "TIDEPOOL_CONTRACT_CASES": "0.1"},
                                       arguments.limit)
        ran = re.search(r"\[==========\] (\d+) tests? from .* ran", output)
        good = status == 0 and not hung and ran is not None and int(ran.group(1)) > 0
        outcome.results[part] = ("passed" if good else "failed", 0, output)
        text.append(f"- {part}: " + (f"{ran.group(1)} tests" if good else "hung" if hung else f"FAILED, status {status}"))
        if not good:
            log.write(f"=== smoke {part}\n{output[-6000:]}\n")
    return outcome, text


def kernel_times(arguments, env, log):
    """Microseconds by kernel of some of a training step's launches, where ncu is installed."""
    outcome, text = Outcome(), []
    profiler = shutil.which("ncu")
    if profiler is None:
        return outcome, ["no ncu"]
    program = os.path.join(HERE, "bin", "train_benchmark_on_cuda")
    for model in arguments.models.split(","):
        command = [profiler, "--clock-control", "none", "--metrics", "gpu__time_duration.sum", "--launch-skip", "1000",
                   "--launch-count", "240", "--csv", "--page", "raw"] + START + [program, "--serve", "--device=cuda"]
        try:
            done = subprocess.run(command, input=f"begin {model} 128 4 sgd examples/data/mnist\nsteps 40\n", capture_output=True,
                                  text=True, env=env, cwd=HERE, timeout=arguments.limit, check=False)
            output, status = done.stdout + done.stderr, done.returncode
        except subprocess.TimeoutExpired as error:
            output, status = (error.stdout or b"").decode(errors="replace"), "hung"
        times = {}
        begin = output.find('"ID"')
        for row in csv.DictReader(io.StringIO(output[begin:])) if begin >= 0 else []:
            try:
                nanoseconds = float(row["gpu__time_duration.sum"].replace(",", ""))
            except (KeyError, ValueError, AttributeError):
                continue  # the row of units, and what else is printed
            times.setdefault(row["Kernel Name"], []).append(nanoseconds / 1000)
        outcome.results[model] = ("passed" if times else "failed", 0, output)
        if not times:
            log.write(f"=== ncu {model}: status {status}\n{output[-4000:]}\n")
        text += [f"{model}: {sum(map(len, times.values()))} launches of the middle of training, {sum(map(sum, times.values())):.0f} us", "",
                 "| kernel | launches | us each | us |", "| --- | --- | --- | --- |"]
        for name, each in sorted(times.items(), key=lambda entry: -sum(entry[1]))[:25]:
            text.append(f"| `{name[:120]}` | {len(each)} | {sum(each) / len(each):.1f} | {sum(each):.0f} |")
        text.append("")
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
        command = [sanitizer, "--tool", tool, "--error-exitcode", "9"] + START + [program]
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


def benchmarks(arguments, env, log):
    """Ours, and PyTorch's under the same names, where the Python that runs this has it."""
    outcome, text = Outcome(), []
    path = os.path.join(arguments.out, "benchmarks.json")
    command = START + [os.path.join(HERE, "bin", "peers_benchmark"), "--benchmark_min_time=0.01", f"--benchmark_out={path}",
               "--benchmark_out_format=json"]
    if arguments.operators:
        command.append("--benchmark_filter=" + arguments.operators)
    output, status, hung = watched(command, env, arguments.limit)
    outcome.results["peers_benchmark"] = ("passed" if status == 0 else "failed", 0, output)
    text += ["```", output.rstrip()[-9000:], "```", ""]
    if status != 0:
        log.write(f"=== peers_benchmark: status {status}, hung: {hung}\n{output}\n")
    without = {key: value for key, value in env.items() if key != "LD_LIBRARY_PATH"}
    output, status, _ = watched([sys.executable, "torch_operators.py", "--device=cuda", "--against", path],
                                without, arguments.limit)
    outcome.results["PyTorch's operators"] = ("passed" if status == 0 else "failed", 0, output)
    rows = [line.split() for line in output.split("\n") if re.match(r"\w+ [\d.]+( [\d.]+ [\d.]+)?$", line)]
    text += ["| operator | ours, us | PyTorch, us | PyTorch / ours |", "| --- | --- | --- | --- |"]
    text += [f"| {row[0]} | {row[2]} | {row[1]} | {row[3]} |" if len(row) == 4 else f"| {row[0]} | | {row[1]} | |" for row in rows]
    if status != 0:
        text.append(output[-2000:])
    return outcome, text


def training(arguments, env, log):
    """Training steps beside PyTorch, where the Python that runs this has it."""
    program, outcome, text = os.path.join(HERE, "bin", "train_benchmark_on_cuda"), Outcome(), []
    models = arguments.models.split(",")
    # TF32: PyTorch's convolutions have it by default, its products do not; ours have it where they are told to, both.
    kinds = {"eager": (False, "channels_last", "0"), "graphs": (True, "graphs", "0"), "graphs_tf32": (True, "graphs", "1")}
    for kind in arguments.training.split(","):
        graphs, mode, tf32 = kinds[kind]
        for model in models:
            command = START + [program, "--force", "--device=cuda", f"--graphs={str(graphs).lower()}", f"--models={model}", "--threads=4",
                       f"--batches={arguments.batches}", "--rounds=3", "--round_seconds=0.2", "--data=examples/data/mnist",
                       f"--torch_peer=env -u LD_LIBRARY_PATH {sys.executable} torch_training.py --mode={mode} --device=cuda"]
            name = f"training {model} {kind}"
            try:
                done = subprocess.run(command, capture_output=True, text=True, env={**env, "TIDEPOOL_CUDA_TF32": tf32}, cwd=HERE,
                                      timeout=arguments.limit, check=False)
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


PARTS = {"smoke": smoke, "suites": suites, "benchmarks": benchmarks, "training": training, "kernels": kernel_times,
         "sanitizer": sanitized}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="results", help="folder for what is found (results)")
    parser.add_argument("--jobs", type=int, default=8, help="processes at a time (8)")
    parser.add_argument("--limit", type=float, default=120, help="seconds without a word after which a process hangs (120)")
    parser.add_argument("--parts", default=",".join(PARTS), help="of " + ", ".join(PARTS))
    parser.add_argument("--models", default="mlp,lenet,residual,lstm,transformer")
    parser.add_argument("--batches", default="128")
    parser.add_argument("--training", default="eager,graphs,graphs_tf32", help="of eager, graphs and graphs_tf32")
    parser.add_argument("--seconds", type=float, default=0, help="of a part, after which no more of its tests begin (no end)")
    parser.add_argument("--operators", default="", help="filter of the benchmark of operators (all)")
    arguments = parser.parse_args()
    arguments.out = os.path.abspath(arguments.out)
    wanted = arguments.parts.split(",")
    for part in wanted:
        if part not in PARTS:
            parser.error(f"--parts has \"{part}\", expected of {', '.join(PARTS)}")
    env = environment()
    try:
        info = first_words(env)
    except subprocess.TimeoutExpired:
        print("cuda_info was silent for 120 s\n0 passed, 1 failed")
        sys.exit(1)
    print(info.stdout.rstrip(), info.stderr.rstrip(), flush=True)
    if info.returncode == 3:
        print("0 passed, 0 failed (nothing was run)")
        sys.exit(3)
    if info.returncode != 0:
        print(f"cuda_info: status {info.returncode}\n0 passed, 1 failed")
        sys.exit(1)
    os.makedirs(arguments.out, exist_ok=True)
    passed = failed = 0
    report = ["# CUDA on a device", "", info.stdout.strip(), ""]
    with open(os.path.join(arguments.out, "tests.log"), "w", encoding="utf-8") as log:
        for part in wanted:
            begin = time.time()
            DEADLINE[0] = begin + arguments.seconds if arguments.seconds else float("inf")
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
