"""Cases of the operators that numpy_judge.py does not have itself, and what NumPy says of them.

A case names in "views" how each operand lies in memory (numpy_judge_operators.cc).
"""

import warnings

import numpy as np

from numpy_judge_families import expected_of_family, make_families, tolerance

REDUCTIONS = {"none": None, "add": np.add, "multiply": np.multiply, "min": np.minimum, "max": np.maximum}
class Maker:
    """Draws operands; `tools` has values, shape_of and broadcasting_pair of numpy_judge.py."""

    def __init__(self, rng, add, tools):
        self.rng, self.tools = rng, tools
        self._add = add

    def add(self, op, inputs, **more):
        self._add(op, inputs, views=[int(v) for v in self.rng.integers(0, 4, len(inputs))], **more)

    def chance(self, p):
        return self.rng.random() < p

    def values(self, dtype, shape, special=False):
        return self.tools.values(self.rng, dtype, shape, special)

    def narrowed(self, shape):
        return tuple(1 if self.chance(0.25) else n for n in shape)

    def axis_of(self, shape):
        return int(self.rng.integers(-len(shape), len(shape)))


def make(rng, add, tools, dtypes, families):
    m = Maker(rng, add, tools)
    make_families(m, dtypes, families)
    for dtype in dtypes:
        if np.dtype(dtype).kind != "f":
            m.add("bitwise_not", [m.values(dtype, m.tools.shape_of(m.rng))])
        make_indexing(m, dtype)
        make_products(m, dtype, dtypes)
        make_joining(m, dtype, dtypes)
        for _ in range(6):
            make_searching(m, dtype, dtypes)
            make_statistics(m, dtype)
            make_rearranging(m, dtype)


def make_indexing(m, dtype):
    for reduction in [None] * 3 + list(REDUCTIONS):
        if dtype == "b1" and reduction in ("add", "multiply"):
            continue
        for _ in range(6):
            shape = list(m.tools.shape_of(m.rng, 1, 4))
            axis = m.axis_of(shape)
            count = int(m.rng.integers(0, 9)) if shape[axis] else 0
            of_x, of_indices = m.narrowed(shape), list(m.narrowed(shape))
            of_x = [n if i == axis % len(shape) else k for i, (n, k) in enumerate(zip(shape, of_x))]
            of_indices[axis] = count
            x = m.values(dtype, of_x, m.chance(0.3))
            indices = m.rng.integers(0, max(1, shape[axis]), of_indices).astype(m.rng.choice(["i8", "i4"]))
            if reduction is None:
                m.add("gather_elements", [x, indices], axis=axis)
                continue
            common = [max(a, b) if a and b else 0 for a, b in zip(of_x, of_indices)]
            common[axis] = count
            dims = m.narrowed(common)
            dims = dims[int(m.rng.integers(0, len(dims) + 1)):] if m.chance(0.3) else dims
            m.add("scatter", [x, indices, m.values(dtype, dims, m.chance(0.3))], axis=axis, reduction=reduction)


def make_joining(m, dtype, dtypes):
    """Parts of any types, promoted all at once, and products of matrices of two."""
    for _ in range(8):
        types = [dtype] + [str(t) for t in m.rng.choice(dtypes, int(m.rng.integers(0, 4)))]
        shape = list(m.tools.shape_of(m.rng, 0, 3))
        m.add("stack", [m.values(t, shape, True) for t in types], axis=int(m.rng.integers(-1 - len(shape), 1 + len(shape))))
        if shape:
            axis = m.axis_of(shape)
            parts = []
            for t in types:
                shape[axis] = int(m.rng.integers(0, 4))
                parts.append(m.values(t, shape, True))
            m.add("concat", parts, axis=axis)
    for _ in range(4):
        other = str(m.rng.choice(dtypes[:-1]))
        rows, inner, columns = (int(n) for n in m.rng.integers(1, 6, 3))
        lead = list(m.tools.shape_of(m.rng, 0, 2))
        x = small(m, dtype, [inner] if m.chance(0.2) else lead + [rows, inner])
        y = small(m, other, [inner] if m.chance(0.2) else [inner, columns])
        m.add("matmul", [x, y], **loose([dtype, other]))


