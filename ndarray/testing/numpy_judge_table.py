"""Which cases judge each name of the table of names in docs/arrays.md. A name that none judges and that nothing else does is an
error, as is a case that is named here and was not drawn.
"""

import re

from numpy_judge_families import UNJUDGED, numpy_names

# Names of calls to those of their cases, where they are not the same in small letters.
CASES = {
    "Divide": "divide", "Power": "power", "Where": "where where_number", "CopyInto": "copy_into cast", "Cast": "cast",
    "Variance": "var", "ArgMax": "argmax", "ArgMin": "argmin",
    "Norm1": "norm1", "Norm2": "norm2", "NormInf": "norm_of_largest",
    "Norm": "norm_fro norm_nuc norm_2 norm_1 norm_inf", "Qr": "qr_product qr_gram qr_sizes",
    "Lu": "lu_product lu_upper", "Svd": "svd_product svd_gram", "SymmetricEigen": "symmetric_eigenvalues eigen_product",
    "GeneralEigen": "eigen_sums", "SignAndLogDeterminant": "log_determinant sign_of_determinant", "CumSum": "cumsum cumsum_more",
    "CumProd": "cumprod cumprod_more", "Sort": "sort sort_descending", "ArgSort": "argsort argsort_descending",
    "TopK": "topk_values topk_places", "NonZero": "nonzero", "ArgWhere": "argwhere", "Unique": "unique",
    "UniqueAll": "unique_values unique_first unique_inverse unique_counts", "BinCount": "bincount",
    "Histogram": "histogram histogram_edges", "Gather": "take gather_elements", "ScatterAddInto": "scatter_add",
    "LowerTriangularMask": "tri", "Split": "split split_sizes", "MatMul": "matmul", "TensorDot": "tensordot", "Empty": "fill",
    "FillInto": "fill", "Gelu": "gelu gelu_tanh", "Conv1d": "convolution", "Conv2d": "convolution", "Conv3d": "convolution",
    "Conv1dTranspose": "convolution_transpose", "Conv2dTranspose": "convolution_transpose",
    "Conv3dTranspose": "convolution_transpose", "Resize2d": "resize", "MaxPool2d": "max_pool", "AveragePool2d": "average_pool",
    "GlobalMaxPool2d": "global_max_pool", "GlobalAveragePool2d": "global_average_pool",
    "MeanAbsoluteError": "absolute_error", "AdaGradUpdate": "adagrad_update",
}
# What neither judges here, by the end of its name or all of it, and what does.
ELSEWHERE = {
    r".*Grad(Input|FilterInto|Into)?|Gradients|HasGradients|AddGradient": "differences: ndarray/testing/gradients_test",
    r"GradientTape|NoGradientScope|Recomputed|SetGradient|Is.*(Recorded|Used)|BackwardPlacement|GradientListener|KeptArrayStore":
        "differences: ndarray/gradient",
    r".*OutputShape|StatisticsType|Check.*Labels": "shapes, types and refusals: ndarray/ops",
    r"Random.*|Shuffle|Dropout": "moments and known answers: ndarray/ops/random_test",
    r"ElementwiseChain|SumToLastAxisInto|UpdateRunningAverages": "the bits of what they put together: ndarray/ops",
}


def names():
    """Ours, without NDArray::."""
    with open("docs/arrays.md") as f:
        text = f.read()
    table = text[text.index("| NumPy | PyTorch | here | difference |"):].split("\n\n")[0].splitlines()[2:]
    return [name.split("::")[-1] for line in table for name in re.findall(r"`([^`]+)`", line.replace("\\|", "").split("|")[3])]


def small(name):
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def missing(counts, families):
    """Lines about names without a judge; `counts`: of each case's name."""
    lines = []
    of_rows = {code: op for rows in families.values() for code, op in rows}
    for name in names():
        ops = (CASES.get(name) or of_rows.get(name) or small(name)).split()
        elsewhere = [reason for pattern, reason in ELSEWHERE.items() if re.fullmatch(pattern, name)]
        if elsewhere and (name in CASES or any(op in counts for op in ops)):
            lines.append("%s is judged here, and is said to be elsewhere: %s" % (name, elsewhere[0]))
        if not elsewhere:
            lines += ["%s of docs/arrays.md: no case %s" % (name, op) for op in ops if op not in counts]
    lines += ["%s of no table has cases" % name for name in CASES if name not in names()]
    return lines + ["%s has no name of NumPy to be judged by" % name for name in UNJUDGED if name not in numpy_names()]
