#!/usr/bin/env python3
"""PyTorch's times of the operators of //backends/cpu:peers_benchmark, under the same names.

    pip install torch
    tools/benchmarks/torch_operators.py [--against FILE]

One thread, f32 where nothing else is said; images are channels_last, as ours are NHWC. Prints "name
microseconds", the first decile of 60 repetitions of about 3 ms each. FILE: what the benchmark printed with
--benchmark_format=json; then its time and the ratio stand beside each (above 1: PyTorch takes longer).
"""
import argparse
import json
import statistics
import sys
import time

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    sys.exit("torch_operators.py: no torch; pip install torch")

REPETITIONS = 60
SECONDS = 0.003


def first_decile(call):
    """Microseconds of one call."""
    for _ in range(3):
        call()
    start = time.perf_counter()
    call()
    count = max(1, int(SECONDS / max(time.perf_counter() - start, 1e-7)))
    times = []
    for _ in range(REPETITIONS):
        start = time.perf_counter()
        for _ in range(count):
            call()
        times.append((time.perf_counter() - start) / count)
    return statistics.quantiles(times, n=10)[0] * 1e6


def values(*shape, dtype=torch.float32):
    return (torch.rand(*shape) * 2 - 1).to(dtype)


def operators():
    x, y, row = values(1024, 1024), values(1024, 1024), values(1024)
    positive = torch.rand(1024, 1024) * 1.5 + 0.5
    yield "add", lambda: x + y
    yield "add_row", lambda: x + row
    yield "add_transposed", lambda: x + y.t()
    yield "copy_transposed", lambda: x.t().contiguous()
    yield "cast_f16", lambda: x.half()
    yield "exp", lambda: torch.exp(x)
    yield "log", lambda: torch.log(positive)
    yield "tanh", lambda: torch.tanh(x)
    yield "sigmoid", lambda: torch.sigmoid(x)
    yield "gelu", lambda: F.gelu(x)
    yield "random_uniform", lambda: torch.rand(1024, 1024)
    yield "random_normal", lambda: torch.randn(1024, 1024)
    yield "dropout", lambda: F.dropout(x, 0.5)

    rows = values(1024, 1000)
    table, indices = values(50000, 256), torch.randint(0, 50000, (256,))
    yield "sum", lambda: x.sum()
    yield "sum_rows", lambda: x.sum(1)
    yield "sum_columns", lambda: x.sum(0)
    yield "max_rows", lambda: x.amax(1)
    yield "argmax_rows", lambda: x.argmax(1)
    yield "sort_rows", lambda: torch.sort(rows, 1)
    yield "argsort_rows", lambda: torch.argsort(rows, 1)
    yield "cumsum_rows", lambda: torch.cumsum(x, 1)
    yield "gather_rows", lambda: torch.index_select(table, 0, indices)

    attention, logits = values(128, 64, 64), values(1024, 1000)
    softmax, labels = torch.softmax(logits, 1), torch.randint(0, 1000, (1024,))
    yield "softmax_last", lambda: torch.softmax(attention, 2)
    yield "softmax_middle", lambda: torch.softmax(attention, 1)
    yield "log_softmax", lambda: torch.log_softmax(logits, 1)
    yield "softmax_grad", lambda: torch._softmax_backward_data(logits, softmax, 1, torch.float32)
    yield "cross_entropy", lambda: F.cross_entropy(logits, labels, reduction="none")
    tokens, one, zero = values(1024, 768), torch.ones(768), torch.zeros(768)
    yield "layer_norm", lambda: F.layer_norm(tokens, (768,), one, zero)
    layer = torch.native_layer_norm(tokens, (768,), one, zero, 1e-5)
    yield "layer_norm_grad", lambda: torch.ops.aten.native_layer_norm_backward(
        tokens, tokens, (768,), layer[1], layer[2], one, zero, [True, True, True])
    yield "rms_norm", lambda: F.rms_norm(tokens, (768,), one)
    last = torch.channels_last
    image = values(32, 64, 28, 28).to(memory_format=last)
    one64, zero64 = torch.ones(64), torch.zeros(64)
    group = torch.native_group_norm(image, one64, zero64, 32, 64, 784, 8, 1e-5)
    yield "group_norm", lambda: F.group_norm(image, 8, one64, zero64)
    yield "group_norm_grad", lambda: torch.ops.aten.native_group_norm_backward(
        image, image, group[1], group[2], one64, 32, 64, 784, 8, [True, True, True])
    yield "batch_norm", lambda: F.batch_norm(image, None, None, one64, zero64, training=True)
    pooled = values(128, 20, 24, 24).to(memory_format=last)
    deep = values(32, 512, 7, 7).to(memory_format=last)
    yield "max_pool", lambda: F.max_pool2d(pooled, 2)
    yield "global_average", lambda: F.adaptive_avg_pool2d(deep, 1)

    q = values(2, 8, 512, 64)
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    back = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
    whole, part = flash(q, q, q), flash(q, q, q, 0.0, True)
    yield "attention", lambda: F.scaled_dot_product_attention(q, q, q)
    yield "attention_causal", lambda: F.scaled_dot_product_attention(q, q, q, is_causal=True)
    yield "attention_grad", lambda: back(q, q, q, q, whole[0], whole[1], 0.0, False)
    yield "attention_causal_grad", lambda: back(q, q, q, q, part[0], part[1], 0.0, True)
    one_query, cache = values(4, 32, 1, 128), values(4, 8, 1024, 128)
    yield "attention_one_query", lambda: F.scaled_dot_product_attention(one_query, cache, cache, enable_gqa=True)

    a, b = values(512, 512), values(512, 512)
    yield "matmul", lambda: a @ b
    q, k = values(64, 64, 32), values(64, 64, 32)
    yield "matmul_batch", lambda: q @ k.transpose(1, 2)
    ab, bb = a.bfloat16(), b.bfloat16()
    yield "matmul_bf16", lambda: ab @ bb
    ad, bd = a.double(), b.double()
    yield "matmul_f64", lambda: ad @ bd
    small = values(8, 64, 28, 28).to(memory_format=last)
    filters = values(64, 64, 3, 3).to(memory_format=last)
    yield "conv_3x3", lambda: F.conv2d(small, filters, padding=1)
    each = values(64, 1, 3, 3).to(memory_format=last)
    yield "conv_depthwise", lambda: F.conv2d(small, each, padding=1, groups=64)


def ours(path):
    """First deciles in microseconds, by name."""
    with open(path, encoding="utf-8") as file:
        runs = json.load(file)["benchmarks"]
    return {run["run_name"]: run["real_time"] for run in runs if run.get("aggregate_name") == "decile"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--against", metavar="FILE")
    arguments = parser.parse_args()
    known = ours(arguments.against) if arguments.against else {}
    torch.set_num_threads(1)
    print(f"# torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}")
    with torch.inference_mode():
        for name, call in operators():
            line = f"{name} {first_decile(call):.1f}"
            if name in known:
                theirs = float(line.split()[1])
                line += f" {known[name]:.1f} {theirs / known[name]:.2f}"
            print(line, flush=True)


if __name__ == "__main__":
    main()
