#!/usr/bin/env python3
"""PyTorch's side of train_benchmark: the same networks, images, loss and updaters, by the current release.

    pip install torch
    bazel-bin/tools/benchmarks/train_benchmark \\
        --torch_peer="python3 tools/benchmarks/torch_training.py --mode=compiled"

--mode: eager (NCHW), channels_last (images as ours lie), compiled (torch.compile of the loss), graphs (the whole step as one
CUDA graph, channels last; with --device=cuda). Answers the lines of step_server.h.

Memory: how much more is resident at the peak than before the network was made, with code that is run for the first time, of
compiled networks the compiler too (less of it where an earlier process has filled its cache). --memory=step: of a step alone,
once all is compiled: gradients are let go, what malloc has kept is given back, and another step is done; its growth, and the
bytes of parameters, buffers and the updater's state, which were there before. On a device it is the device's.
"""
import argparse
import ctypes
import gc
import gzip
import os
import struct
import sys
import time

# Idle threads of OpenMP spin by default, on the processors that the other side's need.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    os.execv(sys.executable, [sys.executable] + sys.argv)

try:
    import torch
    import torch.nn.functional as F
    from torch import nn
except ImportError:
    sys.exit("torch_training.py: no torch; pip install torch")

LEARNING_RATES = {"sgd": 0.01, "adam": 0.001}  # training_case.h


def read_idx(path):
    with (gzip.open(path + ".gz") if os.path.exists(path + ".gz") else open(path, "rb")) as file:
        zero, kind, rank = struct.unpack(">HBB", file.read(4))
        if zero != 0 or kind != 8:
            raise ValueError(f"{path}: expected an IDX file of bytes")
        dims = struct.unpack(f">{rank}I", file.read(4 * rank))
        return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).reshape(dims)


class Residual(nn.Module):
    """nn/models.h: ResidualConfig with stages of 32 and 64 channels."""

    def __init__(self, classes, channels=(32, 64)):
        super().__init__()

        def convolution(before, behind, kernel, stride):
            return nn.Sequential(nn.Conv2d(before, behind, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(behind))

        self.stem = convolution(1, channels[0], 3, 1)
        self.first, self.second, self.around = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        before = channels[0]
        for i, count in enumerate(channels):
            stride = 1 if i == 0 else 2
            self.first.append(convolution(before, count, 3, stride))
            self.second.append(convolution(count, count, 3, 1))
            self.around.append(nn.Identity() if i == 0 else convolution(before, count, 1, stride))
            before = count
        self.classes = nn.Linear(before, classes)

    def forward(self, x):
        x = F.relu(self.stem(x), inplace=True)
        for first, second, around in zip(self.first, self.second, self.around):
            y = second(F.relu(first(x), inplace=True))
            x = F.relu(y + around(x), inplace=True)
        return self.classes(x.mean((2, 3)))


class TwoLstms(nn.Module):
    def __init__(self, width, classes, units=128):
        super().__init__()
        self.lstm = nn.LSTM(width, units, 2, batch_first=True)
        self.classes = nn.Linear(units, classes)
        for name, parameter in self.lstm.named_parameters():
            if name.startswith("bias_hh"):  # the second of two biases that are added: ours has one
                nn.init.zeros_(parameter)
                parameter.requires_grad_(False)

    def forward(self, x):
        return self.classes(self.lstm(x.squeeze(1))[0][:, -1])


class Transformer(nn.Module):
    def __init__(self, length, features, classes, width=128, heads=4):
        super().__init__()
        self.enter = nn.Linear(features, width)
        self.places = nn.Parameter(torch.randn(length, width) * 0.02)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True,
                                       norm_first=True) for _ in range(2))
        self.norm = nn.LayerNorm(width)
        self.classes = nn.Linear(width, classes)

    def forward(self, x):
        x = self.enter(x.squeeze(1)) + self.places
        for block in self.blocks:
            x = block(x)
        return self.classes(self.norm(x).mean(1))


