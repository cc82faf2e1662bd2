"""Every layer's widths, from the tensors' shapes: only the directory knows them.

After a structural compress the header's widths are nominal and layers differ (models.md
§2.3). Missing, extra and misshapen tensors are refused here, before anything is read. No
torch.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from cmfio.header import Arch
from nets.errors import ModelError
from nets.families import (
    Family,
    Shapes,
    family_named,
    find_family,
    is_trunk_tensor,
)

EMBED = "model.embed_tokens.weight"
HEAD = "lm_head.weight"
FINAL_NORM = "model.norm.weight"
DRAFT_PREFIX = "model.mtp."
DRAFT_LAYER = "model.mtp.layers.0."
START_A_DRAFT = (
    "name a model that carries the draft with `init`, or set `start_from_last_layer: true`"
)


@dataclass(frozen=True)
class LayerGeometry:
    """One decoder layer's query heads, key/value heads and FFN neurons."""

    heads: int
    kv_heads: int
    ffn: int

    def sizes(self, arch: Arch) -> Mapping[str, int]:
        """The length of each axis letter of `Family.layer_axes`."""
        return {
            "H": arch.hidden_size,
            "D": arch.head_dim,
            "Q": self.heads * arch.head_dim,
            "K": self.kv_heads * arch.head_dim,
            "F": self.ffn,
        }


@dataclass(frozen=True)
class TrunkGeometry:
    """A checked trunk: family, widths of the layers, whether the embedding is the head."""

    family: Family
    layers: Sequence[LayerGeometry]
    is_tied: bool


def layer_prefix(layer: int) -> str:
    """The names of trunk layer `layer` begin with this."""
    return f"model.layers.{layer}."


def trunk_geometry(arch: Arch, shapes: Shapes) -> TrunkGeometry:
    """The trunk's widths; ModelError names the first missing, extra or misshapen tensor."""
    family = find_family(arch, shapes)
    is_tied = HEAD not in shapes
    if is_tied and not arch.tie_word_embeddings:
        raise ModelError(
            f"tensor {HEAD!r} is missing and arch.tie_word_embeddings is false; "
            "the model was cut, convert it again"
        )
    outer = _outer_shapes(arch, is_tied=is_tied)
    _check_shapes(shapes, outer)
    prefixes = [layer_prefix(i) for i in range(arch.num_layers)]
    layers = [block_geometry(family, arch, shapes, prefix) for prefix in prefixes]
    _check_header_heads(arch, layers)
    known = {
        *outer,
        *(name for prefix in prefixes for name in _layer_names(family, prefix)),
    }
    _refuse_extra(family, [name for name in shapes if is_trunk_tensor(name)], known)
    return TrunkGeometry(family, tuple(layers), is_tied)


def nominal_geometry(arch: Arch) -> TrunkGeometry:
    """The widths the header states, for a model that has no tensors yet."""
    family = family_named(arch)
    layer = LayerGeometry(
        arch.num_attention_heads, arch.num_kv_heads, arch.intermediate_size
    )
    return TrunkGeometry(family, (layer,) * arch.num_layers, arch.tie_word_embeddings)


def draft_geometry(family: Family, arch: Arch, shapes: Shapes) -> LayerGeometry:
    """The draft block's widths (`model.mtp.layers.0`), from the draft's shapes alone.

    ModelError if the model carries none, offering where one could come from. Blocks beyond
    the first are none of our business: they stay in the file as they are (healing.md §3).
    """
    own = [name for name in shapes if name.startswith(DRAFT_PREFIX)]
    if not own:
        raise ModelError(
            f"the model carries no draft (no {DRAFT_PREFIX}* tensor); {START_A_DRAFT}"
        )
    expected = _draft_outer_shapes(arch)
    known = {*expected, *_layer_names(family, DRAFT_LAYER)}
    missing = sorted(known - set(own))
    if missing:
        raise ModelError(
            f"the model's draft lacks tensor {missing[0]!r} ({len(missing)} in all); "
            f"{START_A_DRAFT}"
        )
    _check_shapes(shapes, expected)
    geometry = block_geometry(family, arch, shapes, DRAFT_LAYER)
    kept_as_is = re.compile(re.escape(DRAFT_PREFIX) + r"layers\.[1-9]")
    rest = [name for name in own if not kept_as_is.match(name)]
    _refuse_extra(family, rest, known)
    return geometry


