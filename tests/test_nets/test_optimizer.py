"""Adam and its clipped gradient against plain loops of the reference's formula."""

import math
import random

import pytest
import torch
from torch import nn

from nets.optimizer import NamedAdam

torch.set_num_threads(1)


def test_steps_are_adam_s_on_the_globally_clipped_gradient() -> None:
    draw = random.Random(3)
    values = {"one": [draw.gauss(0, 1) for _ in range(5)], "two": [0.5, -2.0]}
    parameters = {
        n: nn.Parameter(torch.tensor(of, dtype=torch.float64)) for n, of in values.items()
    }
    adam = NamedAdam(parameters)
    first = {name: [0.0] * len(of) for name, of in values.items()}
    second = {name: [0.0] * len(of) for name, of in values.items()}
    # Norms on both sides of 1: a gradient below it is left as it is.
    for step, (size, lr) in enumerate(
        [(3.0, 0.1), (0.1, 0.05), (1.0, 0.02), (9.0, 0.01)], 1
    ):
        given = {n: [size * draw.gauss(0, 1) for _ in of] for n, of in values.items()}
        for name, parameter in parameters.items():
            parameter.grad = 64 * torch.tensor(given[name], dtype=torch.float64)
        norm = math.sqrt(sum(g * g for of in given.values() for g in of))
        assert adam.clip(64.0).item() == pytest.approx(norm)
        adam.step(lr)
        for name, of in values.items():
            for i, g in enumerate(given[name]):
                clipped = g * min(1.0, 1.0 / norm)
                first[name][i] = 0.9 * first[name][i] + 0.1 * clipped
                second[name][i] = 0.999 * second[name][i] + 0.001 * clipped**2
                mean = first[name][i] / (1 - 0.9**step)
                spread = math.sqrt(second[name][i] / (1 - 0.999**step))
                of[i] -= lr * mean / (spread + 1e-8)
            found = parameters[name].tolist()
            # clip_grad_norm_ divides by the norm and 1e-6.
            assert found == pytest.approx(of, abs=1e-6), f"step {step}, {name}"
