"""Folding a trunk: which layers go, which FFN neurons stay, how each tensor follows. No IO.

Legend: B windows, T positions, H hidden, F FFN neurons. A fold only takes rows and columns
away, so a folded trunk equals the full one with the same neurons zeroed and the same layers
skipped. The draft's tensors stay as they are, which is what makes it stale.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from cmfio.header import Arch
from nets.errors import ModelError
from nets.families import Shapes, is_trunk_tensor
from nets.geometry import (
    TrunkGeometry,
    layer_prefix,
    trunk_geometry,
    unrotated_layers,
)
from nets.trunk import Read, Trunk

# The codecs' group length: a width off it can't be stored in q4_tiled.
GROUP = 32
# Which axis of a layer's tensor runs over its FFN neurons.
NEURON_AXIS = {
    "mlp.gate_proj.weight": 0,
    "mlp.up_proj.weight": 0,
    "mlp.down_proj.weight": 1,
}


@dataclass(frozen=True)
class FoldPlan:
    """The layers that stay, and for each the neurons that stay, i64 [F]; both ascending."""

    layers: tuple[int, ...]
    neurons: tuple[Tensor, ...]


@dataclass(frozen=True)
class FoldedTensor:
    """One tensor of the folded model: its name there and in the source, what stays of it.

    `kept` is None for a tensor that stays whole, whose stored bytes can be copied.
    """

    name: str
    source: str
    kept: Tensor | None
    axis: int

    def cut(self, tensor: Tensor) -> Tensor:
        """The folded tensor of the source's one."""
        return tensor if self.kept is None else tensor.index_select(self.axis, self.kept)


def ffn_importance(trunk: Trunk, batches: Iterable[Tensor]) -> list[Tensor]:
    """By layer, what each neuron writes: Σ activation² · ‖down column‖², f64 [F].

    `batches` are ids [B, T] without padding. Only sizes relative to the same layer mean
    anything. ModelError for a mixture of experts.
    """
    _refuse_experts(trunk.geometry)
    energies = [torch.zeros(1, dtype=torch.float64) for _ in trunk.layers]
    hooks = [
        _down_proj(layer).register_forward_pre_hook(_adder(energies, i))
        for i, layer in enumerate(trunk.layers)
    ]
    try:
        for ids_BT in batches:
            trunk.hidden(ids_BT)
    finally:
        for hook in hooks:
            hook.remove()
    return [
        energy_F * _down_proj(layer).weight.double().square().sum(dim=0).cpu()
        for energy_F, layer in zip(energies, trunk.layers, strict=True)
    ]


def ffn_importance_by_weights(arch: Arch, shapes: Shapes, read: Read) -> list[Tensor]:
    """The same without text: ‖gate row‖² · ‖up row‖² · ‖down column‖², f64 [F]."""
    geometry, importance = trunk_geometry(arch, shapes), []
    _refuse_experts(geometry)
    for i in range(len(geometry.layers)):
        norms = [
            read(layer_prefix(i) + suffix).double().square().sum(dim=1 - axis)
            for suffix, axis in NEURON_AXIS.items()
        ]
        importance.append(norms[0] * norms[1] * norms[2])
    return importance


def fold_plan(
    importance: Sequence[Tensor], drop: Sequence[int], keep: Sequence[float]
) -> FoldPlan:
    """The most important neurons of each layer not in `drop`; ties go to the lower index.

    `importance` has an entry for every layer of the source. `keep` is the share of neurons
    that stays, 0 < share <= 1, one for each layer that stays or one for all; the width is
    rounded to the nearest multiple of 32, at least 32; a share of 1 keeps all.
    """
    count = len(importance)
    if (unknown := sorted(set(drop) - set(range(count)))) or len(set(drop)) == count:
        raise ModelError(
            f"layers to drop are {list(drop)}, {unknown or 'all of them'} can't go; "
            f"the model has layers 0 to {count - 1} and must keep one"
        )
    layers = tuple(i for i in range(count) if i not in drop)
    shares = list(keep) * len(layers) if len(keep) == 1 else list(keep)
    if len(shares) != len(layers) or not all(0 < share <= 1 for share in shares):
        raise ModelError(
            f"FFN shares to keep are {list(keep)}; give one for all or one for each of the "
            f"{len(layers)} layers that stay, each above 0 and at most 1"
        )
    chosen = [_most(importance[i], share) for i, share in zip(layers, shares, strict=True)]
    return FoldPlan(layers, tuple(chosen))