def make_products(m, dtype, dtypes):
    for _ in range(30):
        sizes = {c: int(m.rng.choice([0, 1, 2, 3, 4, 5], p=[.03, .12, .25, .25, .2, .15])) for c in "abcdeBX"}
        dots = [int(n) for n in m.rng.choice([1, 2, 3], int(m.rng.integers(0, 3)))]
        texts, operands, types = [], [], [dtype]
        for k in range(int(m.rng.integers(1, 5))):
            labels = [str(c) for c in m.rng.choice(list(sizes), int(m.rng.integers(0, 4)), replace=m.chance(0.2))]
            shape = [1 if m.chance(0.05) and labels.count(c) == 1 else sizes[c] for c in labels]
            text = "".join(labels)
            if m.chance(0.4):
                at = int(m.rng.integers(0, len(labels) + 1))
                own = dots[int(m.rng.integers(0, len(dots) + 1)):]
                text = text[:at] + "..." + text[at:]
                shape[at:at] = [1 if m.chance(0.2) else n for n in own]
            types.append(dtype if m.chance(0.8) else str(m.rng.choice(dtypes[:-1])))
            if dtype == "b1":
                types[-1] = str(m.rng.choice(dtypes[:-1]))
            texts.append(text)
            operands.append(small(m, types[-1], shape))
        text = ",".join(texts)
        dotted = "..." in text
        if m.chance(0.7):
            used = sorted(set(text) - set(",."))
            out = [str(c) for c in m.rng.permutation(used)][:int(m.rng.integers(0, len(used) + 1))]
            if dotted:
                out.insert(int(m.rng.integers(0, len(out) + 1)), "...")
            text += (" -> " if m.chance(0.5) else "->") + "".join(out)
        try:
            if np.einsum(text, *(np.zeros(np.shape(x)) for x in operands)).ndim > 8:
                continue
        except ValueError:  # sizes that do not broadcast
            continue
        m.add("einsum", operands, subscripts=text, **loose(types[1:]))
    for _ in range(4):
        other = dtype if m.chance(0.6) and dtype != "b1" else str(m.rng.choice(dtypes[:-1]))
        full = list(m.tools.shape_of(m.rng, 2, 4))
        axes = int(m.rng.integers(0, len(full) - 1))
        x = small(m, dtype, full)
        y = small(m, other, full[len(full) - axes:] + list(m.tools.shape_of(m.rng, 0, 2)))
        m.add("tensordot", [x, y], axes=axes, **loose([dtype, other]))
        order = [int(i) for i in m.rng.permutation(len(full))][:int(m.rng.integers(0, 3))]
        of_y = [int(i) for i in m.rng.permutation(len(order))]
        y = small(m, other, [full[order[of_y.index(i)]] for i in range(len(order))] + [2])
        m.add("tensordot", [x, y], axes=[order, of_y], **loose([dtype, other]))
        m.add("outer", [x, y], **loose([dtype, other]))
        m.add("kron", [x, y] if m.chance(0.5) else [y, x], **loose([dtype, other]))
        m.add("inner", [x, small(m, other, [3, full[-1]])], **loose([dtype, other]))
        m.add("dot", [x, small(m, other, [2, full[-1], 3] if m.chance(0.5) else full[-1:])], **loose([dtype, other]))
        m.add(str(m.rng.choice(["inner", "dot"])), [small(m, other, ()), x], **loose([dtype, other]))


def with_ties(m, dtype, shape):
    x = m.values(dtype, shape, m.chance(0.4))
    with np.errstate(invalid="ignore"):
        return np.asarray(np.fmod(np.trunc(x), 4) if np.dtype(dtype).kind == "f" else x % 4 if dtype != "b1" else x, dtype)


