"""Cases of activations, softmax, pooling, batch normalisation, losses, cells and plain updates, by their definitions in double;
PyTorch judges them instead where it can be imported.
"""

import math

import numpy as np

from numpy_judge_networks import close, torch

F = torch and torch.nn.functional

FLOATS = ("f4", "f8", "f2")
ACTIVATIONS = ("relu", "leaky_relu", "elu", "gelu", "gelu_tanh", "swish", "mish", "softplus", "sigmoid", "erf", "rsqrt")


def make(m):
    for dtype in FLOATS:
        for _ in range(4):
            for op in ACTIVATIONS:
                x = np.asarray(m.rng.normal(size=m.tools.shape_of(m.rng)) * 3).astype(dtype)
                alpha = {"alpha": float(m.rng.choice([0.01, 0.25, 1]))} if op in ("leaky_relu", "elu") else {}
                m.add(op, [np.abs(x) + np.asarray(0.5, dtype) if op == "rsqrt" else x], **alpha, **close(dtype))
            m.add("parametric_relu", [drawn(m, dtype, shape) for shape in m.tools.broadcasting_pair(m.rng)], **close(dtype))
            shape = tuple(max(1, n) for n in m.tools.shape_of(m.rng, 1, 4))
            for op in ("softmax", "log_softmax"):
                m.add(op, [drawn(m, dtype, shape, 5)], axis=m.axis_of(shape), **close(dtype, 5))
            make_pools(m, dtype)
            make_losses(m, dtype)
            make_cells(m, dtype)
            if dtype != "f2":
                make_updates(m, dtype)


def drawn(m, dtype, shape, size=1):
    return np.asarray(m.rng.normal(size=shape) * size).astype(dtype)


