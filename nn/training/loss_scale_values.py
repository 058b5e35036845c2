"""Writes loss_scale_values.txt: the scale that PyTorch's GradScaler has after each step, and which steps it does.

    python3 loss_scale_values.py > loss_scale_values.txt

Each line: first scale, growth, backoff, growth interval, the steps ("." where gradients are finite, "n" for NaN, "i" for an
infinity among them), then for each step the scale behind it, negative where the parameter was not updated.
"""

import torch

CASES = [
    (8, 2, 0.5, 3, "......n..i...nn......"),
    (65536, 2, 0.5, 4, "iiii....." + "." * 12 + "n...."),
    (1024, 4, 0.25, 2, "..n..i.n....."),
    (2, 2, 0.5, 1, "....nnnn...."),
]

for first, growth, backoff, interval, steps in CASES:
    parameter = torch.nn.Parameter(torch.zeros(4))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=float(first), growth_factor=growth,
                                  backoff_factor=backoff, growth_interval=interval)
    scales = []
    for kind in steps:
        before = parameter.detach().clone()
        optimizer.zero_grad()
        scaler.scale((parameter * torch.ones(4)).sum()).backward()
        if kind != ".":
            parameter.grad[1] = float("nan" if kind == "n" else "inf")
        scaler.step(optimizer)
        scaler.update()
        done = not torch.equal(before, parameter.detach())
        scales.append(f"{'' if done else '-'}{scaler.get_scale():g}")
    print(first, growth, backoff, interval, steps, *scales)
