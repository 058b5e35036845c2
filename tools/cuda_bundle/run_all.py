#!/usr/bin/env python3
"""Runs the CUDA tests and benchmarks of the folder it lies in on a machine with a device, and prints

    N passed, N failed

Needs a driver and cuBLAS: of $CUDA_HOME, /usr/local/cuda or pip's nvidia packages; without cuBLAS that is a failure, and what
does without it runs with a stand-in that refuses (lib/absent). cuDNN is used where it is found there. The C library is the
machine's, or lib/c where that is older than the programs need. Tests run in processes of a few, several at a time; what a
crash or a hang left undone runs on in the next process, and what failed runs once more alone, with launches that block: one
failure hides no other. After --minutes nothing goes on, and the report says what was not run. Everything is under --out:
report.md, tests.log (of what failed) and benchmarks.json, at most 15 MiB each. Ends with 0 when all has run and nothing
failed, 1 otherwise, 3 without a device.
"""
import argparse
import concurrent.futures
import glob
import os
import re
import shutil
import sys
import time

from measurements import benchmarks, kernel_times, training
from processes import DEADLINE, END, HERE, START, Log, Outcome, missing_libraries, run, time_left


def library_folders():
    """Folders that may hold NVIDIA's libraries, best first."""
    home = os.environ.get("CUDA_HOME")
    folders = [f"{home}/lib64", f"{home}/lib"] if home else []
    folders += ["/usr/local/cuda/lib64", "/usr/local/cuda/targets/x86_64-linux/lib"]
    pythons = dict.fromkeys(filter(None, [sys.executable, shutil.which("python3")]))
    code = "import site, sys; print('\\n'.join(site.getsitepackages() + [site.getusersitepackages()] + sys.path))"
    for python in pythons:
        found = run([python, "-c", code], None, 30, None, errors=False).output
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
    info = run(command, env, 120, HERE)
    loader = os.path.join(HERE, "lib", "c", "ld-linux-x86-64.so.2")
    if info.status not in (0, 3) and "GLIBC_" in info.output and os.path.exists(loader):
        START[:] = [loader, "--library-path", os.path.join(HERE, "lib", "c") + ":" + env["LD_LIBRARY_PATH"]]
        info = run(START + command, env, 120, HERE)
    return info


def stand_in(env):
    """Names of missing libraries; where there are stand-ins for them, programs are told where those lie."""
    loader = START[0] if START else "/lib64/ld-linux-x86-64.so.2"
    programs = sorted(glob.glob(os.path.join(HERE, "bin", "*")))
    missing = missing_libraries(programs, env, loader)
    absent = os.path.join(HERE, "lib", "absent")
    if any(os.path.exists(os.path.join(absent, name)) for name in missing):
        env["LD_LIBRARY_PATH"] += ":" + absent
        if START:
            START[2] += ":" + absent
    return missing


def tests_of(program, env, limit):
    listed = run(START + [program, "--gtest_list_tests"], env, limit, HERE, errors=False)
    if not listed.good():
        raise RuntimeError(f"the tests cannot be listed: {listed.words()}")
    names, suite = [], ""
    for line in listed.output.split("\n"):
        line = line.split("#")[0].rstrip()
        if line.startswith("  "):
            names.append(suite + line.strip())
        elif line.endswith("."):
            suite = line
    return names


def run_tests(command, names, env, limit, outcome):
    """Runs `names` in one process, and in further ones what a crash or a hang leaves. `limit`: seconds without a word."""
    left = list(names)
    while left:
        if time_left() <= 0:
            outcome.results.update((name, ("not run", 0, "")) for name in left)
            return
        process = run(command + ["--gtest_filter=" + ":".join(left)], env, limit, HERE)
        output, status = process.output, process.status
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
            why = process.why or f"crashed with status {status}"
            outcome.results[running] = ("failed", 0, why + "\n" + "\n".join(lines[-60:]))
            left = [name for name in left if name != running]


def in_parallel(jobs, calls):
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for future in [pool.submit(*call) for call in calls]:
            future.result()


def suites(arguments, env, log):
    program = os.path.join(HERE, "bin", "device_test")
    names = tests_of(program, env, arguments.limit)
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
    lines = {}  # of suites; of the contract's, of operators
    for name, result in outcome.results.items():
        suite, _, test = name.partition(".")
        counts = lines.setdefault(f"{suite}.{test.rpartition('_')[0]}" if suite.startswith("OpContract") else suite, {})
        counts[result[0]] = counts.get(result[0], 0) + 1
        counts["seconds"] = counts.get("seconds", 0) + result[1]
    slowest = sorted(outcome.results, key=lambda name: -outcome.results[name][1])[:5]
    text = [f"{outcome.count('passed')} passed, {outcome.count('failed')} failed, {outcome.count('skipped')} skipped, "
            f"{outcome.count('not run')} not run in {seconds:.0f} s", ""]
    kinds = ["passed", "failed", "skipped", "not run"]
    text += ["| suite | passed | failed | skipped | not run | s |", "| --- | --- | --- | --- | --- | --- |"]
    for suite, counts in sorted(lines.items()):
        if not suite.startswith("OpContract") or set(counts) - {"passed", "seconds"}:
            text.append(f"| {suite} | " + " | ".join(str(counts.get(kind, 0)) for kind in kinds) + f" | {counts['seconds']:.1f} |")
    whole = [suite for suite, counts in lines.items() if suite.startswith("OpContract") and not set(counts) - {"passed", "seconds"}]
    text += [f"| {len(whole)} operators of the contract | all | 0 | 0 | 0 | {sum(lines[suite]['seconds'] for suite in whole):.1f} |", ""]
    text += ["Failed:", ""] + [f"- {name} (alone: {again.results.get(name, ('not run',))[0]})" for name in failed] + [""] if failed else []
    text += ["Slowest: " + ", ".join(f"{name} {outcome.results[name][1]:.1f} s" for name in slowest)]
    return outcome, text


