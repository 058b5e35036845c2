#!/usr/bin/env python3
"""Runs the CUDA tests and benchmarks of the folder it lies in on a machine with a device, and prints

    N passed, N failed

Needs a driver and cuBLAS: of $CUDA_HOME, /usr/local/cuda or pip's nvidia packages; without cuBLAS that is a failure, and what
does without it runs with a stand-in that refuses (lib/absent). cuDNN is used where it is found there. The C library is the
machine's, or lib/c where that is older than the programs need. Tests run in processes of a few, several at a time; what a
crash or a hang left undone runs on in the next process, and what failed runs once more alone, with launches that block: one
failure hides no other. After --minutes nothing goes on, and the report says what was not run; so do SIGTERM, SIGINT and SIGHUP
end it. Everything is under --out: report.md, tests.log (of what failed) and benchmarks.json, at most 15 MiB each and written as
it is found; those of a run before are removed. Where they cannot be written, it is printed, and that is a failure. Ends with 0
when all has run and nothing failed, 1 otherwise, 2 for a wrong argument, 3 without a device.
"""
import argparse
import contextlib
import glob
import os
import re
import shutil
import sys
import time

from device_tests import sanitized, smoke, suites
from measurements import MODELS, TRAINING, benchmarks, kernel_times, training
from processes import DEADLINE, END, HERE, SIGNAL, START, end_by_signals, missing_libraries, run, time_left
from results import Outcome, Report, say

FILES = ("report.md", "tests.log", "benchmarks.json")
# Variables of Bazel's for a test, which GoogleTest heeds.
OF_TEST_RUNNERS = ("XML_OUTPUT_FILE", "TESTBRIDGE_TEST_ONLY", "TEST_SHARD_INDEX", "TEST_TOTAL_SHARDS", "TEST_SHARD_STATUS_FILE",
                   "TEST_PREMATURE_EXIT_FILE")
MOST_INFO = 64 << 10  # bytes of what is told of the device


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
    # What GoogleTest takes of the environment would change what it prints, which tests it runs, and what else it writes.
    own = {name: value for name, value in os.environ.items() if not name.startswith("GTEST_") and name not in OF_TEST_RUNNERS}
    return {**own, "LD_LIBRARY_PATH": ":".join(path + ([before] if before else [])), **more}


def first_words(env):
    """cuda_info's; by the bundle's own loader where the machine's C library is older than the programs'."""
    command = [os.path.join(HERE, "bin", "cuda_info")]
    info = run(command, env, 120, HERE, keep=MOST_INFO)
    loader = os.path.join(HERE, "lib", "c", "ld-linux-x86-64.so.2")
    if info.status not in (0, 3) and "GLIBC_" in info.output and os.path.exists(loader):
        START[:] = [loader, "--library-path", os.path.join(HERE, "lib", "c") + ":" + env["LD_LIBRARY_PATH"]]
        info = run(START + command, env, 120, HERE, keep=MOST_INFO)
    return info


def stand_in(arguments, env, report, outcome, text):
    """Libraries that are missing are failures; where there are stand-ins for them, programs are told where those lie."""
    loader = START[0] if START else "/lib64/ld-linux-x86-64.so.2"
    programs = sorted(glob.glob(os.path.join(HERE, "bin", "*")))
    missing = missing_libraries(programs, env, loader)
    absent = os.path.join(HERE, "lib", "absent")
    if any(os.path.exists(os.path.join(absent, name)) for name in missing):
        env["LD_LIBRARY_PATH"] += ":" + absent
        if START:
            START[2] += ":" + absent
    for name in missing:
        outcome.add(name, "failed")
        text.append(f"- {name}: what needs it fails, the rest runs")


PARTS = {"smoke": smoke, "suites": suites, "benchmarks": benchmarks, "training": training, "kernels": kernel_times,
         "sanitizer": sanitized}


