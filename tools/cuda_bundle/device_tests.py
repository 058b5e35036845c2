"""The tests that run_all.py runs: of single parts of the backend, all of them, and some under a sanitizer."""
import concurrent.futures
import os
import re
import shutil
import time

from processes import HERE, START, run, time_left
from results import MOST_KEPT, Ends, Outcome, shortened

# As GoogleTest prints them. What a test prints may come before the mark of its end on the same line, and a child's words behind.
BEGIN = re.compile(r"\[ RUN      \] (\S+)")
MARKS = {"[       OK ]": "passed", "[  FAILED  ]": "failed", "[  SKIPPED ]": "skipped"}
END_OF_TEST = re.compile("(" + "|".join(map(re.escape, MARKS)) + r") (\S+?),?( |$).*\((\d+) ms\)")
FAILURES = 1  # the status of a process that went well but for the tests that failed


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
    return [name for name in names if not re.search(r"(^|[./])DISABLED_", name)]  # listed, and not run


class Reading:
    """What one process of tests says, line by line; `found` is called with what became of a test as soon as that is known."""

    def __init__(self, found):
        self.found, self.running, self.done, self.output = found, None, set(), Ends(MOST_KEPT)
        self.failed = False

    def line(self, line):
        begin, end = None, None
        if "[" in line:  # most lines of a test that prints much have none
            begin, end = BEGIN.match(line), END_OF_TEST.search(line)
        if begin:
            self.running, self.output = begin.group(1), Ends(MOST_KEPT)
        elif end and self.running == end.group(2):
            self.output.add(line[:end.start()].encode())
            kind = MARKS[end.group(1)]
            self.failed = self.failed or kind == "failed"
            self.found(self.running, kind, int(end.group(4)) / 1000, "" if kind == "passed" else self.output.text())
            self.done.add(self.running)
            self.running = None
        else:
            self.output.add(line.encode() + b"\n")


def run_tests(command, names, env, limit, outcome, report, how=""):
    """Runs `names` in one process, and in further ones what a crash or a hang leaves. `limit`: seconds without a word.

    What failed is in the log at once; `how`: what that says of the run.
    """
    def found(name, kind, seconds, output):
        outcome.add(name, kind, seconds, output)
        if kind == "failed":
            report.write_log(f"=== {name}{how}: {kind}\n{shortened(output, 6000)}\n")

    left = list(names)
    while left:
        if time_left() <= 0:
            for name in left:
                outcome.add(name, "not run")
            return
        reading = Reading(found)
        process = run(command + ["--gtest_filter=" + ":".join(left)], env, limit, HERE, keep=MOST_KEPT, each=reading.line)
        status, running = process.status, reading.running
        left = [name for name in left if name not in reading.done]
        explained = status == 0 or status == FAILURES and reading.failed
        if running is None and not explained and not left:
            kind = process.became(False)
            found(f"end of the process of {names[0]}", kind, 0, f"{process.words()}\n{reading.output.text()}")
        if running is None and left:
            running = left[0] if not reading.done else None
        if running is not None:
            why = process.why or f"crashed with status {status}"
            found(running, process.became(False), 0, why + "\n" + reading.output.text())
            left = [name for name in left if name != running]


def in_parallel(jobs, calls):
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for future in [pool.submit(*call) for call in calls]:
            future.result()


def suites(arguments, env, report, outcome, text):
    program = os.path.join(HERE, "bin", "device_test")
    names = tests_of(program, env, arguments.limit)
    alone = [name for name in names if not name.startswith("OpContract")]
    contract = [name for name in names if name.startswith("OpContract")]
    # Small groups, so that all processes have work to the end, and a deadline costs what is under way.
    groups = [alone[i::12] for i in range(12)] + [contract[i::72] for i in range(72)]
    begin = time.time()

    def counts():
        return ", ".join(f"{outcome.count(kind)} {kind}" for kind in ("passed", "failed", "skipped", "not run"))

    def group(tests):
        run_tests(START + [program], tests, env, arguments.limit, outcome, report)
        report.so_far("suites", f"{counts()}, of {len(names)} tests")

    in_parallel(arguments.jobs, [(group, tests) for tests in groups if tests])
    again = Outcome()
    failed = [name for name in outcome.results if outcome.results[name][0] == "failed"]
    blocking = {**env, "CUDA_LAUNCH_BLOCKING": "1"}
    how = ", alone, with launches that block"
    in_parallel(arguments.jobs, [(run_tests, START + [program], [name], blocking, arguments.limit, again, report, how)
                                 for name in failed[:80] if name in names])
    text += [f"{counts()} in {time.time() - begin:.0f} s", ""] + suites_table(outcome, failed, again)


