#!/usr/bin/env python3
"""Compares each layer with PyTorch's equivalent on the same weights and inputs.

    compare_with_torch.py EXPORT_LAYERS     the program of //nn/layers/testing:export_layers

Prints the largest difference of each case; fails when one is larger than 1e-5 of the largest output (at least 1). Without PyTorch it
says so and succeeds. Where Python's safetensors can be imported it reads the files as well.
"""

import json
import os
import struct
import subprocess
import sys
import tempfile

try:
    import torch
    from torch import nn
    import torch.nn.functional as F
except ImportError as error:
    print(f"skipped: PyTorch cannot be imported: {error}")
    sys.exit(0)

try:
    from safetensors.torch import load_file
except ImportError:
    load_file = None

TOLERANCE = 1e-5
DTYPES = {"F32": torch.float32, "I64": torch.int64}


def read_safetensors(path):
    with open(path, "rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
        data = bytearray(file.read())
    tensors = {}
    for name, info in header.items():
        if name == "__metadata__":
            continue
        begin, end = info["data_offsets"]
        flat = torch.frombuffer(data[begin:end], dtype=DTYPES[info["dtype"]])
        tensors[name] = flat.reshape(info["shape"])
    if load_file is not None:
        theirs = load_file(path)
        assert theirs.keys() == tensors.keys(), f"{path}: safetensors finds {sorted(theirs)}"
        for name, tensor in tensors.items():
            assert theirs[name].dtype == tensor.dtype and torch.equal(theirs[name], tensor), f"{path}: {name} by safetensors"
    return tensors


def channels_first(x):
    return x.movedim(-1, 1)


def channels_last(x):
    return x.movedim(1, -1)


def activate(name, x):
    functions = {
        "identity": lambda v: v,
        "relu": F.relu,
        "tanh": torch.tanh,
        "gelu": F.gelu,
        "swish": F.silu,
    }
    return functions[name](x)


def pads_of(f, axes):
    return [(f["padding"][2 * i], f["padding"][2 * i + 1]) for i in range(axes)]


def pad_first(x, pads, value=0.0):
    """Of [batch, channels, axes...]: F.pad counts from the last axis."""
    flat = [n for before_behind in reversed(pads) for n in before_behind]
    return F.pad(x, flat, value=value)


def windows(f, name, axes):
    sizes = f[name]
    return list(sizes) if len(sizes) == axes else list(sizes) * axes


def convolution(f, t, axes):
    x = pad_first(channels_first(t["input.0"]), pads_of(f, axes))
    groups = f.get("groups", t["input.0"].shape[-1])  # depthwise
    function = [F.conv1d, F.conv2d, F.conv3d][axes - 1]
    z = function(x, t["filter"].movedim(-1, 1), t.get("bias"), stride=windows(f, "stride", axes),
                 dilation=windows(f, "dilation", axes), groups=groups)
    return activate(f["activation"], channels_last(z))


def transposed(f, t, axes):
    function = [F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d][axes - 1]
    pads = pads_of(f, axes)
    assert all(before == behind for before, behind in pads)
    z = function(channels_first(t["input.0"]), t["filter"].movedim(-1, 1), t.get("bias"), stride=windows(f, "stride", axes),
                 padding=[before for before, _ in pads], output_padding=windows(f, "output_padding", axes),
                 groups=f["groups"], dilation=windows(f, "dilation", axes))
    return activate(f["activation"], channels_last(z))


def pooling(f, t, axes, kind):
    kernel = windows(f, "kernel", axes)
    stride = [s or k for s, k in zip(windows(f, "stride", axes), kernel)]
    x = channels_first(t["input.0"])
    pads = pads_of(f, axes)
    if kind == "max":
        z = [F.max_pool1d, F.max_pool2d, F.max_pool3d][axes - 1](pad_first(x, pads, -float("inf")), kernel, stride)
    else:
        function = [F.avg_pool1d, F.avg_pool2d, F.avg_pool3d][axes - 1]
        z = function(pad_first(x, pads), kernel, stride)
        if not f["count_padding"]:
            z = z / function(pad_first(torch.ones_like(x), pads), kernel, stride)
    return channels_last(z)


def recurrent_module(kind, f, t, prefix=""):
    w = t[prefix + "input_weight"]
    module = {"lstm": nn.LSTM, "gru": nn.GRU}.get(kind)
    if module is not None:
        cell = module(w.shape[1], f["units"], batch_first=True)
    else:
        cell = nn.RNN(w.shape[1], f["units"], batch_first=True, nonlinearity="relu" if f["relu"] else "tanh")
    with torch.no_grad():
        cell.weight_ih_l0.copy_(w)
        cell.weight_hh_l0.copy_(t[prefix + "recurrent_weight"])
        cell.bias_ih_l0.copy_(t[prefix + "bias"])
        cell.bias_hh_l0.copy_(t.get(prefix + "recurrent_bias", torch.zeros_like(t[prefix + "bias"])))
    return cell


def reverse_sequences(x, lengths):
    z = x.clone()
    for b, length in enumerate(lengths):
        z[b, :length] = x[b, :length].flip(0)
    return z


def recurrent(kind, f, t, prefix="", turned=False):
    x = t["input.0"]
    lengths = [int(n) for n in t["mask"].sum(1)] if "mask" in t else [x.shape[1]] * x.shape[0]
    cell = recurrent_module(kind, f, t, prefix)
    reverse = f["reversed"] != turned
    if reverse:
        x = reverse_sequences(x, lengths)
    units = f["units"]
    z = torch.zeros(x.shape[0], x.shape[1], units)
    last = torch.zeros(x.shape[0], units)
    for b, length in enumerate(lengths):
        if length == 0:
            continue
        out, _ = cell(x[b : b + 1, :length])
        z[b, :length] = out[0]
        last[b] = out[0, -1]
    if f["output"] == "last":
        return last
    return reverse_sequences(z, lengths) if reverse else z


def bidirectional(f, t):
    inner = f["layer"]
    there = recurrent(inner["kind"], inner, t, "forward.")
    back = recurrent(inner["kind"], inner, t, "backward.", turned=True)
    if f["merge"] == "concat":
        return torch.cat([there, back], -1)
    return there + back if f["merge"] == "add" else (there + back) / 2


def attention(query, key, value, heads, t, out, causal=False, seen=None):
    def split(x):
        return x.reshape(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)

    mask = None
    if seen is not None:
        mask = seen[:, None, None, :].bool()
    if causal:
        lower = torch.ones(query.shape[1], key.shape[1]).tril().bool()
        mask = lower if mask is None else mask & lower
    z = F.scaled_dot_product_attention(split(query), split(key), split(value), attn_mask=mask)
    z = torch.nan_to_num(z, nan=0.0)  # queries that see nothing
    z = z.transpose(1, 2).reshape(query.shape[0], query.shape[1], -1)
    return F.linear(z, t[out + "_weight"], t[out + "_bias"])


def self_attention(f, t, x, prefix=""):
    width = x.shape[-1]
    together = F.linear(x, t[prefix + "in_weight"], t[prefix + "in_bias"])
    q, k, v = together.split(width, -1)
    return attention(q, k, v, f["heads"], t, prefix + "out", f["causal"], t.get("mask"))


def zero_masked(t, x):
    return x * t["mask"][..., None] if "mask" in t else x


def transformer_block(f, t):
    x = zero_masked(t, t["input.0"])
    norm = lambda name, v: F.layer_norm(v, v.shape[-1:], t[name + ".scale"], t[name + ".shift"], f["epsilon"])
    x = x + self_attention(f, t, zero_masked(t, norm("attention_norm", x)), "attention.")
    h = F.linear(zero_masked(t, norm("hidden_norm", x)), t["hidden.weight"], t["hidden.bias"])
    h = zero_masked(t, activate(f["activation"], h))
    return x + F.linear(h, t["out.weight"], t["out.bias"])


def cross_attention(f, t):
    inputs = [t[f"input.{i}"] for i in range(4) if f"input.{i}" in t]
    seen = inputs.pop() if f["key_mask"] else None
    q = F.linear(inputs[0], t["query_weight"], t["query_bias"])
    k = F.linear(inputs[1], t["key_weight"], t["key_bias"])
    v = F.linear(inputs[-1], t["value_weight"], t["value_bias"])
    return attention(q, k, v, f["heads"], t, "out", f["causal"], seen)


def global_pool(f, t):
    x = t["input.0"]
    kind = f["pooling"]
    if "mask" not in t:
        axes = tuple(range(1, x.dim() - 1))
        return {"max": lambda: x.amax(axes), "average": lambda: x.mean(axes), "sum": lambda: x.sum(axes)}[kind]()
    rows = []
    for b, length in enumerate(int(n) for n in t["mask"].sum(1)):
        steps = x[b, :length]
        if length == 0:
            rows.append(torch.zeros(x.shape[-1]))
        else:
            rows.append({"max": lambda s: s.amax(0), "average": lambda s: s.mean(0), "sum": lambda s: s.sum(0)}[kind](steps))
    return torch.stack(rows)


def sinusoidal(f, t):
    x = t["input.0"]
    length, width = x.shape[1:]
    place = torch.arange(length, dtype=torch.float64)[:, None]
    rate = f["period"] ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    table = torch.zeros(length, width, dtype=torch.float64)
    table[:, 0::2] = torch.sin(place * rate)
    table[:, 1::2] = torch.cos(place * rate)[:, : width // 2]
    return x + table.float()


def crop(f, t):
    x = t["input.0"]
    for i in range(len(f["cropping"]) // 2):
        x = x.narrow(i + 1, f["cropping"][2 * i], x.shape[i + 1] - f["cropping"][2 * i] - f["cropping"][2 * i + 1])
    return x


def upsample(f, t):
    x = t["input.0"]
    for axis, factor in enumerate(f["factors"]):
        x = x.repeat_interleave(factor, axis + 1)
    return x


def resize(f, t):
    mode = {("linear", 1): "linear", ("linear", 2): "bilinear", ("cubic", 2): "bicubic", ("nearest", 1): "nearest",
            ("nearest", 2): "nearest", ("linear", 3): "trilinear", ("nearest", 3): "nearest"}[f["mode"], len(f["sizes"])]
    corners = None if f["mode"] == "nearest" else f["align_corners"]
    return channels_last(F.interpolate(channels_first(t["input.0"]), f["sizes"], mode=mode, align_corners=corners))


def merge(f, t):
    inputs = [t[f"input.{i}"] for i in range(8) if f"input.{i}" in t]
    if f["merge"] == "concat":
        return torch.cat(inputs, f["axis"] + 1 if f["axis"] >= 0 else -1)
    z = inputs[0]
    for x in inputs[1:]:
        z = {"subtract": z - x, "multiply": z * x, "max": torch.maximum(z, x)}.get(f["merge"], z + x)
    return z / len(inputs) if f["merge"] == "average" else z


def dense(f, t, x=None):
    x = t["input.0"] if x is None else x
    if not f["last_axis"] and x.dim() > 2:
        x = x.flatten(1)
    return activate(f["activation"], F.linear(x, t["weight"], t.get("bias")))


def embedding(f, t):
    z = F.embedding(t["input.0"], t["table"])
    return z * (t["input.0"] != f["mask_index"])[..., None] if f["mask_index"] >= 0 else z


def group_norm(f, t):
    x = channels_first(t["input.0"])
    return channels_last(F.group_norm(x, f["groups"], t["scale"], t["shift"], f["epsilon"]))


LAYERS = {
    "activation": lambda f, t: activate(f["function"], t["input.0"]),
    "average_pool1d": lambda f, t: pooling(f, t, 1, "average"),
    "average_pool2d": lambda f, t: pooling(f, t, 2, "average"),
    "average_pool3d": lambda f, t: pooling(f, t, 3, "average"),
    "batch_norm": lambda f, t: F.batch_norm(
        channels_first(t["input.0"]), t["running_mean"], t["running_variance"], t["scale"], t["shift"],
        eps=f["epsilon"]).movedim(1, -1),
    "bidirectional": bidirectional,
    "conv1d": lambda f, t: convolution(f, t, 1),
    "conv1d_transpose": lambda f, t: transposed(f, t, 1),
    "conv2d": lambda f, t: convolution(f, t, 2),
    "conv2d_transpose": lambda f, t: transposed(f, t, 2),
    "conv3d": lambda f, t: convolution(f, t, 3),
    "conv3d_transpose": lambda f, t: transposed(f, t, 3),
    "cropping": crop,
    "cross_attention": cross_attention,
    "dense": dense,
    "depthwise_conv2d": lambda f, t: convolution(f, t, 2),
    "dropout": lambda f, t: t["input.0"],
    "embedding": embedding,
    "flatten": lambda f, t: t["input.0"].flatten(1),
    "global_pool": global_pool,
    "group_norm": group_norm,
    "gru": lambda f, t: recurrent("gru", f, t),
    "l2_norm": lambda f, t: t["input.0"] / (t["input.0"].square().sum(-1, keepdim=True) + f["epsilon"]).sqrt(),
    "last_time_step": lambda f, t: torch.stack(
        [x[int(n) - 1] if n > 0 else torch.zeros(x.shape[1:]) for x, n in
         zip(t["input.0"], t["mask"].sum(1) if "mask" in t else [t["input.0"].shape[1]] * len(t["input.0"]))]),
    "layer_norm": lambda f, t: F.layer_norm(t["input.0"], t["input.0"].shape[-1:], t["scale"], t["shift"], f["epsilon"]),
    "lstm": lambda f, t: recurrent("lstm", f, t),
    "max_pool1d": lambda f, t: pooling(f, t, 1, "max"),
    "max_pool2d": lambda f, t: channels_last(F.max_pool2d(channels_first(t["input.0"]), f["kernel"], f["stride"])),
    "max_pool3d": lambda f, t: pooling(f, t, 3, "max"),
    "merge": merge,
    "multi_head_attention": lambda f, t: self_attention(f, t, zero_masked(t, t["input.0"])),
    "permute": lambda f, t: t["input.0"].permute([0] + [a + 1 for a in f["axes"]]),
    "position_embedding": lambda f, t: t["input.0"] + t["table"],
    "prelu": lambda f, t: channels_last(F.prelu(channels_first(t["input.0"]), t["alpha"])),
    "repeat_vector": lambda f, t: t["input.0"][:, None].expand(-1, f["count"], -1),
    "reshape": lambda f, t: t["input.0"].reshape([len(t["input.0"])] + f["shape"]),
    "resize": resize,
    "reverse": lambda f, t: t["input.0"].flip(1),
    "rms_norm": lambda f, t: F.rms_norm(t["input.0"], t["input.0"].shape[-1:], t["scale"], f["epsilon"]),
    "scaling": lambda f, t: t["input.0"] * t["scale"] + t.get("shift", 0),
    "simple_rnn": lambda f, t: recurrent("simple_rnn", f, t),
    "sinusoidal_positions": sinusoidal,
    "time_distributed": lambda f, t: dense(dict(f["layer"], last_axis=True), t),
    "transformer_block": transformer_block,
    "upsampling": upsample,
    "zero_padding": lambda f, t: channels_last(pad_first(channels_first(t["input.0"]), pads_of(f, len(f["padding"]) // 2))),
}
# With masks of sequences: those that have no meaning of masks in PyTorch are compared where steps are.
MASKED = {"lstm", "gru", "simple_rnn", "bidirectional", "global_pool", "last_time_step", "multi_head_attention", "transformer_block",
          "dense", "layer_norm", "rms_norm"}


def main():
    worst, failed = 0.0, []
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.argv[1], folder], check=True)
        for name in sorted(os.listdir(folder)):
            if not name.endswith(".json"):
                continue
            case = name[: -len(".json")]
            with open(os.path.join(folder, name)) as file:
                fields = json.load(file)["layers"][0]
            tensors = read_safetensors(os.path.join(folder, case + ".safetensors"))
            if "mask" in tensors and fields["kind"] not in MASKED:
                continue
            if fields["kind"] not in LAYERS:
                failed.append(case)
                print(f"{case:28s} no equivalent is known for kind {fields['kind']}")
                continue
            with torch.no_grad():
                expected = LAYERS[fields["kind"]](fields, tensors)
            found = tensors["output"]
            if "mask" in tensors and found.dim() >= 2 and found.shape[:2] == tensors["mask"].shape:
                here = tensors["mask"].reshape(list(tensors["mask"].shape) + [1] * (found.dim() - 2)).bool()
                found, expected = torch.where(here, found, 0.0), torch.where(here, expected, 0.0)
            if found.shape != expected.shape:
                failed.append(case)
                print(f"{case:28s} shape {list(found.shape)}, PyTorch's is {list(expected.shape)}")
                continue
            difference = float((found - expected).abs().max()) / max(1.0, float(expected.abs().max()))
            worst = max(worst, difference)
            print(f"{case:28s} {fields['kind']:24s} {difference:.1e}")
            if not difference <= TOLERANCE:
                failed.append(case)
    print(f"PyTorch {torch.__version__}: largest difference {worst:.1e}, {len(failed)} failed {' '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
