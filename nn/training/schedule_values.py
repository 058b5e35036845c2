"""Writes schedule_values.txt: factors of learning rates, step by step, as PyTorch's schedulers give them.

    python3 schedule_values.py > schedule_values.txt

Each line: the name of a case in schedule_test.cc and its factors from step 0 on. Where PyTorch has no such scheduler, or has it
only up to its last step, the definition is written out here (LambdaLR).
"""

import math
import warnings

import torch
from torch.optim import lr_scheduler as by

STEPS = 30


def factors(make, steps=STEPS):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))], lr=1.0)
    scheduler = make(optimizer)
    rates = []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


def behind_warmup(optimizer):
    return by.SequentialLR(optimizer, [by.LinearLR(optimizer, 0.25, 1.0, total_iters=6), by.StepLR(optimizer, 5, 0.5)], [6])


CASES = {
    "constant": lambda o: by.LambdaLR(o, lambda t: 1.0),
    "exponential": lambda o: by.ExponentialLR(o, 0.9),
    "inverse": lambda o: by.LambdaLR(o, lambda t: 1 / (1 + 0.5 * t)),
    "inverse_root": lambda o: by.LambdaLR(o, lambda t: 1 / math.sqrt(1 + 2 * t)),
    "polynomial": lambda o: by.PolynomialLR(o, 20, 2.0),
    "polynomial_to_a_tenth": lambda o: by.LambdaLR(o, lambda t: 0.1 + 0.9 * (1 - min(t, 20) / 20)),
    "step": lambda o: by.StepLR(o, 7, 0.3),
    "multi_step": lambda o: by.MultiStepLR(o, [4, 5, 21], 0.5),
    "cosine": lambda o: by.LambdaLR(o, lambda t: 0.01 + 0.99 * (1 + math.cos(math.pi * min(t, 20) / 20)) / 2),
    "cosine_restarts": lambda o: by.CosineAnnealingWarmRestarts(o, 4, 2, eta_min=0.05),
    "cosine_restarts_alike": lambda o: by.CosineAnnealingWarmRestarts(o, 9),
    "one_cycle": lambda o: by.OneCycleLR(o, 1.0, total_steps=STEPS + 1, pct_start=0.25),
    "one_cycle_steep": lambda o: by.OneCycleLR(o, 1.0, total_steps=STEPS + 1, pct_start=0.5, div_factor=10, final_div_factor=100),
    "table": lambda o: by.LambdaLR(o, lambda t: 1.0 if t < 3 else 0.25 if t < 17 else 0.0625),
    "behind_warmup": behind_warmup,
}

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for name, make in CASES.items():
        print(name, *(repr(float(rate)) for rate in factors(make)))
