"""NumPy as a judge of Tidepool's arrays.

    numpy_judge.py make FOLDER SEED    writes cases.json, cases.npz and files for ReadNpy,
                                       given families.json: rows of the operator list that are alike
    numpy_judge.py check FOLDER        compares what numpy_judge_test wrote with NumPy; 0 when all agree

A case is {"op": name, "inputs": [keys of cases.npz], ...}. Its result is "<number>" in results.npz, or
in texts.json for operators that give text.
"""

import json
import operator
import os
import sys

import numpy as np

import numpy_judge_calls
import numpy_judge_layers
import numpy_judge_networks
import numpy_judge_operators
import numpy_judge_table

DTYPES = ["f4", "i8", "f8", "f2", "i1", "u1", "i2", "u2", "u4", "u8", "i4", "b1"]
SCALAR_OPS = ("add_scalar", "subtract_scalar", "multiply_scalar", "divide_scalar", "scalar_subtract", "scalar_divide")
COMPARISONS = ("less_scalar", "less_equal_scalar", "greater_scalar", "greater_equal_scalar", "equal_scalar",
               "not_equal_scalar")
SCALARS = ("0", "1", "-1", "3", "7", "-128", "255", "300", "2**31", "-2**53-1", "2**63-1", "-2**63", "0.0", "-0.0", "0.5",
           "2.5", "-3.0", "1/3", "4096.0", "-0.125", "1e300", "2.0**63", "-1e19", "1e19", "40000", "2**63", "2**64-1", "nan",
           "inf")
NAMES = {"f4": "f32", "i8": "i64", "f8": "f64", "f2": "f16", "i1": "i8", "u1": "u8", "i4": "i32", "b1": "bool",
         "i2": "i16", "u2": "u16", "u4": "u32", "u8": "u64"}


def values(rng, dtype, shape, special=False):
    kind = np.dtype(dtype).kind
    if kind == "b":
        return rng.integers(0, 2, shape).astype(dtype)
    if kind in "iu":
        info = np.iinfo(dtype)
        low, high = max(info.min, -200), min(info.max, 200)
        x = np.asarray(rng.integers(low, high, shape, endpoint=True)).astype(dtype)
        if special and x.size and rng.random() < 0.3:  # the ends of the type
            x.reshape(-1)[rng.integers(0, x.size)] = rng.choice(np.array([info.min, info.max], dtype))
        return x
    x = np.asarray(rng.normal(size=shape) * 10.0 ** rng.integers(-2, 3)).astype(dtype)
    if special and x.size:
        flat = x.reshape(-1)
        for bad in (np.nan, np.inf, -np.inf, -0.0, 0.0):
            if rng.random() < 0.3:
                flat[rng.integers(0, flat.size)] = bad
    return x


def shape_of(rng, least=0, most=4):
    return tuple(int(n) for n in rng.choice([0, 1, 1, 2, 3, 4, 5, 7], rng.integers(least, most + 1)))


def broadcasting_pair(rng):
    full = [max(1, n) for n in shape_of(rng, 0, 4)]
    pair = []
    for _ in range(2):
        skip = rng.integers(0, len(full) + 1) if rng.random() < 0.4 else 0
        pair.append(tuple(1 if rng.random() < 0.3 else n for n in full[skip:]))
    return pair


def print_values(rng, dtype):
    """Numbers that look different: whole, tiny, huge, mixed, special."""
    kind = np.dtype(dtype).kind
    shape = shape_of(rng, 0, 3)
    if rng.random() < 0.1:
        shape = (int(rng.integers(900, 1300)),)
    if rng.random() < 0.1:
        shape = (int(rng.integers(20, 60)), int(rng.integers(20, 60)))
    if kind != "f":
        return values(rng, dtype, shape)
    choice = rng.integers(0, 5)
    x = rng.normal(size=shape)
    if choice == 0:
        x = np.round(x * 10)
    elif choice == 1:
        x = x * 10.0 ** rng.integers(-7, 9)
    elif choice == 2:
        x = x * 10.0 ** rng.integers(-3, 4, shape)
    elif choice == 3:
        x = np.round(x, 2)
    with np.errstate(over="ignore"):
        x = np.asarray(x).astype(dtype)
    if rng.random() < 0.3 and x.size:
        x.reshape(-1)[rng.integers(0, x.size)] = rng.choice([np.nan, np.inf, -np.inf, -0.0])
    return x


