"""Cases of linear algebra, attention, normalisation, convolutions, updates and resizing, and what NumPy says of them: by
its own functions, or by their definitions in double. Where PyTorch can be imported it judges those that it has.
"""

import itertools

import numpy as np

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    torch = None

CLOSE = {"f2": (2e-2, 2e-2), "f4": (2e-5, 2e-5), "f8": (1e-12, 1e-12)}
FLOATS = ("f4", "f8", "f2")


def make(m):
    for dtype in ("f4", "f8"):
        for _ in range(25):
            make_linalg(m, dtype)
    for dtype in FLOATS:
        for _ in range(25):
            make_networks(m, dtype)


def close(dtype, factor=1):
    relative, absolute = CLOSE[dtype]
    return dict(relative=relative * factor, absolute=absolute * factor)


def about_one(m, dtype, shape):
    return np.asarray(m.rng.uniform(-1, 1, shape)).astype(dtype)


def regular(m, dtype, lead, n):
    """Matrices whose inverses are about 1."""
    return (about_one(m, dtype, lead + (n, n)) / max(1, n) + np.eye(n)).astype(dtype)


def make_linalg(m, dtype):
    lead = m.tools.shape_of(m.rng, 0, 2)
    n, k = (int(v) for v in m.rng.choice([0, 1, 2, 3, 5, 9, 17], 2))
    x, wide = regular(m, dtype, lead, n), about_one(m, dtype, lead + (n, k))
    for op in ("inverse", "determinant", "log_determinant", "sign_of_determinant"):
        m.add(op, [x], **close(dtype, 5))
    m.add("matrix_power", [x], exponent=int(m.rng.integers(-3, 5)), **close(dtype, 50))
    symmetric = np.matmul(wide, np.swapaxes(wide, -1, -2)).astype(dtype)
    m.add("cholesky", [(symmetric + np.eye(n)).astype(dtype)], **close(dtype, 20))
    m.add("symmetric_eigenvalues", [symmetric], **close(dtype, 50))
    m.add("solve", [x, about_one(m, dtype, m.narrowed(lead) + (n, k))], **close(dtype, 20))
    m.add("solve", [x, about_one(m, dtype, (n,))], **close(dtype, 20))
    if n and k:
        for op in ("singular_values", "pseudo_inverse", "matrix_rank", "norm_fro", "norm_nuc", "norm_2", "norm_1", "norm_inf"):
            # Of full rank for certain: the smallest value is far from where it would count as 0.
            y = wide + np.eye(n, k).astype(dtype) * 4 * max(n, k)
            m.add(op, [np.asarray(y / (4 * max(n, k)), dtype)], **close(dtype, 20))
        m.add("least_squares", [(wide + np.eye(n, k) * 4 * max(n, k)).astype(dtype)[(0,) * len(lead)] if 0 not in lead else np.eye(
            n, k).astype(dtype), about_one(m, dtype, (n, 2))], **close(dtype, 20))


