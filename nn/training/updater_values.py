"""Writes updater_values.txt: parameters after twelve steps of PyTorch's optimizers, in double.

    python3 updater_values.py > updater_values.txt

Each line: the name of a case in updater_values_test.cc and the six parameters, which are two arrays, of two and of four elements.
Element j begins at (j - 2) / 4 and has the gradient sin(0.7 * step + j) + 0.2 * j - 0.4 in step 0, 1, ...
"""

import math

import torch

STEPS = 12
SGD, ADAM, ADAMW, ADAGRAD, RMSPROP = (
    torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad, torch.optim.RMSprop)


def run(make, clip=lambda parameters: None, l1=0.0, schedule=None, groups=({}, {}), frozen=False):
    values = [[(j - 2) / 4 for j in range(6)][a:b] for a, b in ((0, 2), (2, 6))]
    parameters = [torch.nn.Parameter(torch.tensor(v, dtype=torch.float64)) for v in values]
    optimizer = make([dict(params=[p], **g) for p, g in zip(parameters, groups)][: 1 if frozen else 2])
    scheduler = schedule(optimizer) if schedule else None
    for step in range(STEPS):
        for first, p in zip((0, 2), parameters):
            p.grad = torch.tensor([math.sin(0.7 * step + j) + 0.2 * j - 0.4 for j in range(first, first + p.numel())],
                                  dtype=torch.float64)
        if frozen:
            parameters[1].grad = None
        clip(parameters)
        for p in parameters:
            if l1:
                p.grad += l1 * torch.sign(p.detach())
        optimizer.step()
        if scheduler:
            scheduler.step()
    return torch.cat([p.detach() for p in parameters]).tolist()


def each(limit):
    return lambda parameters: [torch.nn.utils.clip_grad_norm_([p], limit) for p in parameters]


def together(limit):
    return lambda parameters: torch.nn.utils.clip_grad_norm_(parameters, limit)


CASES = {
    "sgd": lambda: run(lambda p: SGD(p, lr=0.1)),
    "sgd_l2": lambda: run(lambda p: SGD(p, lr=0.1, weight_decay=0.3)),
    "sgd_l1": lambda: run(lambda p: SGD(p, lr=0.1), l1=0.3),
    "sgd_clipped_values": lambda: run(lambda p: SGD(p, lr=0.1), lambda p: torch.nn.utils.clip_grad_value_(p, 0.5)),
    "sgd_clipped_each": lambda: run(lambda p: SGD(p, lr=0.1, weight_decay=0.3), each(0.5)),
    "sgd_clipped_together": lambda: run(lambda p: SGD(p, lr=0.1), together(0.75)),
    "sgd_clipped_without_frozen": lambda: run(lambda p: SGD(p, lr=0.1), together(0.75), frozen=True),
    "sgd_step": lambda: run(lambda p: SGD(p, lr=0.1), schedule=lambda o: torch.optim.lr_scheduler.StepLR(o, 5, 0.5)),
    "nesterovs": lambda: run(lambda p: SGD(p, lr=0.02, momentum=0.9, nesterov=True)),
    "adagrad": lambda: run(lambda p: ADAGRAD(p)),
    "adagrad_l2": lambda: run(lambda p: ADAGRAD(p, lr=0.1, eps=0.001, weight_decay=0.3)),
    "rmsprop": lambda: run(lambda p: RMSPROP(p)),
    "rmsprop_l2": lambda: run(lambda p: RMSPROP(p, lr=0.1, alpha=0.8, eps=0.001, weight_decay=0.3)),
    "adam": lambda: run(lambda p: ADAM(p)),
    "adam_l2": lambda: run(lambda p: ADAM(p, lr=0.1, betas=(0.8, 0.95), eps=0.001, weight_decay=0.3)),
    "adam_clipped_together": lambda: run(lambda p: ADAM(p, eps=1), together(0.75)),
    "adamw": lambda: run(lambda p: ADAMW(p)),
    "adamw_groups": lambda: run(lambda p: ADAMW(p, lr=0.1, weight_decay=0.3), groups=({}, dict(weight_decay=0, lr=0.05))),
}

if __name__ == "__main__":
    for name, make in CASES.items():
        print(name, *(repr(value) for value in make()))
