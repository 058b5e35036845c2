#!/usr/bin/env python3
"""Is rough with training, saving, spilling and serving, and looks at what is left.

  bazel build //tools:tidepool //tools/testing:spill_worker //examples/digit_server
  tools/testing/chaos.py --rounds=500 --seed=7

Each round draws one way to be rough (signals, limits, full disks, links and folders that change,
hostile clients) and a moment for it. Afterwards: the program has ended, in one of the ways it may;
the model of before or a whole new one is there; what an error says is true; the next save leaves no
temporary file. What is not permitted here is counted as skipped. Status 1: something was wrong; the
seed and the round repeat it, as far as moments can be repeated.
"""

import argparse
import collections
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

sys.dont_write_bytecode = True  # nothing is left beside this file
import chaos_round
from chaos_round import Skipped, Wrong, expect

NOBODY = 65534


class Round(chaos_round.Round):
  """Each method is a way to be rough."""

  def signals(self):
    """A signal at some moment of training and saving."""
    old = self.saved_model()
    which = self.rng.choice([
        signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP,
        signal.SIGSEGV, signal.SIGABRT, signal.SIGSTOP])
    epochs = self.rng.choice([1, 2, 20, 1000])
    process = self.train(f"--epochs={epochs}", "--memory_log=log", "--trace_file=trace")
    self.moment()
    process.send_signal(which)
    if which == signal.SIGSTOP:
      self.moment(0.1)
      process.send_signal(self.rng.choice([signal.SIGCONT, signal.SIGKILL]))
      self.moment()
      process.kill()
    status, _, err = self.finish(process)
    self.check_error(status, err, [which, signal.SIGKILL])
    self.check_left(old)

  def file_size_limit(self):
    """No file may be larger than some bytes."""
    old = self.saved_model()
    size = len(old)
    most = self.rng.choice([0, 1, 4096, self.rng.randrange(size), size - 1, size, 2 * size])
    limits = [(resource.RLIMIT_FSIZE, most)]
    status, out, err = self.finish(self.train("--epochs=2", "--memory_log=log", limits=limits))
    self.check_error(status, err)
    expect((status == 0) == (most >= size), f"limit {most} of {size}: status {status}, {err}")
    expect(status == 0 or "epoch 2/2" not in out, f"known only after training: {err}")
    self.check_left(old)

  def full_disk(self):
    """A disk that somebody fills meanwhile."""
    self.disk_of(self.rng.randrange(2200, 4400))  # the old model and the new one, and little more
    old = self.saved_model()
    process = self.train(f"--epochs={self.rng.choice([1, 10, 50])}", "--memory_log=log")
    self.moment()
    with open(f"{self.folder}/filler", "wb", buffering=0) as file:
      try:
        while file.write(b"f" * 4096):
          pass
      except OSError:
        pass
    status, _, err = self.finish(process)
    self.check_error(status, err)
    rescued = re.search("the model is in (.*)\n", err)
    if rescued:
      self.check_model(os.path.join(self.folder, rescued[1]))
    self.check_left(old)

  def links_and_folders(self):
    """What lies at the path changes while training goes on."""
    work = f"{self.folder}/work"
    os.makedirs(work)
    with open(f"{self.folder}/target", "w") as file:
      file.write("precious")
    kind = self.rng.choice(["link", "dangling", "loop", "taken", "gone", "moved", "read only"])
    links = {"link": "../target", "dangling": "nowhere", "loop": "model"}
    if kind in links:
      os.symlink(links[kind], f"{work}/model")
    process = self.train(f"--epochs={self.rng.choice([1, 20, 60])}", "--save=work/model")
    self.moment(1.5)
    if kind == "taken" and not os.path.exists(f"{work}/model"):
      try:
        os.mkdir(f"{work}/model")
      except FileExistsError:
        pass  # it was quicker
    elif kind == "gone":
      shutil.rmtree(work, ignore_errors=True)
    elif kind == "moved":
      os.rename(work, f"{self.folder}/elsewhere")
    elif kind == "read only":
      os.chmod(work, 0o500)
    status, out, err = self.finish(process)
    self.check_error(status, err)
    rescued = re.search("the model is in (.*)\n", err)
    if rescued:
      self.check_model(os.path.join(self.folder, rescued[1]))
    elif status == 0:
      places = [f"{work}/model", f"{self.folder}/elsewhere/model"]
      found = [path for path in places if os.path.isfile(path)]
      # It may have been saved before the folder went.
      expect(found or kind == "gone", "saved, but not there")
      for path in found:
        self.check_model(path)
    else:
      expect("test accuracy" not in out, f"the model is lost: {err}")
      epochs = re.search(r"--epochs=(\d+)", " ".join(process.args))[1]
      expect(f"epoch {epochs}/{epochs}" not in out, f"the model is lost: {err}")
    with open(f"{self.folder}/target") as file:
      expect(file.read() == "precious", "written through a link")

  def limits(self):
    """Few files, little memory, small stacks, no more processes."""
    old = self.saved_model()
    which, values = self.rng.choice([
        (resource.RLIMIT_NOFILE, [4, 5, 6, 8, 10, 16]),
        (resource.RLIMIT_STACK, [96 << 10, 128 << 10, 192 << 10, 256 << 10, 512 << 10]),
        (resource.RLIMIT_AS, [1 << 30, 2 << 30, 4 << 30]),
        (resource.RLIMIT_NPROC, [1])])
    value, user = self.rng.choice(values), None
    try:
      if which == resource.RLIMIT_NPROC:  # which root is not asked for
        if os.getuid() != 0:
          raise Skipped("no other user to become")
        user = NOBODY
        shutil.chown(self.folder, user, user)
      process = self.train("--epochs=3", "--threads=4", limits=[(which, value)], user=user)
    except (OSError, subprocess.SubprocessError):
      raise Skipped("no other user to become") from None
    status, _, err = self.finish(process)
    if status == 127 or "shared libraries" in err or "relocation error" in err:
      return  # the program never began
    self.check_error(status, err)
    if which in (resource.RLIMIT_STACK, resource.RLIMIT_NPROC):
      expect(status == 0, f"with limit {which} of {value}: {err}")
    if user is None:
      self.check_left(old)

  def spilling(self):
    """Signals and limits for pages and plans in files."""
    command = [self.options.spill_worker, "pages", "plans"]
    limits = []
    if self.rng.random() < 0.3:
      limits = [(resource.RLIMIT_FSIZE, self.rng.randrange(0, 2 << 20))]
    elif self.rng.random() < 0.3:
      self.disk_of(self.rng.randrange(64, 2048))
    process = self.start(command + ["100000" if not limits else "20"], limits=limits)
    self.moment(0.5)
    which = self.rng.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGABRT])
    process.send_signal(which)
    status, _, err = self.finish(process)
    self.check_error(status, err, [which])
    self.unmount()
    status, out, err = self.finish(self.start(command + ["6"]))
    expect(status == 0 and "cycle 6" in out, f"after {which}: status {status}, {err}")
    left = set(os.listdir(self.folder))
    expect(left == {"pages", "plans"}, f"left: {left}")

  def serving(self):
    """Hostile clients, and an end under load."""
    self.saved_model()
    server = self.start([self.options.server, "--model=model", "--port=0",
                         "--request_seconds=5", "--connections=8"])
    line = server.stdout.readline()
    found = re.search(r":(\d+)/digits", line)
    expect(found, f"the server did not start: {line or server.stderr.read()}")
    port, ended, cut, answered = int(found[1]), threading.Event(), [], []
    seeds = [self.rng.randrange(1 << 30) for _ in range(8)]
    clients = [threading.Thread(target=chaos_round.hostile_client,
                                args=(port, random.Random(seed), ended, cut, answered))
               for seed in seeds]
    for client in clients:
      client.start()
    self.moment(2)
    which = self.rng.choice([signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
    expect(server.poll() is None, "the server ended by itself")
    if which != signal.SIGKILL:
      expect(not cut, f"answers cut: {cut[:3]}")
    server.send_signal(which)
    status, _, err = self.finish(server, 20)
    ended.set()
    for client in clients:
      client.join()
    right = -signal.SIGKILL if which == signal.SIGKILL else 0
    expect(status == right, f"after {which}: status {status}, {err}")
    expect(set(os.listdir(self.folder)) == {"model"}, "the server left files")


WAYS = [Round.signals, Round.signals, Round.file_size_limit, Round.full_disk,
        Round.links_and_folders, Round.links_and_folders, Round.limits, Round.spilling,
        Round.serving]


def main():
  parser = argparse.ArgumentParser(
      description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--tidepool", default="bazel-bin/tools/tidepool")
  parser.add_argument("--spill_worker", default="bazel-bin/tools/testing/spill_worker")
  parser.add_argument("--server", default="bazel-bin/examples/digit_server/digit_server")
  parser.add_argument("--rounds", type=int, default=100)
  parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31))
  parser.add_argument("--first", type=int, default=0, help="round to begin with")
  parser.add_argument("--only", default="", help="one way alone, such as full_disk")
  options = parser.parse_args()
  for name in ("tidepool", "spill_worker", "server"):
    setattr(options, name, os.path.abspath(getattr(options, name)))
  options.may_mount = chaos_round.own_mounts()
  ways = [way for way in WAYS if options.only in ("", way.__name__)]
  counts, wrong = collections.Counter(), 0
  print(f"seed {options.seed}", flush=True)
  with tempfile.TemporaryDirectory(prefix="chaos") as top:
    os.chmod(top, 0o755)
    chaos_round.make_images(f"{top}/data", random.Random(options.seed))
    for number in range(options.first, options.first + options.rounds):
      rng = random.Random(f"{options.seed}/{number}")
      # Each way once before any comes again.
      way = ways[number % len(ways)]
      this = Round(options, rng, top)
      try:
        way(this)
        counts[way.__name__] += 1
      except Skipped as reason:
        counts[f"{way.__name__} skipped: {reason}"] += 1
      except Wrong as what:
        wrong += 1
        print(f"round {number}, {way.__name__}: {what}", flush=True)
      finally:
        this.end()
  for name, count in sorted(counts.items()):
    print(f"{count:6d}  {name}")
  print(f"{wrong:6d}  wrong; --seed={options.seed}")
  return 1 if wrong else 0


if __name__ == "__main__":
  sys.exit(main())
