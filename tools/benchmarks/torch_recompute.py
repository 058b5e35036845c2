#!/usr/bin/env python3
"""PyTorch's side of nn/budget's step_budget_benchmark: the same deep networks, with what PyTorch has to train in less memory.

    pip install torch
    python3 tools/benchmarks/torch_recompute.py [--networks=residual,lstm] [--batch=32] [--depth=24] [--repetitions=15]

For each network a step (forward, mean cross entropy, backward; SGD) that keeps everything, then torch.utils.checkpoint over
segments of 1, 2, 4, 6 and 12 blocks, then torch.autograd.graph.save_on_cpu, which on the processor copies what is kept and so
spares none of it. A line of JSON for each: the fastest of the repetitions' seconds, taken in turns, and the bytes that a step has at
its most beyond what was there before it, from the profiler's record of the allocator; both also as shares of those of the step that
keeps everything. Gradients of parameters are let go before each step, so they count in it on all sides.
"""
import argparse
import contextlib
import json
import os
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
    from torch.utils.checkpoint import checkpoint
except ImportError:
    sys.exit("torch_recompute.py: no torch; pip install torch")


class Convolution(nn.Module):
    def __init__(self, before):
        super().__init__()
        self.convolution = nn.Conv2d(before, 4, 3, padding=1)

    def forward(self, x):
        return F.relu(self.convolution(x), inplace=True)


class ResidualBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(4)
        self.convolution = nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x):
        return x + self.convolution(F.relu(self.norm(x), inplace=True))


class Recurrent(nn.Module):
    def __init__(self, before):
        super().__init__()
        self.lstm = nn.LSTM(before, 16, batch_first=True)

    def forward(self, x):
        return self.lstm(x)[0]


class TransformerBlock(nn.Module):
    """As nn/layers/transformer_block.h, two heads, and the dropout behind it."""

    def __init__(self, width=16):
        super().__init__()
        self.block = nn.TransformerEncoderLayer(width, 2, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)

    def forward(self, x):
        return F.dropout(self.block(x), 0.1, self.training)


class Deep(nn.Module):
    """nn/testing/deep_networks.cc."""

    def __init__(self, name, depth):
        super().__init__()
        self.name = name
        self.stem = nn.Identity()
        if name == "convolutions":
            self.blocks = nn.ModuleList(Convolution(1 if i == 0 else 4) for i in range(depth))
        elif name == "residual":
            self.stem = nn.Conv2d(1, 4, 3, padding=1)
            self.blocks = nn.ModuleList(ResidualBlock() for _ in range(depth))
        elif name == "lstm":
            self.blocks = nn.ModuleList(Recurrent(28 if i == 0 else 16) for i in range(depth))
        else:
            self.stem = nn.Linear(28, 16)
            self.position = nn.Parameter(torch.zeros(28, 16))
            self.blocks = nn.ModuleList(TransformerBlock() for _ in range(depth))
        self.out = nn.Linear(16 if name in ("lstm", "transformer") else 4, 10)

    def forward(self, x, segment):
        if self.name in ("lstm", "transformer"):
            x = x.squeeze(1)
        x = self.stem(x)
        if self.name == "transformer":
            x = x + self.position
        if segment == 0:
            for block in self.blocks:
                x = block(x)
        else:
            for begin in range(0, len(self.blocks), segment):
                run = nn.Sequential(*self.blocks[begin : begin + segment])
                x = checkpoint(run, x, use_reentrant=False)
        # Images as (batch, channels, rows, columns), sequences as (batch, steps, numbers).
        return self.out(x.mean(dim=1) if x.dim() == 3 else x.mean(dim=(2, 3)))


def step(network, optimizer, x, labels, segment, on_cpu):
    optimizer.zero_grad(set_to_none=True)
    hooks = torch.autograd.graph.save_on_cpu() if on_cpu else contextlib.nullcontext()
    with hooks:
        loss = F.cross_entropy(network(x, segment), labels)
    loss.backward()
    optimizer.step()


def peak_of(run):
    """Bytes that the allocator gave at the most beyond those before."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        run()
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    events.sort(key=lambda e: e.start_ns())
    held = most = 0
    for event in events:
        held += event.nbytes()
        most = max(most, held)
    return most


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--networks", default="convolutions,residual,lstm,transformer")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--depth", type=int, default=24)
    parser.add_argument("--repetitions", type=int, default=15)
    options = parser.parse_args()
    sides = [("keep", 0, False)]
    sides += [(f"checkpoint of {n}", n, False) for n in (1, 2, 4, 6, 12) if n <= options.depth]
    sides.append(("save_on_cpu", 0, True))
    for name in options.networks.split(","):
        torch.manual_seed(3)
        network = Deep(name, options.depth)
        optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
        x = torch.rand(options.batch, 1, 28, 28)
        labels = torch.randint(10, (options.batch,))

        def run(side):
            step(network, optimizer, x, labels, side[1], side[2])

        found = {}
        for side in sides:
            run(side)  # what is made with the first step

            def again(side=side):
                run(side)

            optimizer.zero_grad(set_to_none=True)
            found[side[0]] = [float("inf"), peak_of(again)]
        for _ in range(options.repetitions):
            for side in sides:
                begin = time.perf_counter()
                run(side)
                found[side[0]][0] = min(found[side[0]][0], time.perf_counter() - begin)
        seconds, most = found["keep"]
        for side, (its_seconds, its_most) in found.items():
            print(
                json.dumps(
                    {
                        "network": name,
                        "side": side,
                        "seconds": round(its_seconds, 5),
                        "times": round(its_seconds / seconds, 2),
                        "bytes": its_most,
                        "share": round(its_most / most, 2),
                        "torch": torch.__version__,
                    }
                ),
                flush=True,
            )


if __name__ == "__main__":
    main()
