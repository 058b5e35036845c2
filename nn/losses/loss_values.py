"""Writes loss_values.txt: means of losses and their gradients as PyTorch computes them, in double.

    python3 loss_values.py > loss_values.txt

Each line: the name of a case in loss_test.cc, the mean, and its gradient with respect to the output, row-major. Element i of an
output is 2 * sin(0.9 * i + 0.3), of labels like it sin(1.7 * i), and a label is 2 * i modulo 5.
"""

import torch
import torch.nn.functional as F


def output(*shape):
    i = torch.arange(torch.Size(shape).numel(), dtype=torch.float64)
    return (2 * torch.sin(0.9 * i + 0.3)).reshape(shape).requires_grad_()


def like(*shape):
    i = torch.arange(torch.Size(shape).numel(), dtype=torch.float64)
    return torch.sin(1.7 * i).reshape(shape)


def classes(n):
    return 2 * torch.arange(n) % 5


def shares(*shape):
    return F.softmax(like(*shape), -1)


WEIGHTS = torch.tensor([1, 2, 0.5, 0, 3], dtype=torch.float64)
# Lengths of four sequences of at most six.
MASK = torch.arange(6)[None] < torch.tensor([6, 4, 1, 0])[:, None]


def masked_classes(x, **more):
    labels = torch.where(MASK, classes(24).reshape(4, 6), -100)
    return F.cross_entropy(x.reshape(24, 5), labels.reshape(24), ignore_index=-100, **more)


def ctc(x, blank=0):
    labels = torch.tensor([[1, 1, 2], [3, 1, 0], [2, 0, 0]])
    if blank:
        labels = torch.where(labels == 0, 0, labels - 1)
    return F.ctc_loss(F.log_softmax(x, -1).transpose(0, 1), labels, torch.tensor([7, 5, 4]), torch.tensor([3, 2, 1]), blank,
                      "none").mean()


CASES = {
    "softmax_cross_entropy": ((12, 5), lambda x: F.cross_entropy(x, classes(12))),
    "softmax_cross_entropy_of_shares": ((12, 5), lambda x: F.cross_entropy(x, shares(12, 5))),
    "smoothed": ((12, 5), lambda x: F.cross_entropy(x, classes(12), label_smoothing=0.2)),
    "weighted": ((12, 5), lambda x: F.cross_entropy(x, classes(12), WEIGHTS)),
    "weighted_and_smoothed": ((12, 5), lambda x: F.cross_entropy(x, classes(12), WEIGHTS, label_smoothing=0.2)),
    "masked": ((4, 6, 5), masked_classes),
    "masked_and_weighted": ((4, 6, 5), lambda x: masked_classes(x, weight=WEIGHTS)),
    "binary_cross_entropy": ((4, 6), lambda x: F.binary_cross_entropy_with_logits(x, like(4, 6) ** 2)),
    "squared_error": ((4, 6), lambda x: F.mse_loss(x, like(4, 6))),
    "squared_error_masked": ((4, 6), lambda x: F.mse_loss(x[MASK], like(4, 6)[MASK])),
    "absolute_error": ((4, 6), lambda x: F.l1_loss(x, like(4, 6))),
    "huber": ((4, 6), lambda x: F.huber_loss(x, like(4, 6), delta=0.7)),
    "hinge": ((4, 6), lambda x: torch.clamp(1 - torch.sign(like(4, 6)) * x, min=0).mean()),
    "kullback_leibler": ((4, 5), lambda x: F.kl_div(F.log_softmax(x, -1), shares(4, 5), reduction="batchmean")),
    "poisson": ((4, 6), lambda x: F.poisson_nll_loss(x, like(4, 6) ** 2, log_input=True)),
    "cosine_proximity": ((4, 6), lambda x: (1 - F.cosine_similarity(x, like(4, 6))).mean()),
    "ctc": ((3, 7, 4), ctc),
    "ctc_last_is_blank": ((3, 7, 4), lambda x: ctc(x, 3)),
}

if __name__ == "__main__":
    for name, (shape, loss) in CASES.items():
        x = output(*shape)
        mean = loss(x)
        mean.backward()
        print(name, repr(mean.item()), *("%.15g" % g for g in x.grad.reshape(-1).tolist()))
