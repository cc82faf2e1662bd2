"""Adam, Muon and the clipped gradient against plain loops of their formulas."""

import math
import random

import pytest
import torch
from torch import nn

from conf.training import OptimizerKind
from nets.optimizer import NamedOptimizer

torch.set_num_threads(1)
OPTIMIZERS: list[OptimizerKind] = ["adam", "muon"]


def test_steps_are_adam_s_on_the_globally_clipped_gradient() -> None:
    draw = random.Random(3)
    values = {"one": [draw.gauss(0, 1) for _ in range(5)], "two": [0.5, -2.0]}
    parameters = {
        n: nn.Parameter(torch.tensor(of, dtype=torch.float64)) for n, of in values.items()
    }
    adam = NamedOptimizer(parameters)
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


Matrix = list[list[float]]


def product(left: Matrix, right: Matrix) -> Matrix:
    columns = [*zip(*right, strict=True)]
    return [[sum(a * b for a, b in zip(r, c, strict=True)) for c in columns] for r in left]


def turned(of: Matrix) -> Matrix:
    return [list(row) for row in zip(*of, strict=True)]


def total(*parts: tuple[float, Matrix]) -> Matrix:
    rows, columns = len(parts[0][1]), len(parts[0][1][0])
    return [
        [sum(factor * of[i][j] for factor, of in parts) for j in range(columns)]
        for i in range(rows)
    ]


def near_orthogonal(of: Matrix) -> Matrix:
    """Five Newton-Schulz steps of the quintic of Muon's source, the shorter side first."""
    is_tall = len(of) > len(of[0])
    x = turned(of) if is_tall else of
    norm = math.sqrt(sum(value**2 for row in x for value in row))
    x = total((1 / norm, x))
    for _ in range(5):
        gram = product(x, turned(x))
        x = total(
            (3.4445, x),
            (1.0, product(total((-4.775, gram), (2.0315, product(gram, gram))), x)),
        )
    return turned(x) if is_tall else x


@pytest.mark.parametrize(("rows", "columns"), [(3, 5), (5, 3), (4, 4)])
def test_muon_moves_a_matrix_along_its_near_orthogonal_momentum(
    rows: int, columns: int
) -> None:
    draw = random.Random(5)
    weight = [[draw.gauss(0, 1) for _ in range(columns)] for _ in range(rows)]
    momentum = total((0.0, weight))
    parameter = nn.Parameter(torch.tensor(weight))
    muon = NamedOptimizer({"matrix": parameter}, "muon")
    for lr in (0.1, 0.05, 0.02):
        gradient = [[draw.gauss(0, 0.1) for _ in range(columns)] for _ in range(rows)]
        parameter.grad = torch.tensor(gradient)
        muon.step(lr)
        momentum = total((0.95, momentum), (0.05, gradient))
        ahead = near_orthogonal(total((0.95, momentum), (0.05, gradient)))
        size = 0.2 * math.sqrt(max(rows, columns))
        moved = total((1.0, weight), (-lr * size, ahead))
        # The iteration is in bf16: 8 bits, five times.
        allowed = 0.03 * lr * size
        for found, due in zip(parameter.tolist(), moved, strict=True):
            assert found == pytest.approx(due, abs=allowed)
        weight = parameter.tolist()


def test_muon_leaves_vectors_and_stacks_to_adam() -> None:
    draw = torch.Generator().manual_seed(7)
    shapes = {"gain": (4,), "experts": (2, 3, 4)}
    moved = {}
    for kind in OPTIMIZERS:
        draw.manual_seed(7)
        parameters = {
            n: nn.Parameter(torch.randn(of, generator=draw)) for n, of in shapes.items()
        }
        optimizer = NamedOptimizer(parameters, kind)
        for parameter in parameters.values():
            parameter.grad = torch.randn(parameter.shape, generator=draw)
        optimizer.step(0.1)
        moved[kind] = parameters
    for name in shapes:
        assert torch.equal(moved["adam"][name], moved["muon"][name])