def block_geometry(
    family: Family, arch: Arch, shapes: Shapes, prefix: str
) -> LayerGeometry:
    """The widths of the decoder layer under `prefix`; checks all its tensors."""
    query_cols = _matrix(shapes, prefix + "self_attn.o_proj.weight")[1]
    key_rows = _matrix(shapes, prefix + "self_attn.k_proj.weight")[0]
    query = prefix + "self_attn.q_proj.weight"
    query_rows = _matrix(shapes, query)[0]
    if query_rows == 2 * query_cols:
        raise ModelError(
            f"tensor {query!r} has {query_rows} rows, twice the attention's width: an "
            f"output gate (Qwen3.5), which {family.title} has not"
        )
    geometry = LayerGeometry(
        heads=_whole_heads(arch, prefix + "self_attn.o_proj.weight", query_cols),
        kv_heads=_whole_heads(arch, prefix + "self_attn.k_proj.weight", key_rows),
        ffn=_matrix(shapes, prefix + "mlp.gate_proj.weight")[0],
    )
    if geometry.heads % geometry.kv_heads:
        raise ModelError(
            f"{prefix}self_attn has {geometry.heads} query heads for {geometry.kv_heads} "
            "key/value heads; each of these must serve the same number"
        )
    sizes = geometry.sizes(arch)
    axes = family.layer_axes.items()
    _check_shapes(
        shapes, {prefix + name: tuple(sizes[a] for a in text) for name, text in axes}
    )
    return geometry


def _outer_shapes(arch: Arch, *, is_tied: bool) -> dict[str, tuple[int, ...]]:
    table = (arch.vocab_size, arch.hidden_size)
    outer: dict[str, tuple[int, ...]] = {EMBED: table, FINAL_NORM: (arch.hidden_size,)}
    return outer if is_tied else outer | {HEAD: table}


def _draft_outer_shapes(arch: Arch) -> dict[str, tuple[int, ...]]:
    hidden = arch.hidden_size
    norms = {
        f"{DRAFT_PREFIX}{name}.weight": (hidden,) for name in ("enorm", "hnorm", "norm")
    }
    return {**norms, f"{DRAFT_PREFIX}eh_proj.weight": (hidden, 2 * hidden)}


def _layer_names(family: Family, prefix: str) -> list[str]:
    return [prefix + suffix for suffix in family.layer_axes]


def _shape(shapes: Shapes, name: str) -> tuple[int, ...]:
    if name not in shapes:
        raise ModelError(
            f"tensor {name!r} is missing; the model was cut or is of another family, "
            "convert it again"
        )
    return tuple(shapes[name])


def _matrix(shapes: Shapes, name: str) -> tuple[int, int]:
    shape = _shape(shapes, name)
    if len(shape) != 2 or 0 in shape:
        raise ModelError(
            f"tensor {name!r} has shape {list(shape)}; a filled matrix is needed"
        )
    return shape[0], shape[1]


def _whole_heads(arch: Arch, name: str, width: int) -> int:
    if width % arch.head_dim:
        raise ModelError(
            f"tensor {name!r} spans {width} channels, no multiple of arch.head_dim "
            f"{arch.head_dim}; the header or the tensor is wrong, convert the model again"
        )
    return width // arch.head_dim


def _check_shapes(shapes: Shapes, expected: Mapping[str, tuple[int, ...]]) -> None:
    for name, shape in expected.items():
        found = _shape(shapes, name)
        if found != shape:
            raise ModelError(
                f"tensor {name!r} has shape {list(found)}; by the header and the other "
                f"tensors it should be {list(shape)}; convert the model again"
            )


def _check_header_heads(arch: Arch, layers: Sequence[LayerGeometry]) -> None:
    """Refuses per-layer head counts in the header that the tensors contradict."""
    counted = {
        "attention_heads_per_layer": [layer.heads for layer in layers],
        "kv_heads_per_layer": [layer.kv_heads for layer in layers],
    }
    for field, found in counted.items():
        stated = getattr(arch, field)
        if stated is not None and list(stated) != found:
            raise ModelError(
                f"arch.{field} is {list(stated)}, the tensors have {found}; "
                "the header is wrong, convert the model again"
            )


def _refuse_extra(family: Family, names: Sequence[str], known: Collection[str]) -> None:
    for name in names:
        if name not in known:
            raise ModelError(
                f"tensor {name!r} is no part of a {family.title} model and would be left "
                "unread; this version can't run the model"
            )
