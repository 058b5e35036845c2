"""Cases of the operators that numpy_judge.py does not have itself, and what NumPy says of them.

A case names in "views" how each operand lies in memory (numpy_judge_operators.cc).
"""

import numpy as np

UNARY = {"tan": "tan", "asin": "arcsin", "acos": "arccos", "atan": "arctan", "sinh": "sinh", "cosh": "cosh",
         "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh", "log2": "log2", "log10": "log10", "exp2": "exp2",
         "cbrt": "cbrt", "trunc": "trunc"}
REALS = {"atan2": "arctan2", "hypot": "hypot", "copysign": "copysign"}
QUOTIENTS = ("fmod", "floor_divide")
BITS = {"bitwise_and": "bitwise_and", "bitwise_or": "bitwise_or", "bitwise_xor": "bitwise_xor",
        "shift_left": "left_shift", "shift_right": "right_shift"}
REDUCTIONS = {"none": None, "add": np.add, "multiply": np.multiply, "min": np.minimum, "max": np.maximum}
CLOSE = {"f2": 2e-3, "f4": 1e-6, "f8": 1e-14}


def real_type(dtype):
    dtype = np.dtype(dtype)
    return dtype if dtype.kind == "f" else np.dtype("f4" if dtype.itemsize == 1 else "f8")


def tolerance(dtype):
    dtype = real_type(dtype).str[1:]
    return dict(relative=CLOSE[dtype], absolute={"f2": 1e-7}.get(dtype, 0))


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


def make(rng, add, tools, dtypes):
    m = Maker(rng, add, tools)
    for dtype in dtypes:
        make_elementwise(m, dtype, dtypes)
        make_indexing(m, dtype)


def make_elementwise(m, dtype, dtypes):
    for op in UNARY:
        for _ in range(3):
            x = m.values(dtype, m.tools.shape_of(m.rng), True)
            if op in ("asin", "acos", "atanh") and m.chance(0.8):
                x = np.asarray(np.clip(x, -1, 1), dtype)
            m.add(op, [np.asarray(np.clip(x, -9, 9), dtype)], **tolerance(dtype))
    m.add("is_inf", [m.values(dtype, m.tools.shape_of(m.rng), True)])
    for other in dtypes:
        kinds = np.dtype(dtype).kind + np.dtype(other).kind
        common = np.promote_types(dtype, other)
        pair = m.tools.broadcasting_pair(m.rng)
        operands = [m.values(t, shape, True) for t, shape in zip((dtype, other), pair)]
        for op in REALS:
            m.add(op, operands, **tolerance(common))
        if "b" not in kinds:
            divisor = operands[1] if "f" in kinds else np.where(operands[1] == 0, np.asarray(3, other), operands[1])
            for op in QUOTIENTS:
                m.add(op, [operands[0], divisor], **tolerance(common))
        if "f" in kinds:
            continue
        for op in BITS:
            if op[0] == "s" and "b" in kinds:
                continue
            if op[0] == "s":
                operands[1] = np.asarray(np.clip(operands[1], -3, 70), other)
            m.add(op, operands)
        m.add("bitwise_not", operands[:1])


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


def place_of(x, indices, axis):
    """The index that put_along_axis makes."""
    axis %= x.ndim
    return tuple(indices if i == axis else np.arange(n).reshape([-1 if k == i else 1 for k in range(x.ndim)])
                 for i, n in enumerate(x.shape))


def expected(case, inputs):
    """None for operators that are not made here."""
    op, x = case["op"], inputs[0] if inputs else None
    if op in UNARY:
        return getattr(np, UNARY[op])(x.astype(real_type(x.dtype)))
    if op in REALS:
        dtype = real_type(np.promote_types(x.dtype, inputs[1].dtype))
        if dtype == np.dtype("f4") and {x.dtype.str[1:], inputs[1].dtype.str[1:]} == {"i1", "u1"}:
            dtype = np.dtype("f8")  # through i32
        return getattr(np, REALS[op])(*(y.astype(dtype) for y in inputs))
    if op in BITS or op in QUOTIENTS:
        common = np.promote_types(x.dtype, inputs[1].dtype)
        return getattr(np, BITS.get(op, op))(*(y.astype(common) for y in inputs))
    if op == "bitwise_not":
        return np.invert(x)
    if op == "is_inf":
        return np.isinf(x)
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