def suites_table(outcome, failed, again):
    """Lines of the report: by suite, of the contract by operator, where not all of an operator's tests passed."""
    lines = {}
    for name, result in outcome.results.items():
        suite, _, test = name.partition(".")
        counts = lines.setdefault(f"{suite}.{test.rpartition('_')[0]}" if suite.startswith("OpContract") else suite, {})
        counts[result[0]] = counts.get(result[0], 0) + 1
        counts["seconds"] = counts.get("seconds", 0) + result[1]
    slowest = sorted(outcome.results, key=lambda name: -outcome.results[name][1])[:5]
    kinds = ["passed", "failed", "skipped", "not run"]
    text = ["| suite | passed | failed | skipped | not run | s |", "| --- | --- | --- | --- | --- | --- |"]
    for suite, counts in sorted(lines.items()):
        if not suite.startswith("OpContract") or set(counts) - {"passed", "seconds"}:
            text.append(f"| {suite} | " + " | ".join(str(counts.get(kind, 0)) for kind in kinds) + f" | {counts['seconds']:.1f} |")
    whole = [suite for suite, counts in lines.items() if suite.startswith("OpContract") and not set(counts) - {"passed", "seconds"}]
    text += [f"| {len(whole)} operators of the contract | all | 0 | 0 | 0 | {sum(lines[suite]['seconds'] for suite in whole):.1f} |", ""]
    text += ["Failed:", ""] + [f"- {name} (alone: {again.results.get(name, ('not run',))[0]})" for name in failed] + [""] if failed else []
    return text + ["Slowest: " + ", ".join(f"{name} {outcome.results[name][1]:.1f} s" for name in slowest)]


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


def smoke(arguments, env, report, outcome, text):
    program = os.path.join(HERE, "bin", "device_test")
    for part, tests in SMOKE.items():
        if time_left() <= 0:
            outcome.add(part, "not run")
            text.append(f"- {part}: not run")
            continue
        done = run(START + [program, "--gtest_filter=" + tests], {**env, "TIDEPOOL_CONTRACT_CASES": "0.1"}, arguments.limit, HERE,
                   keep=MOST_KEPT)
        ran = re.search(r"\[==========\] (\d+) tests? from .* ran", done.output)
        good = done.good() and ran is not None and int(ran.group(1)) > 0
        kind = done.became(good)
        outcome.add(part, kind, 0, done.output)
        text.append(f"- {part}: " + (f"{ran.group(1)} tests" if good else f"{kind.upper()}, {done.words()}"))
        if not good:
            report.write_log(f"=== smoke {part}: {done.words()}\n{shortened(done.output, 6000)}\n")
        report.so_far("smoke", "\n".join(text))


def sanitized(arguments, env, report, outcome, text):
    sanitizer = shutil.which("compute-sanitizer") or os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "bin/compute-sanitizer")
    if not os.access(sanitizer, os.X_OK):
        text.append("no compute-sanitizer")
        return
    program = os.path.join(HERE, "bin", "device_test")
    names = [name for name in tests_of(program, env, arguments.limit) if name.startswith("OpContract_cuda.")]
    few = {**env, "TIDEPOOL_CONTRACT_CASES": "0.02"}
    calls, tools = [], ("memcheck", "racecheck", "synccheck")
    for tool in tools:
        command = [sanitizer, "--tool", tool, "--error-exitcode", "9"] + START + [program]
        chosen = names if tool == "memcheck" else [name for name in names if re.search(r"_f32$", name)]
        calls += [(sanitized_group, command, chosen[i::8], few, arguments.limit, f"{tool} group {i}", outcome, report) for i in range(8)]
    in_parallel(arguments.jobs, calls)
    for tool in tools:
        kinds = [result[0] for name, result in outcome.results.items() if name.startswith(tool)]
        text.append(f"- {tool}: {kinds.count('passed')} groups passed, {kinds.count('failed')} failed")


def sanitized_group(command, names, env, limit, group, outcome, report):
    if time_left() <= 0:
        outcome.add(group, "not run")
        return
    begin, kept = time.time(), Ends(MOST_KEPT)

    def line(line):
        if line.startswith("=========") or "FAILED" in line or "Failure" in line:
            kept.add(line.encode() + b"\n")

    done = run(command + ["--gtest_filter=" + ":".join(names)], env, limit, HERE, most=limit, keep=MOST_KEPT, each=line)
    outcome.add(group, done.became(), time.time() - begin, kept.text())
    if not done.good():
        report.write_log(f"=== {group}: {done.words()}\n{kept.text()}\n")
    report.so_far("sanitizer", f"{outcome.count('passed')} groups passed, {outcome.count('failed')} failed")
