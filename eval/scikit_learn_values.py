"""Writes scikit_learn_values.txt: measures as scikit-learn 1.9.1, SciPy and NumPy compute them on generated data.

    python3 scikit_learn_values.py > scikit_learn_values.txt      # needs scikit-learn; no test does

Each line: the name of a case in scikit_learn_test.cc, then its numbers. Data come from a generator that the test repeats; scores
and weights have few bits, so that both read the same numbers.
"""

import warnings

import numpy as np
from scipy import stats
from sklearn import calibration
from sklearn import metrics as m

warnings.simplefilter("ignore")


class Lcg:
    """Knuth's, its upper 31 bits."""

    def __init__(self, seed):
        self.state = seed

    def next(self, below):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) % below


def show(name, *numbers):
    flat = [float(x) for number in numbers for x in np.ravel(number)]
    print(name, *(repr(x) for x in flat))


def binary(seed, n=400):
    lcg = Lcg(seed)
    labels, scores, weights = [], [], []
    for _ in range(n):
        label = lcg.next(3) == 0
        labels.append(int(label))
        scores.append((lcg.next(768) + 256 * label) / 1024)
        weights.append(lcg.next(9) / 4)
    return np.array(labels), np.array(scores), np.array(weights)


def floored(scores, steps):
    grid = np.arange(steps + 1) / steps
    return grid[np.searchsorted(grid, scores, side="right") - 1]


def curves(name, labels, scores, weights):
    show(name + "/auc", m.roc_auc_score(labels, scores, sample_weight=weights))
    show(name + "/average_precision", m.average_precision_score(labels, scores, sample_weight=weights))
    precision, recall, _ = m.precision_recall_curve(labels, scores, sample_weight=weights)
    show(name + "/auprc", m.auc(recall, precision))
    show(name + "/roc_curve", *zip(*m.roc_curve(labels, scores, sample_weight=weights)))
    precision, recall, thresholds = m.precision_recall_curve(labels, scores, sample_weight=weights)
    show(name + "/pr_curve", *reversed(list(zip(recall, precision, np.append(thresholds, np.inf)))))


def roc():
    labels, scores, weights = binary(1)
    keep = weights > 0  # scikit-learn lists thresholds of weight 0, which change no area
    for name, weight in (("roc", None), ("roc_weighted", weights[keep])):
        y, x = (labels, scores) if weight is None else (labels[keep], scores[keep])
        curves(name, y, x, weight)
        for steps in (10, 64):
            curves(f"{name}_{steps}", y, floored(x, steps), weight)


def many_classes(seed, n=300, classes=5):
    lcg = Lcg(seed)
    labels, scores, weights = [], [], []
    for _ in range(n):
        label = lcg.next(classes)
        cuts = sorted(lcg.next(513) for _ in range(classes - 1))
        parts = np.diff([0] + cuts + [512])
        if lcg.next(2):  # the label's is the largest
            largest = int(np.argmax(parts))
            parts[label], parts[largest] = parts[largest], parts[label]
        labels.append(label)
        scores.append(parts / 512)
        weights.append(lcg.next(9) / 4)
    return np.array(labels), np.array(scores), np.array(weights)


def classes():
    y, p, weights = many_classes(2)
    every = list(range(5))
    said = p.argmax(1)
    for name, w in (("classes", None), ("classes_weighted", weights)):
        show(name + "/accuracy", m.accuracy_score(y, said, sample_weight=w))
        show(name + "/confusion", m.confusion_matrix(y, said, labels=every, sample_weight=w))
        show(name + "/each", *(s for s in m.precision_recall_fscore_support(
            y, said, labels=every, sample_weight=w, zero_division=0)[:3]))
        for average in ("macro", "micro", "weighted"):
            show(f"{name}/{average}", m.precision_recall_fscore_support(
                y, said, labels=every, average=average, sample_weight=w, zero_division=0)[:3])
        show(name + "/matthews", m.matthews_corrcoef(y, said, sample_weight=w))
        show(name + "/matthews_each", *(m.matthews_corrcoef(y == c, said == c, sample_weight=w) for c in every))
        show(name + "/kappa", m.cohen_kappa_score(y, said, sample_weight=w))
        for k in (2, 3):
            show(f"{name}/top_{k}", np.average(
                [(row > row[label]).sum() < k for label, row in zip(y, p)], weights=w))  # ties in favour, as DL4J
        show(name + "/auc_each", *(m.roc_auc_score(y == c, p[:, c], sample_weight=w) for c in every))
        show(name + "/auc", *(m.roc_auc_score(y, p, multi_class="ovr", average=average, sample_weight=w)
                              for average in ("macro", "weighted")))
        show(name + "/average_precision", *(m.average_precision_score(y == c, p[:, c], sample_weight=w) for c in every))
        one_hot = np.eye(5)[y]
        show(name + "/brier", np.average(((p - one_hot)**2).sum(1), weights=w))
    show("classes/brier_by_name", m.brier_score_loss(y, p, scale_by_half=False, labels=every))
    for c in every:
        true, predicted = calibration.calibration_curve(y == c, p[:, c], n_bins=7)
        show(f"reliability/{c}", *zip(predicted, true))
        show(f"probabilities/{c}", np.histogram(p[:, c], 8, (0, 1))[0], np.histogram(p[:, c], 8, (0, 1), weights=weights)[0])
        residuals = np.abs((y == c) - p[:, c])
        show(f"residuals/{c}", np.histogram(residuals, 8, (0, 1))[0], np.histogram(residuals, 8, (0, 1), weights=weights)[0])
    right, confidence = calibration.calibration_curve(y == said, p.max(1), n_bins=7)
    show("confidence", *zip(confidence, right))
    bins = np.searchsorted(np.linspace(0, 1, 8)[1:-1], p.max(1))
    for name, w in (("calibration_error", np.ones(len(y))), ("calibration_error_weighted", weights)):
        gaps = [abs((w * (p.max(1) - (y == said)))[bins == b].sum()) for b in range(7)]
        shares = [w[bins == b].sum() for b in range(7)]
        show(name, sum(gaps) / w.sum(), max(g / s for g, s in zip(gaps, shares) if s))