def arguments_of_run():
    """Of the command line; what cannot be is told with what is expected, and ends the program with 2."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="results", help="folder for what is found (results)")
    parser.add_argument("--jobs", type=int, default=8, help="processes at a time (8)")
    parser.add_argument("--limit", type=float, default=120, help="seconds without a word after which a process hangs (120)")
    parser.add_argument("--parts", default=",".join(PARTS), help="of " + ", ".join(PARTS))
    parser.add_argument("--models", default=",".join(MODELS), help="of " + ", ".join(MODELS))
    parser.add_argument("--batches", default="128", help="sizes of batches, with commas between (128)")
    parser.add_argument("--training", default=",".join(TRAINING), help="of " + ", ".join(TRAINING))
    parser.add_argument("--minutes", type=float, default=9, help="of the whole run, after which it ends; 0: no end (9)")
    parser.add_argument("--seconds", type=float, default=0, help="of a part, after which no more of its tests begin; 0: no end (0)")
    parser.add_argument("--operators", default="", help="filter of the benchmark of operators (all)")
    arguments = parser.parse_args()
    for option, allowed in (("parts", PARTS), ("models", MODELS), ("training", TRAINING)):
        for word in getattr(arguments, option).split(","):
            if word not in allowed:
                parser.error(f"--{option} has \"{word}\", expected of {', '.join(allowed)}")
    if not re.fullmatch(r"[1-9]\d{0,6}(,[1-9]\d{0,6})*", arguments.batches):
        parser.error(f"--batches is \"{arguments.batches}\", expected numbers above 0, with commas between")
    for option, good, expected in (("jobs", arguments.jobs > 0, "a number above 0"),
                                   ("limit", 0 < arguments.limit < float("inf"), "seconds above 0"),
                                   ("minutes", 0 <= arguments.minutes < float("inf"), "minutes, or 0 for no end"),
                                   ("seconds", 0 <= arguments.seconds < float("inf"), "seconds, or 0 for no end")):
        if not good:
            parser.error(f"--{option} is {getattr(arguments, option):g}, expected {expected}")
    try:
        re.compile(arguments.operators)
    except re.error as error:
        parser.error(f"--operators is \"{arguments.operators}\", expected a regular expression: {error}")
    arguments.out = os.path.abspath(arguments.out)
    try:
        os.makedirs(arguments.out, exist_ok=True)
        for name in FILES:  # of a run before
            with contextlib.suppress(FileNotFoundError):
                os.remove(os.path.join(arguments.out, name))
    except OSError as error:
        parser.error(f"--out is \"{arguments.out}\", expected a folder, or a place for one: {error}")
    return arguments


def run_parts(arguments, env, report):
    """Runs what is wanted, a part after the other. Returns what became of all of it, and tells it in the report."""
    total = {"passed": 0, "failed": 0, "not run": 0}
    for part in ["missing libraries"] + arguments.parts.split(","):
        begin, outcome, text = time.time(), Outcome(), []
        DEADLINE[0] = begin + arguments.seconds if arguments.seconds and part in PARTS else float("inf")
        if time_left() <= 0:
            why = f"ended by {SIGNAL[0]}" if SIGNAL[0] else f"the {arguments.minutes:g} minutes are over"
            outcome.add(part, "not run")
            text.append(f"not run: {why}")
        else:
            try:
                PARTS.get(part, stand_in)(arguments, env, report, outcome, text)
            except Exception as error:  # the next part still runs, and what this one found counts
                outcome.add(part, "not run" if SIGNAL[0] else "failed", 0, str(error))
                text.append(f"{part}: {error}")
                report.write_log(f"=== {part}: {error!r}\n")
            text += ["", f"{time.time() - begin:.0f} s"]
        for kind in total:
            total[kind] += outcome.count(kind)
        if part in PARTS or outcome.results:
            report.tell(part, text)
    return total


def main():
    arguments = arguments_of_run()
    end_by_signals()
    if arguments.minutes:
        END[0] = time.time() + 60 * arguments.minutes
    env = environment()
    info = first_words(env)
    say(info.output.rstrip())
    if info.status == 3:
        say("0 passed, 0 failed (nothing was run)")
        sys.exit(3)
    if info.status != 0:
        say(f"cuda_info: {info.words()}\n0 passed, 1 failed")
        sys.exit(1)
    report = Report(arguments.out)
    report.sections.append(f"# CUDA on a device\n\n{info.output.strip()}\n")
    total = run_parts(arguments, env, report)
    for words in report.close():
        total["failed"] += 1
        say(words)
    if SIGNAL[0]:
        say(f"ended by {SIGNAL[0]}")
    if total["not run"]:
        say(f"{total['not run']} not run")
    say(f"{total['passed']} passed, {total['failed']} failed")
    sys.exit(1 if total["failed"] or total["not run"] or SIGNAL[0] else 0)


if __name__ == "__main__":
    main()