def make_searching(m, dtype, dtypes):
    shape = m.tools.shape_of(m.rng, 0, 3)
    x = with_ties(m, dtype, shape) if m.chance(0.7) else m.values(dtype, shape, True)
    for op in ("unique", "unique_values", "unique_first", "unique_inverse", "unique_counts"):
        m.add(op, [x])
    if x.ndim:
        m.add("nonzero", [x])
        m.add("argwhere", [x])
    other = str(m.rng.choice(dtypes))
    common = np.promote_types(dtype, other)
    line = with_ties(m, dtype, (int(m.rng.integers(0, 20)),))
    line = line[np.argsort(line.astype(common), kind="stable")]
    m.add("search_sorted", [line, with_ties(m, other, shape)], right=bool(m.chance(0.5)))
    if np.dtype(dtype).kind in "iu":
        counted = np.asarray(m.values(dtype, (int(m.rng.integers(0, 30)),)) % 40, dtype)
        m.add("bincount", [counted], least=int(m.rng.integers(0, 60)))
        if counted.size:  # NumPy gives integers of nothing, weighted or not
            m.add("bincount", [counted, small(m, other, counted.shape)], least=0, **loose(["f8"]))
    if dtype in ("b1", "f2"):
        return
    for op in ("histogram", "histogram_edges"):
        numbers = m.values(dtype, shape)
        if m.chance(0.2):
            numbers = np.full_like(numbers, 3)
        m.add(op, [numbers], bins=int(m.rng.integers(1, 12)), range=None, relative=1e-6, absolute=1e-4)
        low = int(m.rng.integers(-50, 50))
        m.add(op, [m.values(dtype, shape, True)], bins=int(m.rng.integers(1, 12)),
              range=[low, low + int(m.rng.integers(0, 50))], relative=1e-6, absolute=1e-4)
        edges = np.sort(m.values(other if other not in ("b1", "f2") else dtype, (int(m.rng.integers(2, 9)),)))
        m.add(op, [m.values(dtype, shape, True), edges], **tolerance(dtype))


def make_statistics(m, dtype):
    shape = tuple(max(1, n) for n in m.tools.shape_of(m.rng, 0, 4))
    axes = [int(i) for i in np.flatnonzero(m.rng.random(len(shape)) < 0.5)]
    about = dict(axes=axes, keep=bool(m.chance(0.5)), **loose([dtype]))
    if dtype in ("f4", "f2"):
        about["absolute"] = 1e-3 if dtype == "f4" else 1
    x = m.values(dtype, shape)
    m.add("std", [x] if dtype != "b1" else [x.astype("i4")], ddof=int(m.rng.integers(0, 3)), **about)
    if len(shape):
        few = np.asarray(np.clip(x, -2, 2), dtype)
        m.add("cumprod", [few], axis=m.axis_of(shape), **loose([dtype]))
    if dtype != "b1":
        odd = x.copy()
        if np.dtype(dtype).kind == "f" and m.chance(0.3):
            odd.reshape(-1)[m.rng.integers(0, odd.size)] = np.nan
        m.add("median", [odd], **about)
        q = float(m.rng.choice([0, 1, 0.25, 0.5, m.rng.random()])) if m.chance(0.6) else [float(v) for v in m.rng.random(3)]
        m.add("quantile", [odd], q=q, method=str(m.rng.choice(["linear", "lower", "higher", "nearest", "midpoint"])),
              unordered_type=True, **about)
    gaps = m.values(dtype, shape, m.chance(0.3))
    if np.dtype(dtype).kind == "f":
        gaps[m.rng.random(shape) < m.rng.choice([0.2, 0.8])] = np.nan
    for op in ("nan_sum", "nan_mean", "nan_max", "nan_min"):
        if dtype != "b1" or op == "nan_sum":
            m.add(op, [gaps], **about)


