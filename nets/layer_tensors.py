"""What tensors a decoder layer has, and how a container spells and packs them. No torch.

A layer's tensors are named as the `transformers` class names them, each with its axes, a
letter an axis (`LayerGeometry.sizes` gives the lengths). A container may spell a name
otherwise, and may hold the experts one by one where the class has them stacked: a `Part`
says which of the container's tensors make one of the class'.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from nets.errors import ModelError

Shape = tuple[int, ...]
Shapes = Mapping[str, Shape]
Axes = Mapping[str, str]

NORMS: Axes = {"input_layernorm.weight": "H", "post_attention_layernorm.weight": "H"}
ATTENTION: Axes = {
    "self_attn.q_proj.weight": "QH",
    "self_attn.k_proj.weight": "KH",
    "self_attn.v_proj.weight": "KH",
    "self_attn.o_proj.weight": "HQ",
}
HEAD_NORMS: Axes = {"self_attn.q_norm.weight": "D", "self_attn.k_norm.weight": "D"}
QKV_BIASES: Axes = {
    "self_attn.q_proj.bias": "Q",
    "self_attn.k_proj.bias": "K",
    "self_attn.v_proj.bias": "K",
}
# Queries and an output gate, head by head.
GATED_ATTENTION: Axes = {**ATTENTION, **HEAD_NORMS, "self_attn.q_proj.weight": "GH"}
DELTA_CORE: Axes = {
    "linear_attn.conv1d.weight": "C1P",
    "linear_attn.A_log": "N",
    "linear_attn.dt_bias": "N",
    "linear_attn.norm.weight": "W",
    "linear_attn.out_proj.weight": "HV",
}
DELTA_NET: Axes = {
    **DELTA_CORE,
    "linear_attn.in_proj_qkv.weight": "CH",
    "linear_attn.in_proj_z.weight": "VH",
    "linear_attn.in_proj_b.weight": "NH",
    "linear_attn.in_proj_a.weight": "NH",
}
# Qwen3-Next's checkpoints: the same rows, those of a key head beside each other.
DELTA_NET_FUSED: Axes = {
    **DELTA_CORE,
    "linear_attn.in_proj_qkvz.weight": "ZH",
    "linear_attn.in_proj_ba.weight": "BH",
}
DENSE: Axes = {
    "mlp.gate_proj.weight": "FH",
    "mlp.up_proj.weight": "FH",
    "mlp.down_proj.weight": "HF",
}
ROUTER = "mlp.gate.weight"
EXPERTS: Axes = {
    ROUTER: "EH",
    "mlp.experts.gate_up_proj": "EUH",
    "mlp.experts.down_proj": "EHI",
}
SHARED_EXPERT: Axes = {
    "mlp.shared_expert.gate_proj.weight": "SH",
    "mlp.shared_expert.up_proj.weight": "SH",
    "mlp.shared_expert.down_proj.weight": "HS",
    "mlp.shared_expert_gate.weight": "1H",
}
GLM_SHARED_EXPERT: Axes = {
    "mlp.gate.e_score_correction_bias": "E",
    "mlp.shared_experts.gate_proj.weight": "SH",
    "mlp.shared_experts.up_proj.weight": "SH",
    "mlp.shared_experts.down_proj.weight": "HS",
}

# Kept in f32 whatever the layer computes in: rounding a decay or a router's bias to bf16
# moves a state over the whole window, or a token to another expert.
ALWAYS_F32 = frozenset(
    {
        "linear_attn.A_log",
        "linear_attn.dt_bias",
        "mlp.gate.e_score_correction_bias",
    }
)
# Other names of the class' tensors in containers and older checkpoints.
OTHER_NAMES: Mapping[str, Sequence[str]] = {
    "mlp.gate.e_score_correction_bias": (
        "mlp.expert_bias",
        "mlp.experts.e_score_correction_bias",
    ),
    **{
        name: (name.replace("shared_experts", "shared_expert"),)
        for name in GLM_SHARED_EXPERT
        if "shared_experts" in name
    },
}
# Stacked in the class, one by one in a container: the projections of an expert, in order.
SPLIT_EXPERTS: Mapping[str, Sequence[str]] = {
    "mlp.experts.gate_up_proj": ("gate_proj", "up_proj"),
    "mlp.experts.down_proj": ("down_proj",),
}
EXPERT_NAME = re.compile(r"mlp\.experts\.(\d+)\.(gate_proj|up_proj|down_proj)\.weight")


@dataclass(frozen=True)
class Part:
    """One tensor of the class' layer, and the container's tensors that make it.

    Names leave out the layer's prefix. The sources, all of `source_shape`, joined along
    their first axis and seen as `shape`, are the tensor.
    """

    name: str
    shape: Shape
    sources: tuple[str, ...]
    source_shape: Shape

    @property
    def is_f32(self) -> bool:
        """True for a tensor that stays f32 in a bf16 layer."""
        return self.name in ALWAYS_F32


def expert_numbers(shapes: Shapes, prefix: str) -> list[int]:
    """The numbers of the experts a layer has one by one, ascending; pruning leaves gaps."""
    found = {
        int(match[1])
        for name in shapes
        if name.startswith(f"{prefix}mlp.experts.")
        and (match := EXPERT_NAME.fullmatch(name.removeprefix(prefix)))
    }
    return sorted(found)


def layer_parts(
    axes: Axes, sizes: Mapping[str, int], shapes: Shapes, prefix: str
) -> tuple[Part, ...]:
    """How the layer under `prefix` is made; ModelError if a tensor is not as it must be."""
    experts = expert_numbers(shapes, prefix)
    parts = []
    for name, letters in axes.items():
        shape = tuple(1 if letter == "1" else sizes[letter] for letter in letters)
        part = _part(name, shape, shapes, prefix, experts)
        for source in part.sources:
            _check_shape(shapes, prefix + source, part.source_shape)
        parts.append(part)
    return tuple(parts)


def source_name(name: str, shapes: Shapes, prefix: str) -> str:
    """What the container calls a tensor of the class' layer; `name` if it has it not."""
    spellings = (name, *OTHER_NAMES.get(name, ()))
    return next((s for s in spellings if prefix + s in shapes), name)