def text_of(x):
    """As all versions up to 2.2; later ones write f32 of 1e6 and more, and f16 of 1000 and more, with exponents."""
    version = tuple(int(n) for n in np.__version__.split(".")[:2])
    if version <= (2, 2):
        return np.array2string(x, separator=", ")
    with np.printoptions(legacy="2.2"):
        return np.array2string(x, separator=", ")


def decisive(x):
    """Not so close to where the layout changes that NumPy versions disagree."""
    if x.dtype.kind != "f":
        return True
    a = np.abs(x[np.isfinite(x) & (x != 0)]).astype("f8")
    if not a.size:
        return True
    ratio = a.max() / a.min()
    return not (0.99e-4 < a.min() < 1.01e-4 or 0.99e8 < a.max() < 1.01e8 or 990 < ratio < 1010)


def make(folder, seed):
    rng = np.random.default_rng(seed)
    cases, arrays = [], {}

    def add(op, inputs, **more):
        keys = []
        for x in inputs:
            keys.append("a%d" % len(arrays))
            arrays[keys[-1]] = np.asarray(x)
        cases.append(dict(op=op, inputs=keys, **more))

    for _ in range(600):
        x = print_values(rng, rng.choice(DTYPES))
        if decisive(x):
            add("print", [x])
    for a in DTYPES:
        for b in DTYPES:
            cases.append(dict(op="promote", inputs=[], types=[NAMES[a], NAMES[b]]))
    for _ in range(400):
        with np.errstate(all="ignore"):
            add("cast", [values(rng, rng.choice(DTYPES), shape_of(rng))], type=NAMES[rng.choice(DTYPES)])
    for a in DTYPES:
        for op in SCALAR_OPS + COMPARISONS:
            for text in SCALARS:
                scalar = eval(text, {"nan": np.nan, "inf": np.inf})
                if op not in COMPARISONS and (a == "b1" or not is_defined(op, a, scalar)):
                    continue
                x = values(rng, a, shape_of(rng, 0, 3), True)
                if a == "i8" and x.size:  # the type
                    x.reshape(-1)[rng.integers(0, x.size)] = rng.choice([2**53 + 1, 2**63 - 1, -2**63])
                if a == "u8" and x.size:
                    x.reshape(-1)[rng.integers(0, x.size)] = rng.choice(np.array([2**53 + 1, 2**63, 2**64 - 1], "u8"))
                if op.startswith("scalar_divide") and np.dtype(a).kind in "iu":
                    x = np.where(x == 0, np.asarray(5, a), x)
                add(op, [x], scalar=text, bits=True)
    for _ in range(1500):
        shape = shape_of(rng, 1, 4)
        x = values(rng, rng.choice(DTYPES), shape)
        subscripts = draw_subscripts(rng, shape)
        arrays_of = [np.asarray(s["a"]) for s in subscripts if isinstance(s, dict) and "a" in s]
        selected = x[as_index(subscripts, arrays_of)]
        for s in subscripts:
            if isinstance(s, dict):
                s.pop("a", None)
        add("index", [x] + arrays_of, subscripts=subscripts)
        dims = [1 if rng.random() < 0.3 else n for n in np.shape(selected)]
        dims = dims[rng.integers(0, len(dims) + 1):] if rng.random() < 0.4 else dims
        given = rng.choice(DTYPES if x.dtype.kind == "f" else DTYPES[-4:])  # floats to integers: not all NumPy's own are defined
        add("set_index", [x, values(rng, given, dims)] + arrays_of, subscripts=subscripts)
    for op in ("sum", "prod", "mean", "max", "min", "any", "all", "var"):
        for a in DTYPES:
            for _ in range(6):
                if op in ("max", "min", "var") and a == "b1":
                    continue
                shape = tuple(max(1, n) for n in shape_of(rng, 0, 4)) if op in ("max", "min", "var") else shape_of(rng)
                axes = [int(i) for i in np.flatnonzero(rng.random(len(shape)) < 0.5)]
                x = values(rng, a, shape, op in ("sum", "max", "min", "any"))
                if op == "prod" and a in ("f4", "f8", "f2"):
                    x = np.clip(x, -2, 2)
                if op in ("mean", "var") and (not axes and len(shape) and 0 in shape or any(shape[i] == 0 for i in axes)):
                    continue
                add(op, [x], axes=axes, keep=bool(rng.random() < 0.5),
                    relative={"f2": 2e-2, "f4": 2e-5}.get(a, 1e-12),
                    absolute={"f2": 5e-1, "f4": 1e-3}.get(a, 1e-10))
    for op in ("argmax", "argmin", "sort", "argsort", "cumsum"):
        for a in DTYPES:
            for _ in range(5):
                shape = tuple(max(1, n) for n in shape_of(rng, 1, 4))
                x = values(rng, a, shape, op != "cumsum")
                if rng.random() < 0.5:
                    x = (x.astype("i8") % 3).astype(a) if a not in ("b1", "f4", "f8", "f2") else x
                add(op, [x], axis=int(rng.integers(0, len(shape))),
                    relative={"f2": 1e-2, "f4": 1e-5}.get(a, 1e-12), absolute={"f2": 1e-1, "f4": 1e-4}.get(a, 0))
    with open(os.path.join(folder, "families.json")) as f:
        numpy_judge_operators.make(rng, add, sys.modules[__name__], DTYPES, json.load(f))
    maker = numpy_judge_operators.Maker(rng, add, sys.modules[__name__])
    numpy_judge_networks.make(maker)
    numpy_judge_layers.make(maker)
    numpy_judge_calls.make(maker, DTYPES)
    for number, order in enumerate(("C", "F")):
        for dtype in DTYPES:
            x = np.asarray(values(rng, dtype, shape_of(rng, 1, 4), True), order=order)
            path = os.path.join(folder, "in_%s_%s.npy" % (dtype, order))
            np.save(path, x.astype(x.dtype.newbyteorder(">")) if number and dtype[1] != "1" else x)
            add("read_npy", [np.ascontiguousarray(x)], path=path)
    np.savez_compressed(os.path.join(folder, "cases.npz"), **arrays)
    with open(os.path.join(folder, "cases.json"), "w") as f:
        json.dump(cases, f)