def make_rearranging(m, dtype):
    shape = m.tools.shape_of(m.rng, 0, 4)
    x = m.values(dtype, shape, True)
    m.add("roll", [x], shifts=[int(m.rng.integers(-9, 10))], axes=None)
    coordinates = [m.values(dtype, m.tools.shape_of(m.rng, 0, 1)) for _ in range(int(m.rng.integers(1, 5)))]
    m.add("meshgrid", coordinates, rows=bool(m.chance(0.5)), which=int(m.rng.integers(0, len(coordinates))))
    m.add("diagonal_matrix", [m.values(dtype, m.tools.shape_of(m.rng, 1, 1))], offset=int(m.rng.integers(-3, 4)))
    if not shape:
        return
    count = int(m.rng.integers(1, 4))
    m.add("roll", [x], shifts=[int(v) for v in m.rng.integers(-9, 10, count)], axes=[m.axis_of(shape) for _ in range(count)])
    m.add("diff", [x], times=int(m.rng.integers(0, 4)), axis=m.axis_of(shape))
    axis = m.axis_of(shape)
    m.add("repeat_each", [x], counts=[int(v) for v in m.rng.integers(0, 4, shape[axis])], axis=axis)
    if len(shape) < 2:
        return
    axes = [int(v) for v in m.rng.permutation(len(shape))[:2]]
    axes[0] -= len(shape) if m.chance(0.5) else 0
    m.add("diagonal", [x], offset=int(m.rng.integers(-4, 5)), axes=axes)
    m.add("trace", [m.values(dtype, shape)], offset=int(m.rng.integers(-4, 5)), axes=axes, **loose([dtype]))


def small(m, dtype, shape):
    """Numbers about 1, so that sums of products have few of which nothing is left."""
    if np.dtype(dtype).kind == "f":
        return np.asarray(m.rng.normal(size=shape)).astype(dtype)
    return m.values(dtype, tuple(shape))


def loose(types):
    """Of sums of products, which are added in any order."""
    worst = min((np.dtype(t) for t in types), key=lambda t: t.itemsize if t.kind == "f" else 9)
    tag = worst.str[1:] if worst.kind == "f" else "f8"
    return dict(relative={"f2": 3e-2, "f4": 1e-4, "f8": 1e-12}[tag], absolute={"f2": 1e-1, "f4": 1e-4, "f8": 1e-9}[tag])


def place_of(x, indices, axis):
    """The index that put_along_axis makes."""
    axis %= x.ndim
    return tuple(indices if i == axis else np.arange(n).reshape([-1 if k == i else 1 for k in range(x.ndim)])
                 for i, n in enumerate(x.shape))


def expected(case, inputs):
    """None for operators that are not made here."""
    op, x = case["op"], inputs[0] if inputs else None
    if "family" in case:
        return expected_of_family(case, inputs)
    if op == "bitwise_not":
        return np.invert(x)
    if op in ("einsum", "tensordot", "outer", "inner", "dot", "kron"):
        common = np.result_type(*(np.asarray(y).dtype for y in inputs))
        wide = np.dtype("f4") if common == np.dtype("f2") else common
        args = [y.astype(wide) for y in inputs]
        if op == "einsum":
            return np.einsum(case["subscripts"], *args).astype(common)
        more = (case["axes"],) if op == "tensordot" else ()
        return np.asarray(getattr(np, op)(*args, *more)).astype(common)
    if op == "matmul":  # halves are added up as floats here
        common = np.result_type(*inputs)
        wide = np.dtype("f4") if common == np.dtype("f2") else common
        return np.matmul(*(y.astype(wide) for y in inputs)).astype(common)
    if op in SIMPLE:
        return SIMPLE[op](case, inputs)
    if op in ("std", "cumprod", "median", "quantile") or op.startswith("nan_"):
        half = x.dtype == np.dtype("f2")
        return (expected_statistic(op, case, x.astype("f4")).astype("f2") if half else expected_statistic(op, case, x))
    if op == "gather_elements":
        return np.take_along_axis(x, inputs[1], case["axis"])
    if op == "scatter":
        z, place = x.copy(), place_of(x, inputs[1], case["axis"])
        if case["reduction"] == "none":
            z[place] = inputs[2]
        else:
            shape = np.broadcast_shapes(*(np.shape(p) for p in place))
            REDUCTIONS[case["reduction"]].at(z, place, np.broadcast_to(inputs[2], shape))
        return z
    return None


