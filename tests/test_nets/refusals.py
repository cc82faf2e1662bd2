"""Tiny models spoilt in their tensors, and what a trunk's geometry says of them."""

import pytest
import torch

from nets.errors import ModelError
from nets.geometry import trunk_geometry
from tests.builders import TinyModel, model_of


def without(model: TinyModel, name: str) -> TinyModel:
    tensors = model.tensors
    del tensors[name]
    return model_of(model.arch, tensors)


def with_shape(model: TinyModel, name: str, *shape: int) -> TinyModel:
    return model_of(model.arch, model.tensors | {name: torch.zeros(*shape)})


def refusal(model: TinyModel) -> str:
    with pytest.raises(ModelError) as caught:
        trunk_geometry(model.arch, model.shapes)
    return str(caught.value)