def make_networks(m, dtype):
    batch, key_heads, group, queries, keys = (int(v) for v in m.rng.choice([1, 1, 2, 3, 5], 5))
    width = int(m.rng.choice([1, 4, 8]))
    q = about_one(m, dtype, (batch, key_heads * group, queries, width))
    k, v = (about_one(m, dtype, (batch, key_heads, keys, width)) for _ in range(2))
    m.add("attention", [q, k, v], causal=False, **close(dtype))
    m.add("attention", [q, k, v], causal=True, **close(dtype))
    m.add("attention", [q, k, v, about_one(m, dtype, m.narrowed((key_heads * group, queries, keys)))], causal=False,
          **close(dtype))
    shape = tuple(max(1, n) for n in m.tools.shape_of(m.rng, 2, 4))
    groups = int(m.rng.choice([1, 2, 3]))
    x = about_one(m, dtype, shape[:-1] + (shape[-1] * groups,))
    scale, shift = (about_one(m, dtype, x.shape[-1:]) for _ in range(2))
    m.add("rms_norm", [x, scale], **close(dtype, 5))
    m.add("group_norm", [x, scale, shift], groups=groups, **close(dtype, 5))
    m.add("layer_norm", [x, scale, shift], **close(dtype, 5))
    if dtype != "f2":
        p, g, first, second = (about_one(m, dtype, shape) for _ in range(4))
        m.add("adam_update", [p, g, first, np.abs(second)], decay=float(m.rng.choice([0, 0.3])),
              step=int(m.rng.integers(1, 9)), **close(dtype, 5))
        m.add("adagrad_update", [p, g, np.abs(second)], **close(dtype, 5))
        m.add("rms_prop_update", [p, g, np.abs(second)], decay=float(m.rng.choice([0, 0.3])), **close(dtype, 5))
        make_alignments(m, dtype)
    m.add("absolute_error", [x, about_one(m, dtype, x.shape)], **close(dtype, 5))
    m.add("huber_error", [x, about_one(m, dtype, x.shape)], delta=float(m.rng.uniform(0.1, 1.5)), **close(dtype, 5))
    make_images(m, dtype)


def make_alignments(m, dtype):
    batch, frames, classes, most = (int(m.rng.integers(low, high)) for low, high in ((1, 4), (1, 6), (2, 4), (1, 4)))
    blank = int(m.rng.integers(0, classes))
    x = about_one(m, dtype, (batch, frames, classes)) - 1
    if m.chance(0.5):
        x = (x - np.log(np.exp(x).sum(-1, keepdims=True))).astype(dtype)
    labels = m.rng.integers(0, classes - 1, (batch, most))
    labels += labels >= blank
    lengths = [m.rng.integers(0, n + 1, batch) for n in (frames, most)]
    m.add("ctc_loss", [x, labels.astype("i8")] + [n.astype("i8") for n in lengths], blank=blank, **close(dtype, 5))