def draw_subscripts(rng, shape):
    """A list of numbers, ranges [begin, end, step], None (a new axis), "..." and {"a": indices or mask}."""
    axes = len(shape)
    split = int(rng.integers(0, axes + 1))  # where "..." stands, if anywhere
    skipped = int(rng.integers(0, axes - split + 1))
    plan = list(range(split)) + ["..."] + list(range(split + skipped, axes)) if rng.random() < 0.4 else list(
        range(int(rng.integers(0, axes + 1))))
    subscripts, axis_arrays, common = [], rng.random() < 0.5, shape_of(rng, 0, 2)
    i = 0
    while i < len(plan):
        if rng.random() < 0.15 and len(shape) + len(subscripts) < 7:
            subscripts.append(None)
        axis = plan[i]
        i += 1
        if axis == "...":
            subscripts.append("...")
            continue
        size, choice = shape[axis], rng.random()
        if axis_arrays and choice < 0.5 and size > 0:
            dims = tuple(1 if rng.random() < 0.3 else n for n in common)
            subscripts.append({"a": rng.integers(-size, size, dims).astype(rng.choice(["i8", "i4", "i1"]))})
        elif choice < 0.25 and size > 0:
            subscripts.append(int(rng.integers(-size, size)))
        else:
            ends = [None if rng.random() < 0.3 else int(rng.integers(-size - 2, size + 3)) for _ in range(2)]
            subscripts.append(ends + [int(rng.choice([1, 1, 2, 3, -1, -2, 9]))])
    if not any(isinstance(s, dict) for s in subscripts) and "..." not in subscripts and rng.random() < 0.3:
        rank = int(rng.integers(1, axes + 1))  # a mask for the first axes
        subscripts = [{"a": rng.random(shape[:rank]) < 0.5}]
    return subscripts


