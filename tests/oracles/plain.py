"""What the plain models share: what their tensors don't say, norms, the sigmoid. f64."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float64]
Tensors = Mapping[str, Rows]


@dataclass(frozen=True)
class YarnOracle:
    factor: float
    original: int
    beta_fast: float
    beta_slow: float
    attention_factor: float


@dataclass(frozen=True)
class Plain:
    """What the tensors don't say."""

    layers: int
    head_dim: int
    eps: float
    theta: float
    yarn: YarnOracle | None = None
    partial: float = 1.0  # the share of a head that is turned
    is_interleaved: bool = False  # pairs (2i, 2i + 1) are turned, else (i, i + half)
    is_gemma: bool = False  # norms multiply by 1 + w
    window: int | None = None  # of the layers in `windowed`
    windowed: Sequence[int] = ()
    unrotated: Sequence[int] = ()
    key_dim: int = 0  # of a delta net's head
    value_dim: int = 0
    top_k: int = 0
    renormalises: bool = True
    routes_by_sigmoid: bool = False
    routed_scale: float = 1.0

    @property
    def rotary_dim(self) -> int:
        return int(self.head_dim * self.partial)


def norm(row: Rows, gain: Rows, eps: float) -> Rows:
    return row / math.sqrt(float(np.mean(row**2)) + eps) * gain


def gain_of(tensors: Tensors, name: str, plain: Plain) -> Rows:
    """What a norm multiplies by, of its stored weight."""
    return tensors[name] + 1 if plain.is_gemma else tensors[name]


def sigmoid(x: Rows) -> Rows:
    return np.asarray(1 / (1 + np.exp(-x)))