def unique(x, which):
    results = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
    return results[which].reshape(x.shape) if which == 2 else results[which]


def histogram(case, inputs):
    if len(inputs) > 1:
        common = np.promote_types(inputs[0].dtype, inputs[1].dtype)  # compared in it
        return np.histogram(inputs[0].astype(common), inputs[1].astype(common))[0], inputs[1]
    return np.histogram(inputs[0], case["bins"], case["range"])


def searched(case, inputs):
    common = np.promote_types(inputs[0].dtype, inputs[1].dtype)
    return np.searchsorted(*(x.astype(common) for x in inputs), side="right" if case["right"] else "left")


def total_type(x):
    """Of sums and products; None: NumPy's own."""
    return None if x.dtype.kind == "f" else "u8" if x.dtype == np.dtype("u8") else "i8"


def axes_of(case):
    return dict(axis=tuple(case["axes"]) or None, keepdims=case["keep"])


def expected_statistic(op, case, x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if op == "cumprod":
            return np.cumprod(x, axis=case["axis"], dtype=total_type(x))
        if op == "std":
            return np.std(x, ddof=case["ddof"], **axes_of(case))
        if op == "quantile":
            if x.dtype.kind in "iu":  # NumPy's differences of neighbours wrap
                x = x.astype("f8")
            return np.quantile(x, case["q"], method=case["method"], **axes_of(case))
        if op == "nan_sum" and x.dtype.kind in "biu":
            return np.nansum(x, dtype=total_type(x), **axes_of(case))
        return getattr(np, op.replace("_", ""))(x, **axes_of(case))


SIMPLE = {
    "stack": lambda c, a: np.stack(a, c["axis"]),
    "concat": lambda c, a: np.concatenate(a, c["axis"]),
    "unique": lambda c, a: np.unique(a[0]),
    "unique_values": lambda c, a: unique(a[0], 0),
    "unique_first": lambda c, a: unique(a[0], 1),
    "unique_inverse": lambda c, a: unique(a[0], 2),
    "unique_counts": lambda c, a: unique(a[0], 3),
    "nonzero": lambda c, a: np.array(np.nonzero(a[0])),
    "argwhere": lambda c, a: np.argwhere(a[0]),
    "search_sorted": searched,
    "bincount": lambda c, a: np.bincount(a[0].astype("i8"), *(w.astype("f8") for w in a[1:]), minlength=c["least"]),
    "histogram": lambda c, a: histogram(c, a)[0],
    "histogram_edges": lambda c, a: histogram(c, a)[1],
    "roll": lambda c, a: np.roll(a[0], c["shifts"][0]) if c["axes"] is None else np.roll(
        a[0], tuple(c["shifts"]), tuple(c["axes"])),
    "meshgrid": lambda c, a: np.meshgrid(*a, indexing="ij" if c["rows"] else "xy")[c["which"]],
    "diagonal_matrix": lambda c, a: np.diag(a[0], c["offset"]),
    "diff": lambda c, a: np.diff(a[0], c["times"], c["axis"]),
    "repeat_each": lambda c, a: np.repeat(a[0], c["counts"], c["axis"]),
    "diagonal": lambda c, a: np.diagonal(a[0], c["offset"], *c["axes"]),
    "trace": lambda c, a: np.trace(a[0].astype("f4"), c["offset"], *c["axes"]).astype("f2") if a[0].dtype == np.dtype(
        "f2") else np.trace(a[0], c["offset"], *c["axes"], dtype=total_type(a[0])),
}
