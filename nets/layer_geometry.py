"""One decoder layer's widths, from its tensors' shapes: only the directory knows them.

After a structural compress the header's widths are nominal and layers differ. Missing and
misshapen tensors are refused here, before anything is read. No torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from cmfio.header import Arch, LayerType
from nets.errors import ModelError
from nets.families import Family
from nets.layer_tensors import (
    ROUTER,
    Part,
    Shapes,
    expert_numbers,
    layer_parts,
    shape_of,
    source_name,
)

OTHER_MIXER = {"linear_attn.out_proj.weight": True, "self_attn.o_proj.weight": False}


@dataclass(frozen=True)
class LayerGeometry:
    """A layer's kind, the widths of its mixer and FFN, and the tensors it is made of.

    A layer has either heads (attention) or key_heads and value_heads (a delta net), either
    ffn neurons or experts; what it has not is 0. `options` names the settings of the class
    that its tensors switch on. Two layers are equal if they are built alike.
    """

    heads: int = 0
    kv_heads: int = 0
    ffn: int = 0
    kind: LayerType = "FullAttention"
    key_heads: int = 0
    value_heads: int = 0
    taps: int = 0  # of the delta net's convolution
    experts: int = 0
    expert_ffn: int = 0
    shared_ffn: int = 0
    options: frozenset[str] = frozenset()
    is_rotated: bool = True  # False: queries and keys carry no position
    parts: tuple[Part, ...] = field(default=(), compare=False, repr=False)

    @property
    def is_sparse(self) -> bool:
        """True for a layer whose FFN is a mixture of experts."""
        return self.experts > 0

    def sizes(self, arch: Arch) -> Mapping[str, int]:
        """The length of each axis letter of `layer_tensors`."""
        query, value = self.heads * arch.head_dim, self.value_heads * _value_dim(arch)
        channels = 2 * self.key_heads * _key_dim(arch) + value
        return {
            "H": arch.hidden_size,
            "D": arch.head_dim,
            "Q": query,
            "G": 2 * query,
            "K": self.kv_heads * arch.head_dim,
            "F": self.ffn,
            "E": self.experts,
            "I": self.expert_ffn,
            "U": 2 * self.expert_ffn,
            "S": self.shared_ffn,
            "N": self.value_heads,
            "B": 2 * self.value_heads,
            "W": _value_dim(arch),
            "V": value,
            "C": channels,
            "Z": channels + value,
            "P": self.taps,
        }


def layer_geometry(
    family: Family, arch: Arch, shapes: Shapes, prefix: str, kind: LayerType
) -> LayerGeometry:
    """The widths of the decoder layer under `prefix`; checks all its tensors."""
    _check_mixer(shapes, prefix, kind)
    is_linear = kind == "LinearAttention"
    mixer = _delta_net if is_linear else _attention
    widths = _with_ffn(mixer(family, arch, shapes, prefix), family, shapes, prefix)
    options = frozenset(
        option
        for option, axes in family.options.items()
        if any(prefix + name in shapes for name in axes)
    )
    widths = replace(widths, kind=kind, options=options)
    axes = family.layer_axes(kind, is_sparse=widths.is_sparse, options=options)
    return replace(widths, parts=layer_parts(axes, widths.sizes(arch), shapes, prefix))


def _check_mixer(shapes: Shapes, prefix: str, kind: LayerType) -> None:
    """Refuses a layer whose tensors are of the other kind than the header says."""
    for name, is_linear in OTHER_MIXER.items():
        if prefix + name in shapes and is_linear != (kind == "LinearAttention"):
            raise ModelError(
                f"the header says {prefix.rstrip('.')} is {kind} and the directory has "
                f"{prefix + name!r}; arch.layer_types and the tensors must agree, convert "
                "the model again"
            )


def _attention(family: Family, arch: Arch, shapes: Shapes, prefix: str) -> LayerGeometry:
    output, key = prefix + "self_attn.o_proj.weight", prefix + "self_attn.k_proj.weight"
    query_cols, key_rows = _matrix(shapes, output)[1], _matrix(shapes, key)[0]
    _check_gate(family, shapes, prefix + "self_attn.q_proj.weight", query_cols)
    heads = _whole(output, query_cols, arch.head_dim, "arch.head_dim")
    kv_heads = _whole(key, key_rows, arch.head_dim, "arch.head_dim")
    if heads % kv_heads:
        raise ModelError(
            f"{prefix}self_attn has {heads} query heads for {kv_heads} key/value heads; "
            "each of these must serve the same number"
        )
    return LayerGeometry(heads, kv_heads)


def _check_gate(family: Family, shapes: Shapes, name: str, query_cols: int) -> None:
    """Queries are as wide as the attention, or twice with an output gate beside them."""
    rows = _matrix(shapes, name)[0]
    has_gate = family.attention["self_attn.q_proj.weight"] == "GH"
    if not has_gate and rows == 2 * query_cols:
        raise ModelError(
            f"tensor {name!r} has {rows} rows, twice the attention's width: an output gate "
            f"(Qwen3.5), which {family.title} has not"
        )
    if has_gate and rows == query_cols:
        raise ModelError(
            f"tensor {name!r} has {rows} rows, the attention's width; {family.title} has "
            "an output gate there too, so twice that"
        )


def _delta_net(_: Family, arch: Arch, shapes: Shapes, prefix: str) -> LayerGeometry:
    p = f"{prefix}linear_attn."
    value_heads = _length(shapes, p + "A_log")
    conv = shape_of(shapes, p + "conv1d.weight")
    both_keys = conv[0] - value_heads * _value_dim(arch)
    key_heads = _whole(
        p + "conv1d.weight", both_keys, 2 * _key_dim(arch), "twice arch.linear_key_head_dim"
    )
    if value_heads % key_heads:
        raise ModelError(
            f"{p.rstrip('.')} has {value_heads} value heads for {key_heads} key heads; "
            "each of these must serve the same number"
        )
    return LayerGeometry(key_heads=key_heads, value_heads=value_heads, taps=conv[-1])


def _with_ffn(
    layer: LayerGeometry, family: Family, shapes: Shapes, prefix: str
) -> LayerGeometry:
    if prefix + ROUTER not in shapes or family.sparse is None:
        return replace(layer, ffn=_matrix(shapes, prefix + "mlp.gate_proj.weight")[0])
    experts = _matrix(shapes, prefix + ROUTER)[0]
    if family.rules.routes_by_sigmoid and experts == 1:
        raise ModelError(
            f"tensor {prefix + ROUTER!r} has one expert; a {family.title} router compares "
            "the best two, keep another"
        )
    return replace(
        layer,
        experts=experts,
        expert_ffn=_expert_width(shapes, prefix, experts),
        shared_ffn=_shared_width(family, shapes, prefix),
    )


def _expert_width(shapes: Shapes, prefix: str, experts: int) -> int:
    """Neurons of the layer's experts, stacked or one by one; all must have as many."""
    stacked = prefix + "mlp.experts.down_proj"
    if stacked in shapes:
        return shape_of(shapes, stacked)[-1]
    numbers = expert_numbers(shapes, prefix)
    if len(numbers) != experts:
        raise ModelError(
            f"tensor {prefix + ROUTER!r} routes to {experts} experts, the directory has "
            f"{len(numbers)} of {prefix}mlp.experts; the model was cut, convert it again"
        )
    return _matrix(shapes, f"{prefix}mlp.experts.{numbers[0]}.gate_proj.weight")[0]