def as_index(subscripts, arrays):
    arrays = list(arrays)
    return tuple(Ellipsis if s == "..." else slice(*s) if isinstance(s, list) else
                 arrays.pop(0) if isinstance(s, dict) else s for s in subscripts)


def is_defined(op, dtype, scalar):
    """Arithmetic of integer arrays takes whole numbers; quotients what the type holds, and not by zero."""
    if np.dtype(dtype).kind == "f":
        return True
    if isinstance(scalar, float):
        return False
    info = np.iinfo(dtype)
    return "divide" not in op or (info.min <= scalar <= info.max and not (op == "divide_scalar" and scalar == 0))


def with_scalar(op, x, scalar):
    name, first = op.replace("_scalar", "").replace("scalar_", ""), op.startswith("scalar_")
    if op in COMPARISONS and x.dtype.kind != "f":  # Python compares whole numbers and floats by their values
        compare = getattr(operator, {"less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge",
                                     "equal": "eq", "not_equal": "ne"}[name])
        answers = [compare(int(e), scalar) for e in x.reshape(-1)]
        return np.asarray(answers, "b1").reshape(x.shape)
    if x.dtype.kind == "f":
        element = np.asarray(scalar).astype(x.dtype)
    else:
        bits = 8 * x.dtype.itemsize
        element = np.asarray(scalar % 2**bits, "u%d" % x.dtype.itemsize).view(x.dtype)
        if name == "divide":  # towards zero
            one, two = (np.asarray(v).astype(object) for v in ((element, x) if first else (x, element)))
            quotient = np.frompyfunc(lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1), 2, 1)
            wrapped = np.frompyfunc(lambda q: q % 2**bits, 1, 1)(quotient(one, two))
            return np.asarray(wrapped).astype("u%d" % x.dtype.itemsize).view(x.dtype)
    return getattr(np, name)(element, x) if first else getattr(np, name)(x, element)


def total_type(x):
    """Of sums and products of whole numbers and truths."""
    return "u8" if x.dtype == np.dtype("u8") else "i8"


def expected(case, inputs):
    with np.errstate(all="ignore"):
        op = case["op"]
        for part in (numpy_judge_networks, numpy_judge_layers, numpy_judge_calls, numpy_judge_operators):
            more = part.expected(case, inputs)
            if more is not None:
                return more
        if op == "index":
            return inputs[0][as_index(case["subscripts"], inputs[1:])]
        if op == "set_index":
            x = inputs[0].copy()
            x[as_index(case["subscripts"], inputs[2:])] = inputs[1]
            return x
        if "scalar" in case:
            return with_scalar(op, inputs[0], eval(case["scalar"], {"nan": np.nan, "inf": np.inf}))
        if op in ("sum", "prod", "mean", "max", "min", "any", "all", "var"):
            axes = tuple(case["axes"]) or None
            x = inputs[0]
            if op in ("sum", "prod") and x.dtype.kind in "biu":
                return getattr(np, op)(x, axis=axes, keepdims=case["keep"], dtype=total_type(x))
            if op in ("mean", "var", "sum", "prod") and x.dtype == np.dtype("f2"):
                return getattr(np, op)(x.astype("f4"), axis=axes, keepdims=case["keep"]).astype("f2")
            return getattr(np, op)(x, axis=axes, keepdims=case["keep"])
        if op in ("argmax", "argmin", "sort", "argsort", "cumsum"):
            more = {"kind": "stable"} if "sort" in op else {}
            x = inputs[0]
            if op == "cumsum" and x.dtype.kind in "biu":
                more["dtype"] = total_type(x)
            if op == "cumsum" and x.dtype == np.dtype("f2"):
                return np.cumsum(x.astype("f4"), axis=case["axis"]).astype("f2")
            return getattr(np, op)(x, axis=case["axis"], **more)
        if op == "cast":
            target = [k for k, v in NAMES.items() if v == case["type"]][0]
            return inputs[0].astype(target)
        if op == "read_npy":
            return inputs[0]
        return getattr(np, op)(*inputs)