def fold_tensors(plan: FoldPlan, names: Iterable[str]) -> tuple[FoldedTensor, ...]:
    """What the folded model holds, in the source's order; `names` are all of the source's.

    ModelError for a skill's tensors: they have the full widths and would no longer fit.
    """
    place = {source: i for i, source in enumerate(plan.layers)}
    folded = []
    for name in names:
        if name.startswith("skill."):
            raise ModelError(
                f"tensor {name!r} belongs to a skill; fold a model without skills"
            )
        if not (is_trunk_tensor(name) and name.startswith("model.layers.")):
            folded.append(FoldedTensor(name, name, None, 0))
            continue
        number, suffix = name.removeprefix("model.layers.").split(".", 1)
        if int(number) in place:
            folded.append(_folded_layer_tensor(plan, place[int(number)], name, suffix))
    return tuple(folded)


def fold_arch(plan: FoldPlan, arch: Arch) -> dict[str, object]:
    """What changes in the header, for `Header.replace_arch`; FFN as wide as the widest."""
    changes: dict[str, object] = {
        "num_layers": len(plan.layers),
        "layer_types": tuple(arch.layer_types[i] for i in plan.layers),
        "intermediate_size": max(len(kept) for kept in plan.neurons),
    }
    for field in ("attention_heads_per_layer", "kv_heads_per_layer"):
        per_layer = getattr(arch, field)
        if per_layer is not None:
            changes[field] = tuple(per_layer[i] for i in plan.layers)
    if arch.no_rope_layers is not None:
        # Numbers of layers would be read otherwise once there are fewer; claims are not.
        listed = unrotated_layers(arch)
        changes["no_rope_layers"] = [i in listed for i in plan.layers]
    return changes


def _refuse_experts(geometry: TrunkGeometry) -> None:
    for i, layer in enumerate(geometry.layers):
        if layer.is_sparse:
            raise ModelError(
                f"{layer_prefix(i)}mlp is a mixture of {layer.experts} experts; a fold "
                "cuts neurons of plain MLPs only, name a dense model"
            )


def _down_proj(layer: nn.Module) -> nn.Linear:
    down_proj = layer.get_submodule("mlp.down_proj")
    assert isinstance(down_proj, nn.Linear)
    return down_proj


def _adder(
    energies: list[Tensor], layer: int
) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
    """A pre-hook of `down_proj` that adds its input's squares over rows to one entry."""

    def add(_: nn.Module, args: tuple[Tensor, ...]) -> None:
        squares_F = args[0].float().square().flatten(0, -2).sum(dim=0)
        energies[layer] = energies[layer] + squares_F.double().cpu()

    return add


def _most(importance_F: Tensor, share: float) -> Tensor:
    """Indices of the most important neurons, ascending, i64."""
    total = len(importance_F)
    groups = max(1, round(share * total / GROUP))
    width = total if share == 1 else min(total, GROUP * groups)
    best = torch.sort(importance_F, descending=True, stable=True).indices[:width]
    return best.sort().values


def _folded_layer_tensor(
    plan: FoldPlan, place: int, name: str, suffix: str
) -> FoldedTensor:
    axis = NEURON_AXIS.get(suffix)
    kept = None if axis is None else plan.neurons[place]
    return FoldedTensor(layer_prefix(place) + suffix, name, kept, axis or 0)