def make_images(m, dtype):
    n = [int(v) for v in m.rng.integers(1, 7, 4)]
    image = about_one(m, dtype, (int(m.rng.integers(0, 3)), n[0], n[1], int(m.rng.integers(1, 4))))
    for mode in ("nearest", "linear", "cubic"):
        m.add("resize", [image], size=n[2:], mode=mode, align=mode != "nearest" and bool(m.chance(0.5)), **close(dtype))
    for rank in (1, 2, 3):
        groups, batch = int(m.rng.choice([1, 1, 2])), int(m.rng.integers(1, 3))
        kernel = [int(v) for v in m.rng.integers(1, 4, rank)]
        about = dict(stride=[int(v) for v in m.rng.integers(1, 4, rank)], pad=[int(v) for v in m.rng.integers(0, 3, rank)],
                     dilation=[int(v) for v in m.rng.integers(1, 3, rank)], groups=groups, rank=rank)
        size = [d * (k - 1) + 1 + int(m.rng.integers(0, 4)) for d, k in zip(about["dilation"], kernel)]
        channels, filters = (groups * int(v) for v in m.rng.integers(1, 4, 2))
        weights = about_one(m, dtype, [filters] + kernel + [channels // groups])
        x, bias = about_one(m, dtype, [batch] + size + [channels]), about_one(m, dtype, [filters])
        m.add("convolution", [x, weights, bias], **about, **close(dtype, 3))
        about["pad"] = [min(p, d * (k - 1) // 2) for p, d, k in zip(about["pad"], about["dilation"], kernel)]
        x = about_one(m, dtype, [batch] + size + [filters])
        m.add("convolution_transpose", [x, weights], **about, **close(dtype, 3))


def products(case, size, weights):
    """(output place, tap, input place) of a convolution of that size, padding left out."""
    rank, kernel = case["rank"], weights.shape[1:-1]
    axis = list(zip(size, kernel, case["stride"], case["pad"], case["dilation"]))
    out = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in axis]
    for o in np.ndindex(*out):
        for k in np.ndindex(*kernel):
            i = tuple(o[j] * axis[j][2] + k[j] * axis[j][4] - axis[j][3] for j in range(rank))
            if all(0 <= i[j] < size[j] for j in range(rank)):
                yield o, k, i


def convolution(case, a):
    x, w, bias = (y.astype("f8") for y in a)
    size, groups = x.shape[1:-1], case["groups"]
    out = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in zip(
        size, w.shape[1:-1], case["stride"], case["pad"], case["dilation"])]
    z = np.zeros([x.shape[0]] + out + [w.shape[0]]) + bias
    parts, filters = np.split(x, groups, -1), np.split(w, groups, 0)
    for o, k, i in products(case, size, w):
        z[(slice(None),) + o] += np.concatenate(
            [part[(slice(None),) + i] @ f[(slice(None),) + k].T for part, f in zip(parts, filters)], -1)
    return z


def convolution_transpose(case, a):
    x, w = (y.astype("f8") for y in a)
    size = [(n - 1) * s - 2 * p + d * (k - 1) + 1 for n, k, s, p, d in zip(
        x.shape[1:-1], w.shape[1:-1], case["stride"], case["pad"], case["dilation"])]
    groups = case["groups"]
    z = np.zeros([x.shape[0]] + size + [w.shape[-1] * groups])
    parts, filters = np.split(x, groups, -1), np.split(w, groups, 0)
    for o, k, i in products(case, size, w):
        z[(slice(None),) + i] += np.concatenate(
            [part[(slice(None),) + o] @ f[(slice(None),) + k] for part, f in zip(parts, filters)], -1)
    return z


def taps(n, out, mode, align):
    """The matrix [out, n] of one axis."""
    o = np.arange(out)
    matrix = np.zeros((out, n))
    if mode == "nearest":
        matrix[o, o * n // out] = 1
        return matrix
    at = o * ((n - 1) / max(1, out - 1)) if align else (o + 0.5) * n / out - 0.5
    if mode == "linear":
        at = np.maximum(at, 0)
    first = np.floor(at).astype(int)
    for tap in range(-1, 3):
        d = np.abs(at - (first + tap))
        if mode == "linear":
            weight = np.maximum(0, 1 - d)
        else:
            weight = np.where(d <= 1, 1.25 * d**3 - 2.25 * d**2 + 1, np.where(
                d < 2, -0.75 * d**3 + 3.75 * d**2 - 6 * d + 3, 0))
        np.add.at(matrix, (o, np.clip(first + tap, 0, n - 1)), weight)
    return matrix


def resize(case, a):
    x, (height, width) = a[0].astype("f8"), case["size"]
    down, along = (taps(n, out, case["mode"], case["align"]) for n, out in zip(x.shape[1:3], (height, width)))
    return np.einsum("ih,jw,bhwc->bijc", down, along, x)


def attention(case, a):
    q, k, v = (x.astype("f8") for x in a[:3])
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    scores = q @ np.swapaxes(k, 2, 3) / np.sqrt(q.shape[3])
    if len(a) > 3:
        scores = scores + a[3].astype("f8")
    if case["causal"]:
        scores = np.where(np.tri(*scores.shape[2:]), scores, -np.inf)
    weights = np.exp(scores - scores.max(3, keepdims=True))
    return weights / weights.sum(3, keepdims=True) @ v


def normalized(x, axes, epsilon=1e-5):
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + epsilon)


def group_norm(case, a):
    x = a[0].astype("f8")
    parts = x.reshape((x.shape[0], -1, case["groups"], x.shape[-1] // case["groups"]))
    return normalized(parts, (1, 3)).reshape(x.shape) * a[1].astype("f8") + a[2].astype("f8")


def rms_norm(a):
    x = a[0].astype("f8")
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * a[1].astype("f8")


def adam(case, a):
    p, g, first, second = (x.astype("f8") for x in a)
    first, second, step = 0.9 * first + 0.1 * g, 0.999 * second + 0.001 * g * g, case["step"]
    p = p * (1 - 0.001 * case["decay"])
    return p - 0.001 * first / (1 - 0.9**step) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)


def adagrad(a):
    p, g, total = (x.astype("f8") for x in a)
    return p - 0.01 * g / (np.sqrt(total + g * g) + 1e-10)


def rms_prop(case, a):
    p, g, square = (x.astype("f8") for x in a)
    g = g + case["decay"] * p
    return p - 0.01 * g / (np.sqrt(0.99 * square + 0.01 * g * g) + 1e-8)


def ctc(case, a):
    """All paths of an example, one after the other."""
    x, labels, inputs, counts = a[0].astype("f8"), *a[1:]
    losses = []
    for b in range(x.shape[0]):
        wanted, total = tuple(labels[b, : counts[b]]), 0.0
        for path in itertools.product(range(x.shape[2]), repeat=int(inputs[b])):
            told = tuple(c for i, c in enumerate(path) if c != case["blank"] and (i == 0 or c != path[i - 1]))
            if told == wanted:
                total += np.exp(sum(x[b, t, c] for t, c in enumerate(path)))
        losses.append(-np.log(total) if total else 0.0)
    return np.asarray(losses)


def row_means(a, of):
    d = a[0].astype("f8") - a[1].astype("f8")
    return of(np.abs(d)).reshape(d.shape[0], -1).mean(1)


def huber(case, a):
    delta = case["delta"]
    return row_means(a, lambda d: np.where(d <= delta, d * d / 2, delta * (d - delta / 2)))


def solve(a):
    """NumPy 1 and 2 take right sides of lower rank differently: they have the rank of the matrices here."""
    sides = a[1][:, None] if a[1].ndim == 1 else a[1]
    result = np.linalg.solve(a[0], np.broadcast_to(sides, a[0].shape[:-2] + sides.shape[-2:]))
    return result[..., 0] if a[1].ndim == 1 else result


WIDE = {
    "attention": attention,
    "rms_norm": lambda c, a: rms_norm(a),
    "group_norm": group_norm,
    "layer_norm": lambda c, a: normalized(a[0].astype("f8"), -1) * a[1].astype("f8") + a[2].astype("f8"),
    "adam_update": adam,
    "adagrad_update": lambda c, a: adagrad(a),
    "rms_prop_update": rms_prop,
    "ctc_loss": ctc,
    "absolute_error": lambda c, a: row_means(a, lambda d: d),
    "huber_error": huber,
    "convolution": convolution,
    "convolution_transpose": convolution_transpose,
    "resize": resize,
}
LINALG = {
    "inverse": lambda c, a: np.linalg.inv(a[0]),
    "determinant": lambda c, a: np.linalg.det(a[0]),
    "log_determinant": lambda c, a: np.linalg.slogdet(a[0])[1],
    "sign_of_determinant": lambda c, a: np.linalg.slogdet(a[0])[0],
    "matrix_power": lambda c, a: np.linalg.matrix_power(a[0], c["exponent"]),
    "cholesky": lambda c, a: np.linalg.cholesky(a[0]),
    "symmetric_eigenvalues": lambda c, a: np.linalg.eigvalsh(a[0]),
    "solve": lambda c, a: solve(a),
    "singular_values": lambda c, a: np.linalg.svd(a[0], compute_uv=False),
    "pseudo_inverse": lambda c, a: np.linalg.pinv(a[0]),
    "matrix_rank": lambda c, a: np.asarray(np.linalg.matrix_rank(a[0])).astype("i8"),
    "norm_fro": lambda c, a: np.linalg.norm(a[0], axis=(-2, -1)),
    "norm_nuc": lambda c, a: np.linalg.norm(a[0], "nuc", (-2, -1)),
    "norm_2": lambda c, a: np.linalg.norm(a[0], 2, (-2, -1)),
    "norm_1": lambda c, a: np.linalg.norm(a[0], 1, (-2, -1)),
    "norm_inf": lambda c, a: np.linalg.norm(a[0], np.inf, (-2, -1)),
    "least_squares": lambda c, a: np.linalg.lstsq(a[0], a[1], rcond=None)[0],
}




def channels_first(x):
    return torch.tensor(np.ascontiguousarray(np.moveaxis(x.astype("f8"), -1, 1)))


def by_torch(case, a):
    """None for operators that it has not."""
    op = case["op"]
    wide = [torch.tensor(np.ascontiguousarray(x.astype("f8"))) for x in a]
    if op == "attention":
        return F.scaled_dot_product_attention(*wide[:3], attn_mask=wide[3] if len(wide) > 3 else None,
                                              is_causal=case["causal"], enable_gqa=True)
    if op == "rms_norm":
        return F.rms_norm(wide[0], wide[1].shape, wide[1], 1e-5)
    if op == "layer_norm":
        return F.layer_norm(wide[0], wide[1].shape, wide[1], wide[2])
    if op == "adam_update":
        p = torch.nn.Parameter(wide[0])
        p.grad = wide[1]
        optimizer = torch.optim.AdamW([p], weight_decay=case["decay"])
        optimizer.state[p] = dict(step=torch.tensor(case["step"] - 1.0), exp_avg=wide[2], exp_avg_sq=wide[3])
        optimizer.step()
        return p.detach()
    if op in ("adagrad_update", "rms_prop_update"):
        p = torch.nn.Parameter(wide[0])
        p.grad = wide[1]
        if op == "adagrad_update":
            optimizer = torch.optim.Adagrad([p])
            optimizer.state[p] = dict(step=torch.tensor(0.0), sum=wide[2])
        else:
            optimizer = torch.optim.RMSprop([p], weight_decay=case["decay"])
            optimizer.state[p] = dict(step=torch.tensor(0.0), square_avg=wide[2])
        optimizer.step()
        return p.detach()
    if op == "ctc_loss":
        # Lengths of 0 are refused there, as is what is not normalised.
        if not a[2].all() or not np.allclose(np.exp(a[0].astype("f8")).sum(-1), 1, atol=1e-3):
            return None
        return F.ctc_loss(wide[0].transpose(0, 1), torch.tensor(a[1]), torch.tensor(a[2]), torch.tensor(a[3]), case["blank"],
                          "none", zero_infinity=True)
    if op in ("absolute_error", "huber_error"):
        losses = (F.l1_loss(*wide, reduction="none") if op == "absolute_error"
                  else F.huber_loss(*wide, reduction="none", delta=case["delta"]))
        return losses.reshape(losses.shape[0], -1).mean(1)
    if op == "group_norm":
        if a[0][0].size == case["groups"]:
            return None  # refused for one element a group
        return torch.movedim(F.group_norm(channels_first(a[0]), case["groups"], wide[1], wide[2]), 1, -1)
    if op == "resize":
        mode = {"nearest": "nearest", "linear": "bilinear", "cubic": "bicubic"}[case["mode"]]
        align = {} if mode == "nearest" else dict(align_corners=case["align"])
        return None if 0 in a[0].shape else torch.movedim(
            F.interpolate(channels_first(a[0]), case["size"], mode=mode, **align), 1, -1)
    if op.startswith("convolution"):
        function = getattr(F, "conv%s%dd" % ("_transpose" if op.endswith("e") else "", case["rank"]))
        return torch.movedim(function(channels_first(a[0]), channels_first(a[1]), *wide[2:], stride=case["stride"],
                                      padding=case["pad"], dilation=case["dilation"], groups=case["groups"]), 1, -1)
    return None


def expected(case, inputs):
    """None for operators that are not made here."""
    op = case["op"]
    if op in WIDE:
        told = by_torch(case, inputs) if torch is not None else None
        wanted = WIDE[op](case, inputs) if told is None else told.numpy()
        return wanted.astype(inputs[0].dtype)
    if op in LINALG:
        result = np.asarray(LINALG[op](case, inputs))
        return result if op == "matrix_rank" else result.astype(inputs[0].dtype)
    return None