def _shared_width(family: Family, shapes: Shapes, prefix: str) -> int:
    """Neurons of the shared expert, 0 in a family without one."""
    assert family.sparse is not None
    name = next((n for n, axes in family.sparse.items() if axes == "SH"), None)
    return _matrix(shapes, prefix + source_name(name, shapes, prefix))[0] if name else 0


def _matrix(shapes: Shapes, name: str) -> tuple[int, int]:
    shape = shape_of(shapes, name)
    if len(shape) != 2 or 0 in shape:
        raise ModelError(
            f"tensor {name!r} has shape {list(shape)}; a filled matrix is needed"
        )
    return shape[0], shape[1]


def _length(shapes: Shapes, name: str) -> int:
    shape = shape_of(shapes, name)
    if len(shape) != 1 or 0 in shape:
        raise ModelError(f"tensor {name!r} has shape {list(shape)}; a row is needed")
    return shape[0]


def _whole(name: str, width: int, unit: int, field: str) -> int:
    if width % unit or width < unit:
        raise ModelError(
            f"tensor {name!r} spans {width} channels, no multiple of {field} "
            f"{unit}; the header or the tensor is wrong, convert the model again"
        )
    return width // unit


def _key_dim(arch: Arch) -> int:
    return arch.linear_key_head_dim or 0


def _value_dim(arch: Arch) -> int:
    return arch.linear_value_head_dim or 0