def network_of(model, height, width, classes):
    if model == "mlp":
        return nn.Sequential(nn.Flatten(), nn.Linear(height * width, 256), nn.ReLU(True), nn.Linear(256, 128), nn.ReLU(True),
                             nn.Linear(128, classes))
    if model == "lenet":
        rows, columns = ((height - 4) // 2 - 4) // 2, ((width - 4) // 2 - 4) // 2
        return nn.Sequential(nn.Conv2d(1, 20, 5), nn.ReLU(True), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.ReLU(True),
                             nn.MaxPool2d(2), nn.Flatten(), nn.Linear(50 * rows * columns, 500), nn.ReLU(True),
                             nn.Linear(500, classes))
    if model == "residual":
        return Residual(classes)
    if model == "lstm":
        return TwoLstms(width, classes)
    if model == "transformer":
        return Transformer(height, width, classes)
    raise ValueError(f'model is "{model}", expected mlp, lenet, residual, lstm or transformer')


def status_kib(field):
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith(field + ":"):
                return int(line.split()[1])
    return -1


def reset_peak():
    with open("/proc/self/clear_refs", "w") as peak:
        peak.write("5")


class Side:
    def __init__(self, mode, device, memory):
        self.mode = mode
        self.tells_step = memory == "step"
        self.device = torch.device(device)
        self.pixels = None
        self.graph = None

    def hello(self):
        return f"PyTorch {torch.__version__} {self.mode} on {self.device}; OMP_WAIT_POLICY={os.environ['OMP_WAIT_POLICY']}"

    def begin(self, text):
        model, batch, threads, updater, folder = text.split(" ", 4)
        if self.pixels is not None:
            raise ValueError("begin: this process has begun before")
        if updater not in LEARNING_RATES:
            raise ValueError(f'updater is "{updater}", expected sgd or adam')
        pixels = read_idx(os.path.join(folder, "train-images-idx3-ubyte")).unsqueeze(1)
        self.labels = read_idx(os.path.join(folder, "train-labels-idx1-ubyte"))
        self.batch, self.at = int(batch), 0
        torch.manual_seed(1)
        torch.set_num_threads(int(threads))
        reset_peak()
        self.resident = status_kib("VmRSS")
        network = network_of(model, pixels.shape[2], pixels.shape[3], int(self.labels.max()) + 1).train().to(self.device)
        self.format = torch.channels_last if self.mode != "eager" else torch.contiguous_format
        if self.mode != "eager":
            network = network.to(memory_format=torch.channels_last)
        self.kept = list(network.parameters()) + list(network.buffers())
        parameters = [p for p in network.parameters() if p.requires_grad]
        if updater == "sgd":
            self.optimizer = torch.optim.SGD(parameters, LEARNING_RATES["sgd"], fused=True)
        else:
            self.optimizer = torch.optim.Adam(parameters, LEARNING_RATES["adam"], fused=True,
                                              capturable=self.mode == "graphs")

        def loss(features, labels):
            return F.cross_entropy(network(features), labels)

        self.loss = torch.compile(loss) if self.mode == "compiled" else loss
        self.pixels = pixels
        return str(sum(p.numel() for p in parameters))

    def compute(self, features, labels):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(features, labels)
        loss.backward()
        self.optimizer.step()
        return loss

    def capture(self, features, labels):
        """The step as a graph that reads these arrays; steps of a stream beside the default one come before it."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self.compute(features, labels)
        torch.cuda.current_stream().wait_stream(stream)
        self.graph, self.read = torch.cuda.CUDAGraph(), (features, labels)
        with torch.cuda.graph(self.graph):
            self.captured = self.compute(features, labels)

    def step(self):
        # Bytes, as Tidepool keeps them: both sides convert a batch in each step, on the host.
        features = self.pixels[self.at:self.at + self.batch].to(torch.float32, memory_format=self.format).mul_(1 / 255)
        labels = self.labels[self.at:self.at + self.batch].to(torch.int64)
        if self.device.type != "cpu":
            features = features.pin_memory().to(self.device, non_blocking=True)
            labels = labels.pin_memory().to(self.device, non_blocking=True)
        if self.mode != "graphs":
            return self.compute(features, labels).item()
        if self.graph is None:
            self.capture(features, labels)
        self.read[0].copy_(features)
        self.read[1].copy_(labels)
        self.graph.replay()
        return self.captured.item()

    def steps(self, text):
        times, loss = [], 0.0
        for _ in range(int(text)):
            cpu, wall = time.process_time_ns(), time.perf_counter_ns()
            loss = self.step()
            wall_end, cpu_end = time.perf_counter_ns(), time.process_time_ns()
            times.append(f"{wall_end - wall}/{cpu_end - cpu}")
            self.at = self.at + self.batch if self.at + 2 * self.batch <= len(self.pixels) else 0
        return " ".join([f"{loss:f}"] + times)

    def memory(self):
        if self.device.type != "cpu":
            return str(torch.cuda.max_memory_allocated() // 1024)
        return str(self.step_memory() if self.tells_step else status_kib("VmHWM") - self.resident)

    def step_memory(self):
        self.step()  # so that all there is to compile is compiled
        self.optimizer.zero_grad(set_to_none=True)
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        before = status_kib("VmRSS")
        reset_peak()
        self.step()
        grown = status_kib("VmHWM") - before
        state = [value for of_one in self.optimizer.state.values() for value in of_one.values() if torch.is_tensor(value)]
        return grown + sum(array.numel() * array.element_size() for array in self.kept + state) // 1024

    def answer(self, line):
        verb, _, rest = line.partition(" ")
        if verb == "hello":
            return self.hello()
        if verb == "begin":
            return self.begin(rest)
        if self.pixels is None:
            raise ValueError(f'request "{line}" before begin')
        if verb == "steps":
            return self.steps(rest)
        if verb == "memory":
            return self.memory()
        raise ValueError(f'request "{line}", expected hello, begin, steps or memory')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", choices=["eager", "channels_last", "compiled", "graphs"], default="eager")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--memory", choices=["whole", "step"], default="whole", help="step: of a step alone")
    arguments = parser.parse_args()
    if arguments.mode == "graphs" and arguments.device == "cpu":
        parser.error("--mode=graphs is of CUDA: --device=cuda")
    side = Side(arguments.mode, arguments.device, arguments.memory)
    # What libraries print must not come between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        try:
            text = "ok " + side.answer(line.rstrip("\n"))
        except Exception as error:  # the protocol's answer to anything that fails
            text = f"error {error}"
        print(text.replace("\n", " "), file=answers, flush=True)


if __name__ == "__main__":
    main()
