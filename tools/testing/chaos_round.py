"""What chaos.py is rough with: programs, folders, disks and clients."""

import ctypes
import os
import re
import resource
import shutil
import socket
import struct
import subprocess
import tempfile
import time

LONGEST = 60  # seconds for any program: many times what it takes
CLONE_NEWNS, CLONE_NEWUSER, MS_REC, MS_PRIVATE = 0x00020000, 0x10000000, 0x4000, 1 << 18
libc = ctypes.CDLL(None, use_errno=True)


class Wrong(Exception):
  """What must not be."""


class Skipped(Exception):
  """What is not permitted here."""


def expect(condition, what):
  if not condition:
    raise Wrong(what)


def own_mounts():
  """A view of mounts of our own, so that disks of any size can be made; False: not permitted."""
  uid, gid = os.getuid(), os.getgid()
  if libc.unshare(CLONE_NEWNS) != 0:
    if libc.unshare(CLONE_NEWNS | CLONE_NEWUSER) != 0:
      return False
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
      with open(f"/proc/self/{name}", "w") as file:
        file.write(text)
  return libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None) == 0


def make_images(folder, rng):
  """Four files of MNIST's names: 200 images to train, 50 to test, of 28x28 pixels."""
  os.makedirs(folder)
  for part, count in (("train", 200), ("t10k", 50)):
    labels = bytes(i % 10 for i in range(count))
    pixels = bytes((label * 25 + rng.randrange(20)) % 256 for label in labels for _ in range(784))
    with open(f"{folder}/{part}-images-idx3-ubyte", "wb") as file:
      file.write(struct.pack(">IIII", 0x803, count, 28, 28) + pixels)
    with open(f"{folder}/{part}-labels-idx1-ubyte", "wb") as file:
      file.write(struct.pack(">II", 0x801, count) + labels)


class Round:
  def __init__(self, options, rng, top):
    self.options, self.rng = options, rng
    self.data = f"{top}/data"
    self.folder = tempfile.mkdtemp(prefix="round", dir=top)
    self.temporary = tempfile.mkdtemp(prefix="tmp", dir=top)
    self.mounted = False
    self.running = []

  # ---- programs ---------------------------------------------------------------------------

  def start(self, command, limits=(), user=None, folder=None):
    def prepare():
      os.setsid()
      resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
      for which, value in limits:
        resource.setrlimit(which, (value, value))
      if user is not None:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
    environment = dict(os.environ, TMPDIR=self.temporary)
    process = subprocess.Popen(
        command, cwd=folder or self.folder, env=environment, preexec_fn=prepare, text=True,
        errors="replace", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    self.running.append(process)
    return process

  def finish(self, process, seconds=LONGEST):
    """(status, stdout, stderr); a negative status is a signal's."""
    try:
      out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
      raise Wrong(f"{process.args[:2]} had not ended after {seconds} s") from None
    return process.returncode, out, err

  def train(self, *more, **limits):
    return self.start([self.options.tidepool, "train", f"--data={self.data}", "--model=mlp",
                       "--threads=2", "--save=model", *more], **limits)

  def check_model(self, path):
    status, _, err = self.finish(self.start(
        [self.options.tidepool, "evaluate", f"--model_file={path}",
         f"--images={self.data}/t10k-images-idx3-ubyte",
         f"--labels={self.data}/t10k-labels-idx1-ubyte"], folder="/"))
    expect(status == 0, f"{path} cannot be loaded: {err}")

  def saved_model(self):
    """What lies in the folder's "model", saved by an ordinary run."""
    status, _, err = self.finish(self.train("--epochs=1"))
    expect(status == 0, f"an ordinary run failed: {err}")
    with open(f"{self.folder}/model", "rb") as file:
      return file.read()

  def check_error(self, status, err, signals=()):
    """One line and status 1 or 2, or a signal that was to be expected."""
    if status >= 0 or -status not in signals:
      expect(status in (0, 1, 2), f"status {status}: {err}")
      expect(err.count("\n") == (status != 0), f"status {status}, errors: {err!r}")

  def check_left(self, old):
    """The old model or a whole new one, and nothing that the next save does not clear."""
    with open(f"{self.folder}/model", "rb") as file:
      if file.read() != old:
        self.check_model(f"{self.folder}/model")
    extra = set(os.listdir(self.folder)) - {"model", "log", "trace", "filler"}
    temporary = re.compile(r"(model|log|trace)\.tidepool-\d+\.tmp")
    expect(all(temporary.fullmatch(name) for name in extra), f"left: {extra}")
    if os.path.exists(f"{self.folder}/filler"):
      os.remove(f"{self.folder}/filler")
    status, _, err = self.finish(self.train("--epochs=1", "--memory_log=log", "--trace_file=trace"))
    expect(status == 0, f"the next run failed: {err}")
    left = sorted(os.listdir(self.folder))
    expect(left == ["log", "model", "trace"], f"the next run left: {left}")

  def disk_of(self, kib):
    folder, size = self.folder.encode(), f"size={kib}k".encode()
    if not self.options.may_mount or libc.mount(b"tmpfs", folder, b"tmpfs", 0, size) != 0:
      raise Skipped("mounting is not permitted")
    self.mounted = True

  def unmount(self):
    if self.mounted:
      libc.umount2(self.folder.encode(), 2)
      self.mounted = False

  def end(self):
    for process in self.running:
      if process.poll() is None:
        process.kill()
        process.communicate()
    self.unmount()
    shutil.rmtree(self.folder, ignore_errors=True)
    shutil.rmtree(self.temporary, ignore_errors=True)

  def moment(self, longest=0.8):
    time.sleep(self.rng.random() ** 2 * longest)


def is_whole(answer):
  head, _, body = answer.partition(b"\r\n\r\n")
  length = re.search(rb"Content-Length: (\d+)", head)
  return length is not None and len(body) >= int(length[1])


def hostile_client(port, rng, ended, cut, answered):
  image = bytes(784)
  honest = b"POST /digits HTTP/1.1\r\nHost: h\r\nContent-Length: 784\r\n\r\n" + image
  chunked = b"POST /digits HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
  begin = [honest, honest, honest[:-5], honest[:30], b"",
           chunked + b"310\r\n" + image + b"\r\n0\r\n\r\n",
           chunked + b"fffffffffff\r\n" + image,
           b"GET /metrics HTTP/1.1\r\nHost: h\r\nRange: bytes=0-,0-,0-\r\n\r\n",
           b"GET /memory HTTP/1.1\r\nHost: h\r\nAccept-Encoding: br\r\n\r\n",
           bytes(rng.randrange(256) for _ in range(500)), b"A" * 100000,
           b"POST /digits HTTP/1.1\r\nHost: h\r\nContent-Length: 1099511627776\r\n\r\n"]
  while not ended.is_set():
    try:
      with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
        request = rng.choice(begin)
        client.sendall(request)
        client.settimeout(rng.choice([0.01, 0.2]) if request is not honest else 10)
        answer = b""
        while not is_whole(answer):
          piece = client.recv(65536)
          if not piece:
            break
          answer += piece
        else:
          answered.append(answer[:12])
          continue
        if request is honest and answer and not ended.is_set():
          cut.append(answer[:100])
    except OSError:
      pass
