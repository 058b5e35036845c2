"""Processes of run_all.py: nothing that they do, or leave undone, keeps the next one from running.

Each is the leader of a session of its own, whose members are all ended with it: what a profiler or a sanitizer started would
hold its output open, and the device. Ended are those that are silent for too long, that print without end, and all when the
time of the whole run is over.
"""
import os
import re
import select
import signal
import subprocess
import time

HERE = os.path.dirname(os.path.abspath(__file__))
# What programs are started by: nothing, or the loader and the C library of the machine that built them.
START = []

MOST_OUTPUT = 64 << 20  # bytes of one process
MOST_LOG = 15 << 20  # bytes of a file of results
GRACE = 10  # seconds that an ended process has: one that a driver holds may not go at all

# When nothing new begins: of the part under way, and of the run.
DEADLINE = [float("inf")]
END = [float("inf")]


def time_left():
    return min(DEADLINE[0], END[0]) - time.time()


class Outcome:
    """What became of tests: name -> (passed, failed, skipped, crashed, hung or not run; seconds; output)."""

    def __init__(self):
        self.results = {}

    def count(self, *kinds):
        return sum(result[0] in kinds for result in self.results.values())


class Done:
    """What became of a process: `status` is None where it had to be ended, and `why` says so then."""

    def __init__(self, output, status, why):
        self.output, self.status, self.why = output, status, why

    def good(self):
        return self.status == 0

    def words(self):
        return self.why or f"status {self.status}"


def end(process):
    """Ends it and all that it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    try:
        return process.wait(GRACE)
    except subprocess.TimeoutExpired:
        return None


def run(command, env, silence, cwd, text="", most=None, errors=True):
    """Runs a process to its end, or until it is silent for `silence` seconds, or runs for `most` of them."""
    began = time.time()
    try:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT if errors else subprocess.DEVNULL, env=env, cwd=cwd,
                                   start_new_session=True)
    except OSError as error:
        return Done("", None, f"does not start: {error}")
    try:
        process.stdin.write(text.encode())
        process.stdin.close()
    except BrokenPipeError:
        pass
    parts, size, why = [], 0, ""
    while True:
        wait = min(silence, END[0] - time.time(), began + most - time.time() if most else silence)
        if wait <= 0 or not select.select([process.stdout], [], [], wait)[0]:
            over = time.time() >= END[0] - 0.01
            slow = most and time.time() >= began + most - 0.01
            why = "ended with the time of the run" if over else f"not done within {most:.0f} s" if slow else f"silent for {silence:.0f} s"
            break
        part = os.read(process.stdout.fileno(), 65536)
        if not part:
            break
        parts.append(part)
        size += len(part)
        if size > MOST_OUTPUT:
            why = f"printed {size >> 20} MiB"
            break
    if why:
        end(process)
        status = None
    else:  # it has closed its output
        try:
            status = process.wait(GRACE)
        except subprocess.TimeoutExpired:
            why = "closed its output and did not end"
            status = None
        end(process)  # what it left behind
    return Done(b"".join(parts).decode(errors="replace"), status, why)


class Log:
    """A file that does not grow beyond what is brought back."""

    def __init__(self, path):
        self.file, self.left = open(path, "w", encoding="utf-8"), MOST_LOG

    def write(self, text):
        if self.left <= 0:
            return
        if len(text) > self.left:
            text = text[:self.left] + "\n(the rest is left out)\n"
        self.left -= len(text)
        self.file.write(text)
        self.file.flush()

    def close(self):
        self.file.close()


def missing_libraries(programs, env, loader):
    """Shared libraries that the programs need and that are nowhere."""
    missing = {}
    for program in programs:
        listed = run([loader, "--list", program], env, 30, None).output
        for name in re.findall(r"^\s*(\S+) => not found", listed, re.MULTILINE):
            missing[name] = None
        for name in re.findall(r"error while loading shared libraries: (\S+): cannot open", listed):
            missing[name] = None
    return list(missing)