def same(case, got, want):
    if case.get("unordered_type"):
        want = want.astype(got.dtype)
    if got.dtype != want.dtype:
        return "type %s, expected %s" % (got.dtype, want.dtype)
    if got.shape != want.shape:
        return "shape %s, expected %s" % (got.shape, want.shape)
    if got.dtype.kind != "f":
        return "" if np.array_equal(got, want) else "%s, expected %s" % (got, want)
    if case.get("bits"):
        whole = "u%d" % got.dtype.itemsize
        ok = (np.ascontiguousarray(got).view(whole) == np.ascontiguousarray(want).view(whole)) | (
            np.isnan(got) & np.isnan(want))
        return "" if np.all(ok) else "%s, expected %s" % (got, want)
    relative = case.get("relative", 0)
    with np.errstate(all="ignore"):
        ok = np.isclose(got.astype("f8"), want.astype("f8"), rtol=relative,
                        atol=case.get("absolute", 0), equal_nan=True)
    return "" if ok.all() else "%s, expected %s" % (got[~ok][:3], want[~ok][:3])


def check(folder):
    with open(os.path.join(folder, "cases.json")) as f:
        cases = json.load(f)
    with open(os.path.join(folder, "texts.json")) as f:
        texts = json.load(f)
    arrays = np.load(os.path.join(folder, "cases.npz"))
    results = np.load(os.path.join(folder, "results.npz"))
    wrong, counts = [], {}
    for number, case in enumerate(cases):
        op = case["op"]
        counts[op] = counts.get(op, 0) + 1
        inputs = [arrays[key] for key in case["inputs"]]
        key = str(number)
        if op == "print":
            want = text_of(inputs[0])
            problem = "" if texts[key] == want else "\n%s\nexpected\n%s" % (texts[key], want)
        elif op == "promote":
            a, b = ([k for k, v in NAMES.items() if v == t][0] for t in case["types"])
            want = np.promote_types(a, b)
            want = NAMES[want.kind + str(want.itemsize)]
            problem = "" if texts[key] == want else "%s, expected %s" % (texts[key], want)
        else:
            want = np.asarray(expected(case, inputs))
            problem = same(case, results[key], want)
        if problem:
            about = ", ".join("%s%s" % (x.dtype, list(x.shape)) for x in inputs)
            wrong.append("case %d %s(%s): %s" % (number, op, about, problem))
    with open(os.path.join(folder, "families.json")) as f:
        unjudged = numpy_judge_table.missing(counts, json.load(f))
    for line in wrong[:20] + unjudged:
        print(line)
    print("numpy %s: %d cases (%s), %d differ" % (
        np.__version__, len(cases), ", ".join("%s %d" % c for c in sorted(counts.items())), len(wrong)))
    return 1 if wrong or unjudged else 0


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(sys.argv[2], int(sys.argv[3]))
    else:
        sys.exit(check(sys.argv[2]))