def outputs():
    lcg = Lcg(3)
    n, columns = 250, 4
    y, p, w = (np.zeros((n, columns)) for _ in range(3))
    for i in range(n):
        for c in range(columns):
            y[i, c] = lcg.next(c + 2) == 0
            p[i, c] = (lcg.next(768) + 256 * y[i, c]) / 1024
            w[i, c] = lcg.next(4) != 0
    thresholds = [0.5, 0.25, 0.75, 0.5]
    all_y, all_said, said = [], [], p > thresholds
    for c in range(columns):
        k = w[:, c] > 0
        show(f"outputs/{c}", m.accuracy_score(y[k, c], said[k, c]), m.precision_score(y[k, c], said[k, c]),
             m.recall_score(y[k, c], said[k, c]), m.f1_score(y[k, c], said[k, c]), m.matthews_corrcoef(y[k, c], said[k, c]),
             m.confusion_matrix(y[k, c], said[k, c]), m.roc_auc_score(y[k, c], p[k, c]))
        all_y.append(y[k, c])
        all_said.append(said[k, c])
    y_flat, said_flat = np.concatenate(all_y), np.concatenate(all_said)
    show("outputs/micro", m.precision_recall_fscore_support(y_flat, said_flat, average="binary")[:3])
    for average in ("macro", "weighted", "micro"):
        show(f"outputs_whole/{average}", m.precision_recall_fscore_support(y, said, average=average, zero_division=0)[:3])


def regression():
    lcg = Lcg(4)
    n = 300
    y, p = np.zeros((n, 3)), np.zeros((n, 3))
    w = np.zeros(n)
    for i in range(n):
        for c, (offset, spread) in enumerate(((0, 8), (1048576, 1), (-3, 0.015625))):
            y[i, c] = offset + spread * lcg.next(4096) / 4096
            p[i, c] = y[i, c] + spread * (lcg.next(2048) - 900) / 4096
        w[i] = lcg.next(9) / 4
    for name, weight in (("regression", None), ("regression_weighted", w)):
        for c in range(3):
            t, s = y[:, c], p[:, c]
            r2 = m.r2_score(t, s, sample_weight=weight)
            # SciPy takes no weights; numpy.cov does.
            cov = np.cov(t - t[0], s - s[0], aweights=weight)
            correlation = stats.pearsonr(t, s)[0] if weight is None else cov[0, 1] / np.sqrt(cov[0, 0] * cov[1, 1])
            show(f"{name}/{c}", m.mean_squared_error(t, s, sample_weight=weight),
                 m.mean_absolute_error(t, s, sample_weight=weight),
                 m.root_mean_squared_error(t, s, sample_weight=weight), 1 - r2, r2, correlation)
        show(name + "/mean", m.mean_squared_error(y, p, sample_weight=weight), m.mean_absolute_error(y, p, sample_weight=weight),
             m.root_mean_squared_error(y, p, sample_weight=weight), m.r2_score(y, p, sample_weight=weight))


def edges():
    """What there is no obvious answer to."""
    show("edge/auc_one_class", m.roc_auc_score([1, 1], [0.2, 0.4]))
    show("edge/auc_constant", m.roc_auc_score([0, 1, 1], [0.5, 0.5, 0.5]))
    show("edge/average_precision_constant", m.average_precision_score([0, 1, 1], [0.5, 0.5, 0.5]))
    show("edge/average_precision_all_positive", m.average_precision_score([1, 1], [0.2, 0.4]))
    show("edge/average_precision_no_positive", m.average_precision_score([0, 0], [0.2, 0.4]))
    show("edge/kappa_one_class", m.cohen_kappa_score([0, 0], [0, 0], labels=[0, 1]))
    show("edge/kappa_one_class_said", m.cohen_kappa_score([0, 1], [0, 0]))
    show("edge/matthews_one_class", m.matthews_corrcoef([0, 0], [0, 0]))
    show("edge/r2_constant_right", m.r2_score([3, 3], [3, 3]))
    show("edge/r2_constant_wrong", m.r2_score([3, 3], [3, 4]))
    show("edge/r2_one_example", m.r2_score([3], [4]))
    show("edge/correlation_constant", stats.pearsonr([1, 2, 3], [5, 5, 5])[0])


roc()
classes()
outputs()
regression()
edges()