def make_pools(m, dtype):
    kernel = [int(n) for n in m.rng.integers(1, 4, 2)]
    pad = [int(m.rng.integers(0, k // 2 + 1)) for k in kernel]
    size = [k + int(m.rng.integers(0, 5)) for k in kernel]
    x = drawn(m, dtype, [int(m.rng.integers(0, 3))] + size + [int(m.rng.integers(1, 5))])
    about = dict(kernel=kernel, stride=[int(n) for n in m.rng.integers(1, 4, 2)], pad=pad)
    m.add("max_pool", [x], **about)
    m.add("average_pool", [x], counted=bool(m.chance(0.5)), **about, **close(dtype))
    m.add("global_max_pool", [x])
    m.add("global_average_pool", [x], **close(dtype))
    channels = [drawn(m, dtype, x.shape[-1:]) for _ in range(2)]
    if x.size:
        m.add("batch_norm", [x] + channels, **close(dtype, 20))
    mean = drawn(m, "f8" if dtype == "f8" else "f4", x.shape[-1:])
    m.add("batch_norm_inference", [x] + channels + [mean, np.abs(mean) + np.asarray(0.5, mean.dtype)], **close(dtype, 5))


def make_losses(m, dtype):
    batch, classes = (int(n) for n in m.rng.integers(1, 9, 2))
    logits = drawn(m, dtype, (batch, classes), 3)
    targets = np.asarray(m.rng.random((batch, classes))).astype(dtype)
    m.add("softmax_cross_entropy", [logits, m.rng.integers(0, classes, batch).astype("i8")], **close(dtype, 5))
    m.add("dense_cross_entropy", [logits, targets], **close(dtype, 20))
    m.add("mean_squared_error", [logits, targets], **close(dtype, 5))
    m.add("binary_cross_entropy", [logits, targets], **close(dtype, 5))


def make_cells(m, dtype):
    batch, inputs, hidden = (int(n) for n in m.rng.integers(1, 6, 3))
    x, h, c = (drawn(m, dtype, (batch, n)) for n in (inputs, hidden, hidden))
    for op, gates, state in (("lstm", 4, [h, c]), ("gru", 3, [h])):
        w, r = (drawn(m, dtype, (gates * hidden, n), 0.5) for n in (inputs, hidden))
        biases = [drawn(m, dtype, (gates * hidden,), 0.5) for _ in range(1 if op == "lstm" else 2)]
        m.add(op + "_step", [x] + state + [w, r] + biases, **close(dtype, 20))
        sums = [drawn(m, dtype, (batch, gates * hidden)) for _ in range(1 if op == "lstm" else 2)]
        m.add(op + "_cell", sums + [c], **close(dtype, 5))


def make_updates(m, dtype):
    shape = m.tools.shape_of(m.rng, 1, 3)
    p, g, v = (drawn(m, dtype, shape) for _ in range(3))
    decay = float(m.rng.choice([0, 0.3]))
    m.add("sgd_update", [p, g], decay=decay, **close(dtype))
    m.add("nesterovs_update", [p, g, v], decay=decay, **close(dtype))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softplus(x):
    return np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0)


def erf(x):
    return np.vectorize(math.erf, otypes=["f8"])(x)


def log_softmax(x, axis):
    x = x - x.max(axis, keepdims=True)
    return x - np.log(np.exp(x).sum(axis, keepdims=True))


def windows(case, x, outside):
    """[batch, out height, out width, taps, channels] and how many taps are of the image."""
    (kh, kw), (sh, sw), (ph, pw) = case["kernel"], case["stride"], case["pad"]
    padded = np.pad(x, ((0, 0), (ph, ph), (pw, pw), (0, 0)), constant_values=outside)
    real = np.pad(np.ones(x.shape[1:3]), ((ph, ph), (pw, pw)))
    rows, columns = (padded.shape[1] - kh) // sh + 1, (padded.shape[2] - kw) // sw + 1
    taps = [(slice(i, i + sh * (rows - 1) + 1, sh), slice(j, j + sw * (columns - 1) + 1, sw))
            for i in range(kh) for j in range(kw)]
    return np.stack([padded[:, i, j] for i, j in taps], 3), sum(real[i, j] for i, j in taps)


def average_pool(case, x):
    taken, count = windows(case, x, 0)
    return taken.sum(3) / (taken.shape[3] if case["counted"] else count[None, :, :, None])


def batch_norm(x, scale, shift, mean, variance):
    return (x - mean) / np.sqrt(variance + 1e-5) * scale + shift


def lstm_cell(gates, c):
    i, f, g, o = np.split(gates, 4, 1)
    return sigmoid(o) * np.tanh(sigmoid(f) * c + sigmoid(i) * np.tanh(g))


def gru_cell(x, h, state):
    (xr, xz, xn), (hr, hz, hn) = np.split(x, 3, 1), np.split(h, 3, 1)
    z = sigmoid(xz + hz)
    return (1 - z) * np.tanh(xn + sigmoid(xr + hr) * hn) + z * state


def nesterovs(case, p, g, v):
    g = g + case["decay"] * p
    after = 0.9 * v - 0.1 * g
    return p + 0.9 * after - 0.1 * g


WIDE = {
    "relu": lambda c, x: np.maximum(x, 0),
    "leaky_relu": lambda c, x: np.where(x > 0, x, c["alpha"] * x),
    "parametric_relu": lambda c, x, slope: np.where(x > 0, x, slope * x),
    "elu": lambda c, x: np.where(x > 0, x, c["alpha"] * np.expm1(np.minimum(x, 0))),
    "gelu": lambda c, x: x / 2 * (1 + erf(x / np.sqrt(2))),
    "gelu_tanh": lambda c, x: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "swish": lambda c, x: x * sigmoid(x),
    "mish": lambda c, x: x * np.tanh(softplus(x)),
    "softplus": lambda c, x: softplus(x),
    "sigmoid": lambda c, x: sigmoid(x),
    "erf": lambda c, x: erf(x),
    "rsqrt": lambda c, x: 1 / np.sqrt(x),
    "softmax": lambda c, x: np.exp(log_softmax(x, c["axis"])),
    "log_softmax": lambda c, x: log_softmax(x, c["axis"]),
    "max_pool": lambda c, x: windows(c, x, -np.inf)[0].max(3),
    "average_pool": average_pool,
    "global_max_pool": lambda c, x: x.max((1, 2)),
    "global_average_pool": lambda c, x: x.mean((1, 2)),
    "batch_norm": lambda c, x, s, t: batch_norm(x, s, t, x.mean((0, 1, 2)), x.var((0, 1, 2))),
    "batch_norm_inference": lambda c, *a: batch_norm(*a),
    "softmax_cross_entropy": lambda c, x, labels: -log_softmax(x, 1)[np.arange(len(x)), labels.astype(int)],
    "dense_cross_entropy": lambda c, x, t: -(t * log_softmax(x, 1)).sum(1),
    "mean_squared_error": lambda c, x, t: ((x - t)**2).mean(1),
    "binary_cross_entropy": lambda c, x, t: (softplus(x) - x * t).mean(1),
    "lstm_cell": lambda c, gates, state: lstm_cell(gates, state),
    "lstm_step": lambda c, x, h, state, w, r, b: lstm_cell(x @ w.T + h @ r.T + b, state),
    "gru_cell": lambda c, *a: gru_cell(*a),
    "gru_step": lambda c, x, h, w, r, b, d: gru_cell(x @ w.T + b, h @ r.T + d, h),
    "sgd_update": lambda c, p, g: p - 0.01 * (g + c["decay"] * p),
    "nesterovs_update": lambda c, *a: nesterovs(c, *a),
}


def channels_first(x):
    return torch.movedim(x, -1, 1)


def by_torch(case, a):
    """None for operators that it has not, or has in other ways."""
    op = case["op"]
    simple = {"relu": F.relu, "gelu": F.gelu, "swish": F.silu, "mish": F.mish, "sigmoid": torch.sigmoid, "erf": torch.special.erf,
              "softplus": lambda x: F.softplus(x, threshold=99), "rsqrt": torch.rsqrt,
              "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "leaky_relu": lambda x: F.leaky_relu(x, case["alpha"]),
              "elu": lambda x: F.elu(x, case["alpha"]), "softmax": lambda x: F.softmax(x, case["axis"]),
              "log_softmax": lambda x: F.log_softmax(x, case["axis"]),
              "softmax_cross_entropy": lambda x, t: F.cross_entropy(x, t.long(), reduction="none"),
              "mean_squared_error": lambda x, t: F.mse_loss(x, t, reduction="none").mean(1),
              "binary_cross_entropy": lambda x, t: F.binary_cross_entropy_with_logits(x, t, reduction="none").mean(1)}
    if op in simple:
        return simple[op](*a)
    if op in ("max_pool", "average_pool") and a[0].numel():
        more = dict(count_include_pad=case["counted"]) if op == "average_pool" else {}
        pool = F.avg_pool2d if more else F.max_pool2d
        return torch.movedim(pool(channels_first(a[0]), case["kernel"], case["stride"], case["pad"], **more), 1, -1)
    if op == "batch_norm_inference" and a[0].numel():
        return torch.movedim(F.batch_norm(channels_first(a[0]), a[3], a[4], a[1], a[2]), 1, -1)
    if op in ("lstm_step", "gru_step"):
        cell = (torch.nn.LSTMCell if op == "lstm_step" else torch.nn.GRUCell)(a[0].shape[1], a[1].shape[1]).double()
        w, r, b = a[-3:] if op == "lstm_step" else a[-4:-1]
        state = dict(weight_ih=w, weight_hh=r, bias_ih=b, bias_hh=torch.zeros_like(b) if op == "lstm_step" else a[-1])
        cell.load_state_dict(state)
        with torch.no_grad():
            return cell(a[0], (a[1], a[2]))[0] if op == "lstm_step" else cell(a[0], a[1])
    return None


def expected(case, inputs):
    """None for operators that are not made here."""
    op = case["op"]
    if op not in WIDE:
        return None
    wide = [x.astype("f8") for x in inputs]
    told = by_torch(case, [torch.tensor(np.array(x, order="C")) for x in wide]) if torch is not None else None
    return (WIDE[op](case, *wide) if told is None else told.numpy()).astype(inputs[0].dtype)
