#!/usr/bin/env python3
"""PyTorch's times of the operators of //backends/cpu:peers_benchmark, under the same names.

    pip install torch
    tools/benchmarks/torch_operators.py [--against FILE] [--threads=N] [--device=cuda]

One thread (of N, TIDEPOOL_PEERS_THREADS=N is the benchmark's), f32 where nothing else is said; images are channels_last, as ours are NHWC. Prints "name
microseconds", the first decile of 60 repetitions of about 3 ms each. FILE: what the benchmark printed with
--benchmark_format=json; then its time and the ratio stand beside each (above 1: PyTorch takes longer). With a device the
operators are those of //backends/cuda:peers_benchmark, and times are the device's, by events: the median of 20 batches.
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


def median_on_device(call):
    """Microseconds of one call, of the device's own clock."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    times = []
    for batch in range(23):
        begin.record()
        for _ in range(10):
            call()
        end.record()
        end.synchronize()
        if batch >= 3:
            times.append(begin.elapsed_time(end) / 10)
    return statistics.median(times) * 1e3


def values(*shape, dtype=torch.float32, device="cpu"):
    return (torch.rand(*shape, device=device) * 2 - 1).to(dtype)


def device_operators(device):
    def random(*shape, dtype=torch.float32):
        return values(*shape, dtype=dtype, device=device)

    x, y, row, small = random(4096, 4096), random(4096, 4096), random(4096), random(64, 64)
    half, last = x.half(), torch.channels_last
    image = random(64, 64, 64, 64).to(memory_format=last)
    yield "copy", x.clone
    yield "add", lambda: x + y
    yield "add_small", lambda: small + small
    yield "add_row", lambda: x + row
    yield "add_transposed", lambda: x + y.t()
    yield "copy_transposed", lambda: x.t().contiguous()
    yield "copy_transposed_f16", lambda: half.t().contiguous()
    yield "nhwc_to_nchw", image.contiguous
    yield "cast_f16", x.half
    yield "tanh", lambda: torch.tanh(x)
    yield "gelu", lambda: F.gelu(x)
    yield "gelu_f16", lambda: F.gelu(half)
    yield "random_uniform", lambda: torch.rand(4096, 4096, device=device)
    yield "random_normal", lambda: torch.randn(4096, 4096, device=device)
    yield "dropout", lambda: F.dropout(x, 0.5)

    flat, rows = random(1 << 22), random(4096, 1000)
    yield "sum", x.sum
    yield "sum_rows", lambda: x.sum(1)
    yield "sum_columns", lambda: x.sum(0)
    yield "variance_columns", lambda: x.var(0)
    yield "max_rows", lambda: x.amax(1)
    yield "argmax_rows", lambda: x.argmax(1)
    yield "sort_flat", lambda: torch.sort(flat)
    yield "sort_rows", lambda: torch.sort(rows, 1)
    yield "argsort_rows", lambda: torch.argsort(rows, 1)
    yield "cumsum_flat", lambda: torch.cumsum(flat, 0)
    yield "cumsum_rows", lambda: torch.cumsum(x, 1)
    table, indices = random(50000, 512), torch.randint(0, 50000, (16384,), device=device)
    updates, sums = random(16384, 512), torch.zeros(50000, 512, device=device)
    yield "gather_rows", lambda: table.index_select(0, indices)
    yield "scatter_add_rows", lambda: sums.index_add_(0, indices, updates)
    few = indices % 1000
    yield "one_hot", lambda: torch.zeros(16384, 1000, device=device).scatter_(1, few[:, None], 1)
    yield "random_permutation", lambda: torch.randperm(1 << 20, device=device)

    logits, scores, labels = random(16384, 1000), random(65536, 64), torch.randint(0, 1000, (16384,), device=device)
    softmax = torch.softmax(logits, 1)
    yield "softmax_short", lambda: torch.softmax(scores, 1)
    yield "softmax", lambda: torch.softmax(logits, 1)
    yield "softmax_grad", lambda: torch._softmax_backward_data(logits, softmax, 1, torch.float32)
    yield "cross_entropy", lambda: F.cross_entropy(logits, labels, reduction="none")
    tokens, one, zero = random(16384, 1024), torch.ones(1024, device=device), torch.zeros(1024, device=device)
    tokens16, one16, zero16 = tokens.bfloat16(), one.bfloat16(), zero.bfloat16()
    yield "layer_norm", lambda: F.layer_norm(tokens, (1024,), one, zero)
    yield "layer_norm_bf16", lambda: F.layer_norm(tokens16, (1024,), one16, zero16)
    layer = torch.native_layer_norm(tokens, (1024,), one, zero, 1e-5)
    yield "layer_norm_grad", lambda: torch.ops.aten.native_layer_norm_backward(
        tokens, tokens, (1024,), layer[1], layer[2], one, zero, [True, True, True])
    yield "rms_norm", lambda: F.rms_norm(tokens, (1024,), one)
    one64, zero64 = torch.ones(64, device=device), torch.zeros(64, device=device)
    yield "group_norm", lambda: F.group_norm(image, 8, one64, zero64)
    yield "batch_norm", lambda: F.batch_norm(image, None, None, one64, zero64, training=True)
    batch = torch.native_batch_norm(image, one64, zero64, None, None, True, 0.1, 1e-5)
    yield "batch_norm_grad", lambda: torch.ops.aten.native_batch_norm_backward(
        image, image, one64, None, None, batch[1], batch[2], True, 1e-5, [True, True, True])
    pooled, places = F.max_pool2d(image, 2, return_indices=True)
    yield "max_pool", lambda: F.max_pool2d(image, 2)
    yield "max_pool_grad", lambda: torch.ops.aten.max_pool2d_with_indices_backward(
        pooled, image, [2, 2], [2, 2], [0, 0], [1, 1], False, places)
    yield "global_average", lambda: F.adaptive_avg_pool2d(image, 1)

    for name, dtype in (("matmul", torch.float32), ("matmul_bf16", torch.bfloat16)):
        a, b = random(4096, 4096, dtype=dtype), random(4096, 4096, dtype=dtype)
        yield name, lambda a=a, b=b: a @ b
    q, k = random(512, 128, 64), random(512, 128, 64)
    yield "matmul_batch", lambda: q @ k.transpose(1, 2)
    picture = random(64, 64, 56, 56).to(memory_format=last)
    filters = random(64, 64, 3, 3).to(memory_format=last)
    picture16, filters16 = picture.half(), filters.half()
    yield "conv_3x3", lambda: F.conv2d(picture, filters, padding=1)
    yield "conv_3x3_f16", lambda: F.conv2d(picture16, filters16, padding=1)
    heads = random(8, 16, 1024, 64)
    heads16 = heads.bfloat16()
    yield "attention", lambda: F.scaled_dot_product_attention(heads, heads, heads)
    yield "attention_bf16", lambda: F.scaled_dot_product_attention(heads16, heads16, heads16)
    for name, dtype in (("attention_grad", torch.float32), ("attention_grad_bf16", torch.bfloat16)):
        with torch.enable_grad(), torch.inference_mode(False):
            watched = [
                torch.rand(8, 16, 1024, 64, device=device, dtype=dtype, requires_grad=True)
                for _ in range(3)
            ]
            attended = F.scaled_dot_product_attention(*watched)
            gradient = torch.rand_like(attended)

        def attention_grad(attended=attended, watched=watched, gradient=gradient):
            with torch.enable_grad():
                torch.autograd.grad(attended, watched, gradient, retain_graph=True)

        yield name, attention_grad


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
    tokens, within = values(512, 768), values(512, 3072)
    wide, narrow = values(3072, 768), values(768, 3072)
    yield "matmul_up", lambda: F.linear(tokens, wide)
    yield "matmul_down", lambda: F.linear(within, narrow)
    heads = values(2, 512, 8, 64)
    yield "einsum", lambda: torch.einsum("bqhd,bkhd->bhqk", heads, heads)
    small = values(8, 64, 28, 28).to(memory_format=last)
    filters = values(64, 64, 3, 3).to(memory_format=last)
    yield "conv_3x3", lambda: F.conv2d(small, filters, padding=1)
    each = values(64, 1, 3, 3).to(memory_format=last)
    yield "conv_depthwise", lambda: F.conv2d(small, each, padding=1, groups=64)
    series, window = values(16, 64, 1024), values(64, 64, 5)  # there is no other layout
    yield "conv_1d", lambda: F.conv1d(series, window, padding=2)
    deep = torch.channels_last_3d
    volume, block = values(2, 32, 8, 28, 28).to(memory_format=deep), values(32, 32, 3, 3, 3).to(memory_format=deep)
    yield "conv_3d", lambda: F.conv3d(volume, block, padding=1)
    tiny, spread = values(8, 64, 14, 14).to(memory_format=last), values(64, 32, 4, 4).to(memory_format=last)
    yield "conv_transposed", lambda: F.conv_transpose2d(tiny, spread, stride=2, padding=1)
    yield "resize", lambda: F.interpolate(small, size=(56, 56), mode="bilinear")


def ours(path):
    """First deciles in microseconds, by name."""
    with open(path, encoding="utf-8") as file:
        runs = json.load(file)["benchmarks"]
    return {run["run_name"].split("/")[0]: run["real_time"] for run in runs
            if run.get("aggregate_name", "decile") == "decile" and "real_time" in run}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--against", metavar="FILE")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    known = ours(arguments.against) if arguments.against else {}
    torch.set_num_threads(arguments.threads)
    on_host = arguments.device == "cpu"
    where = torch.backends.cpu.get_cpu_capability() if on_host else torch.cuda.get_device_name()
    print(f"# torch {torch.__version__}, {where}")
    with torch.inference_mode():
        for name, call in operators() if on_host else device_operators(arguments.device):
            line = f"{name} {first_decile(call) if on_host else median_on_device(call):.1f}"
            if name in known:
                theirs = float(line.split()[1])
                line += f" {known[name]:.1f} {theirs / known[name]:.2f}"
            print(line, flush=True)


if __name__ == "__main__":
    main()