SMOKE = {  # a process for each part, so that one that does not come up is named
    "the device": "CudaDeviceTest.DescribesItself",
    "ranges": "CudaDeviceTest.Ranges*:CudaDeviceTest.Large*:CudaDeviceTest.WhatIsAround*",
    "pool": "CudaDeviceTest.Blocks*:CudaDeviceTest.TooMuch*:CudaDeviceTest.ThreadsShareIt",
    "page-locked memory": "CudaDeviceTest.PageLocked*",
    "streams": "CudaDeviceTest.Points*:CudaDeviceTest.QueuedCopies*:CudaDeviceTest.QueuesAre*",
    "kernels": "FillTest.*",
    "graphs": "CudaGraphTest.*",
    "cuBLAS": "MatMul.RandomCases:MatMul.PlainProducts*",
    "cuBLASLt": "MatMul.EveryEpilogue*:MatMul.BatchesShareTheBias",
    "cuDNN": "OpContract_cudnn.conv2d_f32",
    "a step": "CudaTraining.*",
}


def smoke(arguments, env, log):
    outcome, text = Outcome(), []
    program = os.path.join(HERE, "bin", "device_test")
    for part, tests in SMOKE.items():
        done = run(START + [program, "--gtest_filter=" + tests], {**env, "TIDEPOOL_CONTRACT_CASES": "0.1"}, arguments.limit, HERE)
        ran = re.search(r"\[==========\] (\d+) tests? from .* ran", done.output)
        good = done.good() and ran is not None and int(ran.group(1)) > 0
        outcome.results[part] = ("passed" if good else "failed", 0, done.output)
        text.append(f"- {part}: " + (f"{ran.group(1)} tests" if good else f"FAILED, {done.words()}"))
        if not good:
            log.write(f"=== smoke {part}\n{done.output[-6000:]}\n")
    return outcome, text


def sanitized(arguments, env, log):
    sanitizer = shutil.which("compute-sanitizer") or os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "bin/compute-sanitizer")
    outcome, text = Outcome(), []
    if not os.access(sanitizer, os.X_OK):
        return outcome, ["no compute-sanitizer"]
    program = os.path.join(HERE, "bin", "device_test")
    names = [name for name in tests_of(program, env, arguments.limit) if name.startswith("OpContract_cuda.")]
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
    if time_left() <= 0:
        outcome.results[f"group {index}"] = ("not run", 0, "")
        return
    done = run(command + ["--gtest_filter=" + ":".join(names)], env, limit, HERE, most=limit)
    kept = [line for line in done.output.split("\n") if line.startswith("=========") or "FAILED" in line or "Failure" in line]
    outcome.results[f"group {index}"] = ("passed" if done.good() else "failed", time.time() - begin,
                                         "\n".join([done.words()] + kept[:150]))


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
    parser.add_argument("--minutes", type=float, default=9, help="of the whole run, after which it ends; 0: no end (9)")
    parser.add_argument("--seconds", type=float, default=0, help="of a part, after which no more of its tests begin (no end)")
    parser.add_argument("--operators", default="", help="filter of the benchmark of operators (all)")
    arguments = parser.parse_args()
    arguments.out = os.path.abspath(arguments.out)
    wanted = arguments.parts.split(",")
    for part in wanted:
        if part not in PARTS:
            parser.error(f"--parts has \"{part}\", expected of {', '.join(PARTS)}")
    if arguments.minutes:
        END[0] = time.time() + 60 * arguments.minutes
    env = environment()
    info = first_words(env)
    print(info.output.rstrip(), flush=True)
    if info.status == 3:
        print("0 passed, 0 failed (nothing was run)")
        sys.exit(3)
    if info.status != 0:
        print(f"cuda_info: {info.words()}\n0 passed, 1 failed")
        sys.exit(1)
    os.makedirs(arguments.out, exist_ok=True)
    report = ["# CUDA on a device", "", info.output.strip(), ""]
    passed = failed = undone = 0
    log = Log(os.path.join(arguments.out, "tests.log"))

    def tell(title, text):
        report.extend([f"## {title}", ""] + text + [""])
        print("\n".join([f"## {title}"] + text), flush=True)
        with open(os.path.join(arguments.out, "report.md"), "w", encoding="utf-8") as file:
            file.write("\n".join(report))

    missing = stand_in(env)
    if missing:
        failed += len(missing)
        tell("missing libraries", [f"- {name}: what needs it fails, the rest runs" for name in missing])
    for part in wanted:
        begin = time.time()
        DEADLINE[0] = begin + arguments.seconds if arguments.seconds else float("inf")
        if time_left() <= 0:
            undone += 1
            tell(part, [f"not run: the {arguments.minutes:g} minutes are over"])
            continue
        try:
            outcome, text = PARTS[part](arguments, env, log)
        except Exception as error:  # the next part still runs
            outcome, text = Outcome(), [f"{part}: {error}"]
            outcome.results[part] = ("failed", 0, str(error))
            log.write(f"=== {part}: {error!r}\n")
        passed += outcome.count("passed")
        failed += outcome.count("failed")
        undone += outcome.count("not run")
        tell(part, text + ["", f"{time.time() - begin:.0f} s"])
    log.close()
    if undone:
        print(f"{undone} not run")
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed or undone else 0)


if __name__ == "__main__":
    main()
