"""The frozen trunk: `transformers` modules built empty, then given the container's tensors.

Legend: B windows, T positions, H hidden, V vocabulary, R rows. Tensors arrive through
`read(name)`, so any container serves. A module is never moved by `.to(dtype)`: that would
round the rotary's `inv_freq` to bf16 too and with it every position.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from cmfio.header import Arch
from nets.families import Family, Shapes
from nets.geometry import EMBED, FINAL_NORM, HEAD, TrunkGeometry, trunk_geometry
from nets.hf_layer import (
    Read,
    empty_layer,
    family_class,
    new_rotary,
    trunk_config,
    trunk_layer_state,
)
from nets.layer import Surroundings, apart, compiled_layer, run_layer, seen_in_window
from nets.records import positions_in

__all__ = ["Read", "Shared", "Trunk", "build_layer", "build_shared", "build_trunk"]


@dataclass(frozen=True)
class Shared:
    """What draft and trunk share: embedding, head, final norm and rotary, all frozen.

    `head_VH` is `embed_VH` itself where the head is tied. `config` is a `transformers`
    config, of which the stubs know nothing, hence Any.
    """

    arch: Arch
    family: Family
    config: Any
    embed_VH: Tensor
    head_VH: Tensor
    final_norm: nn.Module
    rotary: nn.Module

    @property
    def norm_cls(self) -> Callable[[int, float], nn.Module]:
        """The family's norm, called with a width and an epsilon."""
        norm_cls: Callable[[int, float], nn.Module] = family_class(self.family, "RMSNorm")
        return norm_cls

    @property
    def is_low(self) -> bool:
        """True for a bf16 trunk, whose layers compute under autocast."""
        return self.embed_VH.dtype == torch.bfloat16

    def embedded(self, ids_BT: Tensor) -> Tensor:
        """The rows that enter the first layer, f32 [B, T, H]."""
        return nn.functional.embedding(ids_BT, self.embed_VH).float()

    def surroundings(self, x_BTH: Tensor, record_BT: Tensor | None = None) -> Surroundings:
        """Of whole windows: positions from 0, each row seeing what is on its left.

        With `record_BT` (`nets.records`) the same for each record of a window by itself.
        """
        width, device = x_BTH.shape[1], x_BTH.device
        windowed = seen_in_window(width, self.arch.sliding_window, device)
        if record_BT is not None:
            record_BT = record_BT.to(device)
            cos_BTD, sin_BTD = self.rotary(x_BTH, positions_in(record_BT))
            return apart(cos_BTD, sin_BTD, windowed, record_BT)
        cos_1TD, sin_1TD = self.rotary(x_BTH, torch.arange(width, device=device)[None])
        return Surroundings(cos_1TD, sin_1TD, causal=None, windowed=windowed)


@dataclass(frozen=True)
class Trunk:
    """A whole trunk, in eval mode and frozen."""

    shared: Shared
    geometry: TrunkGeometry
    layers: nn.ModuleList  # the decoder layers, first to last
    is_compiled: bool = False

    @torch.no_grad()
    def hidden(
        self,
        ids_BT: Tensor,
        record_BT: Tensor | None = None,
        passed: Callable[[int, Tensor], None] = lambda *_: None,
        layers: int | None = None,
    ) -> Tensor:
        """The last layer's rows *before* the final norm ("raw"), [B, T, H], f32.

        Rows go from layer to layer in f32 whatever the layers compute in: rounding them to
        bf16 twice a layer would be half of a bf16 trunk's error. Windows start at position
        0 and see only what is on their left, so padding on the right needs no mask: its
        rows are there, and mean nothing. With `record_BT` (`nets.records`) the records of a
        window are kept apart: each has the rows it would have alone. `passed` is given each
        layer's number and rows; `layers`: after the first so many, None for all.
        """
        x_BTH = self.shared.embedded(ids_BT.to(self.shared.embed_VH.device))
        around = self.shared.surroundings(x_BTH, record_BT)
        run = compiled_layer() if self.is_compiled else run_layer
        with torch.autocast(x_BTH.device.type, torch.bfloat16, enabled=self.shared.is_low):
            for index, layer in enumerate(self.layers[:layers]):
                x_BTH = around.run(run, layer, self.geometry.layers[index], x_BTH)
                passed(index, x_BTH)
        return x_BTH

    @torch.no_grad()
    def final_norm(self, hidden: Tensor) -> Tensor:
        """The rows the head reads, of raw ones of any leading shape."""
        normed: Tensor = self.shared.final_norm(hidden)
        return normed

    @torch.no_grad()
    def logits(self, hidden_RH: Tensor) -> Tensor:
        """Logits [R, V] of raw rows in the trunk's dtype; the caller keeps R small."""
        normed_RH = self.final_norm(hidden_RH).to(self.shared.head_VH.dtype)
        return nn.functional.linear(normed_RH, self.shared.head_VH)