def is_named(suffix: str, axes: Axes) -> bool:
    """True if a container's layer tensor is one of these of the class, or part of one."""
    spelled = EXPERT_NAME.sub("mlp.experts.gate_up_proj", suffix)
    others = (other for name in axes for other in OTHER_NAMES.get(name, ()))
    return spelled in axes or spelled in others


def shape_of(shapes: Shapes, name: str) -> Shape:
    """A tensor's shape; ModelError if the model has none of that name."""
    if name not in shapes:
        raise ModelError(
            f"tensor {name!r} is missing; the model was cut or is of another family, "
            "convert it again"
        )
    return tuple(shapes[name])


def check_shapes(shapes: Shapes, expected: Shapes) -> None:
    """ModelError names the first tensor that is missing or not of its shape."""
    for name, shape in expected.items():
        _check_shape(shapes, name, shape)


def _part(
    name: str, shape: Shape, shapes: Shapes, prefix: str, experts: Sequence[int]
) -> Part:
    if name in SPLIT_EXPERTS and prefix + name not in shapes:
        sources = tuple(_expert_sources(name, experts))
        rows = shape[1] // len(SPLIT_EXPERTS[name])
        return Part(name, shape, sources, (rows, shape[2]))
    source = source_name(name, shapes, prefix)
    found = shape_of(shapes, prefix + source)
    # A convolution over channels has an axis of one that some files leave out.
    is_squeezed = shape[1:2] == (1,) and found == (shape[0], *shape[2:])
    return Part(name, shape, (source,), found if is_squeezed else shape)


def _expert_sources(name: str, experts: Sequence[int]) -> Iterator[str]:
    for expert in experts:
        for projection in SPLIT_EXPERTS[name]:
            yield f"mlp.experts.{expert}.{projection}.weight"


def _check_shape(shapes: Shapes, name: str, expected: Shape) -> None:
    found = shape_of(shapes, name)
    if found != expected:
        raise ModelError(
            f"tensor {name!r} has shape {list(found)}; by the header and the other "
            f"tensors it should be {list(expected)}; convert the model again"
        )
