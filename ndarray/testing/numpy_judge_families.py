"""Cases of the families of the operator list, by their rows (families.json) and the table of names of docs/arrays.md."""

import re

import numpy as np

# Of families of the operator list that are judged by their rows: which are not, and why.
UNJUDGED = {"Divide": "integers truncate here", "Power": "negative powers of integers are refused here"}
CLOSE = {"f2": 2e-3, "f4": 1e-6, "f8": 1e-14}


def real_type(dtype):
    dtype = np.dtype(dtype)
    return dtype if dtype.kind == "f" else np.dtype("f4" if dtype.itemsize <= 2 else "f8")


def tolerance(dtype):
    dtype = real_type(dtype).str[1:]
    return dict(relative=CLOSE[dtype], absolute={"f2": 1e-7}.get(dtype, 0))


def numpy_names(path="docs/arrays.md"):
    """Ours to NumPy's, by the table of names: those of a row in turn, where it has as many of both."""
    names = {}
    with open(path) as f:
        text = f.read()
    table = text[text.index("| NumPy | PyTorch | here | difference |"):]
    for line in table.split("\n\n")[0].splitlines()[2:]:
        theirs, _, ours = (re.findall(r"`([^`]+)`|(?<![`\w])(-)(?![`\w])", c) for c in line.replace("\\|", "").split("|")[1:4])
        if len(theirs) == len(ours):
            names.update({our[0]: their[0] for our, their in zip(ours, theirs) if their[0]})
    return names


def make_families(m, dtypes, families):
    """`m`: numpy_judge_operators.Maker."""
    names = numpy_names()
    for family, rows in families.items():
        for code, op in rows:
            if code not in names or code in UNJUDGED or not hasattr(np, names[code]):
                continue
            for dtype in dtypes:
                FAMILIES[family](m, dtype, dtypes, op, dict(numpy=names[code], family=family))


def make_function(m, dtype, dtypes, op, more):
    for _ in range(3):
        x = m.values(dtype, m.tools.shape_of(m.rng), True)
        bound = 1 if m.chance(0.4) else 9  # some functions end at 1, all are finite up to 9
        m.add(op, [np.asarray(np.clip(x, -bound, bound), dtype)], **tolerance(dtype), **more)


def make_number_function(m, dtype, dtypes, op, more):
    if dtype != "b1":
        m.add(op, [m.values(dtype, m.tools.shape_of(m.rng), True)], **tolerance(dtype), **more)


def make_pair(m, dtype, dtypes, op, more):
    for other in dtypes:
        kinds = np.dtype(dtype).kind + np.dtype(other).kind
        one, two = (m.values(t, shape, True) for t, shape in zip((dtype, other), m.tools.broadcasting_pair(m.rng)))
        family = more["family"]
        if family == "arithmetic":
            if "b" in kinds and ("m" in op or kinds == "bb"):  # quotients, remainders and extremes of truths
                continue
            if "f" not in kinds and op in ("remainder", "fmod", "floor_divide"):
                two = np.where(two == 0, np.asarray(3, other), two)
        elif family == "bits":
            if "f" in kinds or (op[:3] in ("shi", "gcd", "lcm") and "b" in kinds) or np.promote_types(dtype, other).kind == "f":
                continue
            if op[0] == "s":
                two = np.asarray(np.clip(two, -3, 70), other)
        elif family == "logic" and kinds != "bb":
            continue
        close = tolerance(np.promote_types(dtype, other)) if family.endswith("arithmetic") else {}
        m.add(op, [one, two], **close, **more)


def make_classifier(m, dtype, dtypes, op, more):
    m.add(op, [m.values(dtype, m.tools.shape_of(m.rng), True)], **more)


FAMILIES = {"functions": make_function, "number_functions": make_number_function, "classifiers": make_classifier,
            "arithmetic": make_pair, "real_arithmetic": make_pair, "bits": make_pair, "comparisons": make_pair,
            "logic": make_pair}


def expected_of_family(case, inputs):
    function, family = getattr(np, case["numpy"]), case["family"]
    if family == "functions":
        return function(inputs[0].astype(real_type(inputs[0].dtype)))
    if len(inputs) == 1:
        return function(inputs[0])
    types = [x.dtype for x in inputs]
    common = np.promote_types(*types)
    if family == "real_arithmetic":
        common = real_type(common)
    return function(*(x.astype(common) for x in inputs))
