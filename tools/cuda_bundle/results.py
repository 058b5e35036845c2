"""What run_all.py found, and its files: of bounded size, written as it comes, and told without them where a disk is full."""
import os
import stat
import threading

MOST_FILE = 15 << 20  # bytes of a file of results
MOST_SECTION = 1 << 20  # bytes of a part of the report
MOST_KEPT = 16 << 10  # bytes of the output of a test
LEFT_OUT = "\n(the rest is left out)\n".encode()


class Ends:
    """The first and the last `most` / 2 bytes of what is added."""

    def __init__(self, most):
        self.half, self.size, self.first, self.last = most // 2, 0, bytearray(), bytearray()

    def add(self, data):
        self.size += len(data)
        room = self.half - len(self.first)
        if room > 0:
            self.first += data[:room]
            data = data[room:]
        self.last += data[-self.half:]
        if len(self.last) > 2 * self.half:
            del self.last[:-self.half]

    def text(self):
        last = self.last[-self.half:]
        between = self.size - len(self.first) - len(last)
        told = f"\n({between} bytes are left out)\n".encode() if between else b""
        return b"".join([self.first, told, last]).decode(errors="replace")


def encoded(text):
    return text.encode(errors="replace")


def shortened(text, most):
    """The first and last part of a text of more than `most` bytes."""
    if 3 * len(text) <= most:
        return text
    ends = Ends(most)
    ends.add(encoded(text))
    return ends.text()


def cut(data, most):
    """At most `most` bytes of UTF-8, with a word on what is left out."""
    if len(data) <= most:
        return data
    return data[:max(0, most - len(LEFT_OUT))].decode(errors="ignore").encode() + LEFT_OUT[:most]


def write_all(number, data):
    """What could not be written to the open file, and the error then."""
    while data:
        try:
            data = data[os.write(number, data):]
        except OSError as error:
            return data, error
    return b"", None


def say(text):
    """Prints a line; where nobody reads, or a disk is full, the run goes on."""
    write_all(1, encoded(text + "\n"))


class Outcome:
    """What became of tests: name -> (passed, failed, skipped or not run; seconds; the ends of its output)."""

    def __init__(self):
        self.results = {}

    def add(self, name, kind, seconds=0, output=""):
        self.results[name] = (kind, seconds, shortened(output, MOST_KEPT))

    def count(self, *kinds):
        return sum(result[0] in kinds for result in list(self.results.values()))


class Log:
    """A file that does not grow beyond what is brought back. What a full disk refuses is in `unwritten`."""

    def __init__(self, path):
        self.lock, self.left, self.number = threading.Lock(), MOST_FILE - len(LEFT_OUT), None
        self.error, self.unwritten = None, Ends(MOST_SECTION // 4)
        try:
            self.number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        except OSError as error:
            self.error = error

    def write(self, text):
        with self.lock:
            if self.left < 0:
                return
            data = encoded(text)
            if len(data) > self.left:
                data = data[:self.left].decode(errors="ignore").encode() + LEFT_OUT
                self.left = -1  # and nothing more
            else:
                self.left -= len(data)
            refused, error = (data, self.error) if self.number is None else write_all(self.number, data)
            self.error = self.error or error
            self.unwritten.add(refused)


class Report:
    """report.md and tests.log in a folder, and the standard output, which has the sections too."""

    def __init__(self, folder):
        self.folder, self.sections, self.errors = folder, [], {}
        self.lock, self.log = threading.Lock(), Log(os.path.join(folder, "tests.log"))

    def write_log(self, text):
        self.log.write(text)

    def tell(self, title, text):
        """A section that is done; the text: its lines."""
        lines = shortened("\n".join(text), MOST_SECTION)
        say(f"## {title}\n{lines}")
        with self.lock:
            self.sections += [f"## {title}\n\n{lines}\n"]
            self.write("report.md", "\n".join(self.sections))

    def so_far(self, title, line):
        """A section under way: it is in the file, for whoever finds no more than that."""
        with self.lock:
            self.write("report.md", "\n".join(self.sections + [f"## {title}\n\nso far: {line}\n"]))

    def write(self, name, text):
        """A whole file of the folder, in the place of the one before; of what does not fit on the disk, its beginning."""
        path = os.path.join(self.folder, name)
        try:
            number = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
            _, error = write_all(number, cut(encoded(text), MOST_FILE))
            os.close(number)
            if error and os.path.exists(path) and os.path.getsize(path) >= os.path.getsize(path + ".new"):
                os.remove(path + ".new")
            else:
                os.replace(path + ".new", path)
        except OSError as broken:
            error = broken
        if error:
            self.errors.setdefault(name, error)
        else:
            self.errors.pop(name, None)  # what is there now is whole

    def close(self):
        """Names of files that are not whole, and why. What tests.log lacks is printed where it cannot fill a file."""
        lacking = dict(self.errors)
        if self.log.error:
            lacking["tests.log"] = self.log.error
            try:
                if self.log.unwritten.size and not stat.S_ISREG(os.fstat(1).st_mode):
                    say("What is not in tests.log:\n" + self.log.unwritten.text())
            except OSError:
                pass  # nobody reads
        return [f"{name} is not whole: {error}" for name, error in lacking.items()]
