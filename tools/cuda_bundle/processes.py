"""Processes of run_all.py: nothing that they do, or leave undone, keeps the next one from running.

Each is the leader of a session of its own, whose members are all ended with it: what a profiler or a sanitizer started would
hold its output open, and the device. Ended are those that are silent for too long, that print without end, whose output is
held when they are gone, and all when the time of the whole run is over or a signal ends it.
"""
import os
import re
import select
import signal
import subprocess
import time

from results import Ends

HERE = os.path.dirname(os.path.abspath(__file__))
# What programs are started by: nothing, or the loader and the C library of the machine that built them.
START = []

MOST_OUTPUT = 64 << 20  # bytes of one process
GRACE = 10  # seconds that an ended process has: one that a driver holds may not go at all
LINGER = 2  # seconds that others may hold the output of a process that is gone
LOOK = 0.1  # seconds between looks at whether a process is gone, or a signal has come

# When nothing new begins: of the part under way, and of the run.
DEADLINE = [float("inf")]
END = [float("inf")]
SIGNAL = [""]  # the name of the one that ends the run


def time_left():
    """Seconds until nothing new begins."""
    return 0 if SIGNAL[0] else min(DEADLINE[0], END[0]) - time.time()


def end_by_signals():
    """SIGTERM, SIGINT and SIGHUP end what runs, begin nothing more and let the report be written, but where they are ignored."""
    def note(number, frame):
        SIGNAL[0] = signal.Signals(number).name
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # where it is ignored, the status of a process is lost
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, note)


class Done:
    """What became of a process: `status` is None where it had to be ended, and `why` says so then.

    `cut` tells that it was ended with the run, and not for what it did.
    """

    def __init__(self, output, status, why, cut=False):
        self.output, self.status, self.why, self.cut = output, status, why, cut

    def good(self):
        return self.status == 0

    def words(self):
        return self.why or f"status {self.status}"

    def became(self, good=None):
        """For a table of results; `good`: what is asked for beside the status. What a signal ends has not failed."""
        good = self.good() if good is None else good
        return "passed" if good else "not run" if self.cut and SIGNAL[0] else "failed"


class Lines:
    """Hands whole lines to `each`; of one that is longer than LONGEST, parts, as it comes."""

    LONGEST, LAST = 128 << 10, 4 << 10  # bytes; LAST: of the end of a long line, which is kept together

    def __init__(self, each):
        self.each, self.rest = each, b""

    def add(self, data):
        lines = (self.rest + data).split(b"\n")
        self.rest = lines.pop()
        for line in lines:
            self.each(line.decode(errors="replace"))
        if len(self.rest) > self.LONGEST:
            self.each(self.rest[:-self.LAST].decode(errors="replace"))
            self.rest = self.rest[-self.LAST:]

    def close(self):
        if self.rest:
            self.each(self.rest.decode(errors="replace"))


def is_gone(process):
    """Whether it has ended; its number stays taken until end() asks for its status."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def end(process):
    """Ends it and all that it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    try:
        return process.wait(GRACE)
    except subprocess.TimeoutExpired:
        return None


def run(command, env, silence, cwd, text="", most=None, errors=True, keep=MOST_OUTPUT, each=None):
    """Runs a process to its end, or until it is silent for `silence` seconds, or runs for `most` of them.

    Of its output the first and the last `keep` / 2 bytes are kept; `each` is called with every line.
    """
    if SIGNAL[0]:
        return Done("", None, f"not begun for {SIGNAL[0]}", True)
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
    except OSError:
        pass  # it does not read
    output, lines = Ends(keep), Lines(each) if each else None
    why, cut = follow(process, began, silence, most, output, lines)
    status = None
    if not why:  # it has closed its output
        until = time.time() + GRACE
        while not is_gone(process) and time.time() < until and not SIGNAL[0]:
            time.sleep(0.005)
        if not is_gone(process):
            why, cut = ("closed its output and did not end", False) if not SIGNAL[0] else (f"ended by {SIGNAL[0]}", True)
    ended = end(process)  # and what it left behind
    if not why:
        status = ended
    process.stdout.close()
    if lines:
        lines.close()
    return Done(output.text(), status, why, cut)


def follow(process, began, silence, most, output, lines):
    """Reads what a process prints until it closes its output. Otherwise: why it is to be ended, and whether with the run."""
    size, heard, gone = 0, began, None
    while True:
        now = time.time()
        if SIGNAL[0]:
            return f"ended by {SIGNAL[0]}", True
        if now >= END[0]:
            return "ended with the time of the run", True
        if gone is None and is_gone(process):
            gone = now
        if gone is not None and now >= gone + LINGER:
            return "left behind what holds its output", False
        if gone is None and most and now >= began + most:
            return f"not done within {most:.0f} s", False
        if gone is None and now >= heard + silence:
            return f"silent for {silence:.0f} s", False
        if not select.select([process.stdout], [], [], min(LOOK, silence))[0]:
            continue
        part = os.read(process.stdout.fileno(), 65536)
        if not part:
            return "", False
        heard = time.time()
        size += len(part)
        output.add(part)
        if lines:
            lines.add(part)
        if size > MOST_OUTPUT:
            return f"printed {size >> 20} MiB", False


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