def build_trunk(
    arch: Arch,
    shapes: Shapes,
    read: Read,
    *,
    device: str,
    dtype: torch.dtype,
    is_compiled: bool = False,
) -> Trunk:
    """The model's trunk on `device`, its tensors in `dtype` and the rotary in f32.

    Widths come from `shapes`, layer by layer; decays and router biases stay f32. ModelError
    before anything is read if the family isn't run here, or a tensor is missing, extra or
    of the wrong shape.
    """
    geometry = trunk_geometry(arch, shapes)
    shared = _build_shared(arch, geometry, read, device=device, dtype=dtype)
    layers = [
        build_layer(shared, geometry, i, read, device=device, dtype=dtype)
        for i in range(arch.num_layers)
    ]
    return Trunk(shared, geometry, nn.ModuleList(layers).eval(), is_compiled)


def build_layer(
    shared: Shared,
    geometry: TrunkGeometry,
    index: int,
    read: Read,
    *,
    device: str,
    dtype: torch.dtype,
) -> nn.Module:
    """Trunk layer `index` with its weights, frozen."""
    layer = empty_layer(shared.family, shared.config, geometry.layers[index], index)
    state = trunk_layer_state(geometry, index, read, device=device, dtype=dtype)
    layer.load_state_dict(state, assign=True)
    return _frozen(layer)


def build_shared(
    arch: Arch, shapes: Shapes, read: Read, *, device: str, dtype: torch.dtype
) -> Shared:
    """What the draft needs of the trunk; reads embedding, head and final norm only.

    The whole directory is checked all the same, so a model `build_trunk` refuses is refused
    here.
    """
    geometry = trunk_geometry(arch, shapes)
    return _build_shared(arch, geometry, read, device=device, dtype=dtype)


def _build_shared(
    arch: Arch, geometry: TrunkGeometry, read: Read, *, device: str, dtype: torch.dtype
) -> Shared:
    family = geometry.family
    config = trunk_config(arch, geometry)
    embed_VH = read(EMBED).to(device=device, dtype=dtype)
    head_VH = embed_VH if geometry.is_tied else read(HEAD).to(device=device, dtype=dtype)
    with torch.device("meta"):
        norm: nn.Module = family_class(family, "RMSNorm")(
            arch.hidden_size, arch.rms_norm_eps
        )
    gain = read(FINAL_NORM).to(device=device, dtype=dtype)
    norm.load_state_dict({"weight": gain}, assign=True)
    rotary = new_rotary(family, config, device)
    return Shared(arch, family, config, embed_VH, head_VH, _frozen(norm), _frozen(rotary))


def _frozen(module: nn.Module) -> nn.Module:
    tensors = [*module.named_parameters(), *module.named_buffers()]
    left = [name for name, tensor in tensors if tensor.is_meta]
    assert not left, f"never loaded: {left}"
    return module.eval().requires_grad_(requires_grad=False)
