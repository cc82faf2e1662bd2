"""A whole trunk's and a draft's tensors checked: what is missing, extra or of odd shape.

Nothing is read for it but the directory of shapes. No torch.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from cmfio.header import Arch, LayerType
from nets.errors import ModelError
from nets.families import Family, family_named, find_family, is_trunk_tensor
from nets.layer_geometry import LayerGeometry, layer_geometry
from nets.layer_tensors import (
    ROUTER,
    SPLIT_EXPERTS,
    Shapes,
    check_shapes,
    source_name,
)

EMBED = "model.embed_tokens.weight"
HEAD = "lm_head.weight"
FINAL_NORM = "model.norm.weight"
DRAFT_PREFIX = "model.mtp."
DRAFT_LAYER = "model.mtp.layers.0."
DRAFT_NORM = "model.mtp.norm.weight"
START_A_DRAFT = (
    "name a model that carries the draft with `init`, or set `start_from_last_layer: true`"
)


@dataclass(frozen=True)
class TrunkGeometry:
    """A checked trunk: family, widths of the layers, whether the embedding is the head."""

    family: Family
    layers: Sequence[LayerGeometry]
    is_tied: bool

    @property
    def last_attention(self) -> int:
        """The last full-attention layer, else the last windowed one: what a draft copies.

        ModelError if the trunk has neither: a draft's block is an attention layer.
        """
        for kind in ("FullAttention", "SlidingAttention"):
            found = [i for i, layer in enumerate(self.layers) if layer.kind == kind]
            if found:
                return found[-1]
        raise ModelError(
            "the trunk has no attention layer that a draft could be a copy of; name a "
            "model that carries the draft with `init`"
        )


@dataclass(frozen=True)
class DraftGeometry:
    """A checked draft: its block's widths, and whether its output is normed."""

    layer: LayerGeometry
    has_norm: bool


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
    check_shapes(shapes, outer)
    _check_linear_sizes(arch)
    unrotated, own = unrotated_layers(arch), _by_layer(shapes)
    layers = []
    for i, kind in enumerate(_layer_kinds(family, arch)):
        prefix = layer_prefix(i)
        layer = layer_geometry(family, arch, own.get(prefix, {}), prefix, kind)
        layers.append(replace(layer, is_rotated=i not in unrotated))
    _check_header_heads(arch, layers)
    known = {*outer, *_sources(layers)}
    _refuse_extra(family, [name for name in shapes if is_trunk_tensor(name)], known)
    return TrunkGeometry(family, tuple(layers), is_tied)


def nominal_geometry(arch: Arch) -> TrunkGeometry:
    """The widths the header states, for a model that has no tensors yet."""
    family = family_named(arch)
    layer = LayerGeometry(
        arch.num_attention_heads, arch.num_kv_heads, arch.intermediate_size
    )
    return TrunkGeometry(family, (layer,) * arch.num_layers, arch.tie_word_embeddings)


def draft_geometry(family: Family, arch: Arch, shapes: Shapes) -> DraftGeometry:
    """The draft block's widths (`model.mtp.layers.0`), from the draft's shapes alone.

    ModelError if the model carries none, offering where one could come from. Blocks beyond
    the first are none of our business: they stay in the file as they are (healing.md §3).
    """
    own = [name for name in shapes if name.startswith(DRAFT_PREFIX)]
    if not own:
        raise ModelError(
            f"the model carries no draft (no {DRAFT_PREFIX}* tensor); {START_A_DRAFT}"
        )
    has_norm = family.needs_draft_norm or DRAFT_NORM in shapes
    expected = _draft_outer_shapes(arch, has_norm=has_norm)
    missing = sorted({*expected, *_draft_layer_names(family, shapes)} - set(own))
    if missing:
        raise ModelError(
            f"the model's draft lacks tensor {missing[0]!r} ({len(missing)} in all); "
            f"{START_A_DRAFT}"
        )
    check_shapes(shapes, expected)
    layer = layer_geometry(family, arch, shapes, DRAFT_LAYER, "FullAttention")
    kept_as_is = re.compile(re.escape(DRAFT_PREFIX) + r"layers\.[1-9]")
    rest = [name for name in own if not kept_as_is.match(name)]
    known = {*expected, *(DRAFT_LAYER + s for p in layer.parts for s in p.sources)}
    _refuse_extra(family, rest, known)
    return DraftGeometry(layer, has_norm)


def _by_layer(shapes: Shapes) -> Mapping[str, Shapes]:
    """Each trunk layer's tensors under its prefix: a mixture has thousands."""
    layers: dict[str, dict[str, tuple[int, ...]]] = {}
    for name, shape in shapes.items():
        if name.startswith("model.layers."):
            prefix = ".".join(name.split(".", 3)[:3]) + "."
            layers.setdefault(prefix, {})[name] = shape
    return layers


def _layer_kinds(family: Family, arch: Arch) -> Sequence[LayerType]:
    """What each layer is; a Mistral header may name the window and no layer that has it."""
    if (
        family.rules.windows_all
        and arch.sliding_window
        and "SlidingAttention" not in arch.layer_types
    ):
        return ["SlidingAttention"] * arch.num_layers
    return arch.layer_types


def unrotated_layers(arch: Arch) -> Collection[int]:
    """The layers `arch.no_rope_layers` lists; ModelError if it can be read in two ways.

    The field's encoding is not published, and a field of the same name elsewhere says the
    opposite with 0 and 1.
    """
    listed = arch.no_rope_layers
    if listed is None:
        return ()
    if isinstance(listed, list | tuple):
        if len(listed) == arch.num_layers and all(isinstance(x, bool) for x in listed):
            return [i for i, is_listed in enumerate(listed) if is_listed]
        is_index = [isinstance(x, int) and not isinstance(x, bool) for x in listed]
        if (
            len(listed) < arch.num_layers
            and all(is_index)
            and len(set(listed)) == len(listed)
            and set(listed) <= set(range(arch.num_layers))
        ):
            return listed
    raise ModelError(
        f"arch.no_rope_layers is {listed!r}; give a true or false for each of the "
        f"{arch.num_layers} layers, or a shorter list of layer numbers"
    )


def _check_linear_sizes(arch: Arch) -> None:
    if "LinearAttention" not in arch.layer_types:
        return
    for field in ("linear_key_head_dim", "linear_value_head_dim"):
        if not getattr(arch, field):
            raise ModelError(
                f"arch.{field} is {getattr(arch, field)!r} and the model has "
                "LinearAttention layers; the header must say how wide a head of theirs is"
            )


def _sources(layers: Sequence[LayerGeometry]) -> Collection[str]:
    return {
        layer_prefix(i) + source
        for i, layer in enumerate(layers)
        for part in layer.parts
        for source in part.sources
    }


def _outer_shapes(arch: Arch, *, is_tied: bool) -> dict[str, tuple[int, ...]]:
    table = (arch.vocab_size, arch.hidden_size)
    outer: dict[str, tuple[int, ...]] = {EMBED: table, FINAL_NORM: (arch.hidden_size,)}
    return outer if is_tied else outer | {HEAD: table}


def _draft_outer_shapes(arch: Arch, *, has_norm: bool) -> dict[str, tuple[int, ...]]:
    hidden = arch.hidden_size
    norms = {f"{DRAFT_PREFIX}{name}.weight": (hidden,) for name in ("enorm", "hnorm")}
    last = {DRAFT_NORM: (hidden,)} if has_norm else {}
    return {**norms, **last, f"{DRAFT_PREFIX}eh_proj.weight": (hidden, 2 * hidden)}


def _draft_layer_names(family: Family, shapes: Shapes) -> Collection[str]:
    """What the draft's block has by any layout; experts are counted elsewhere."""
    axes = family.layer_axes(
        "FullAttention",
        is_sparse=family.sparse is not None and DRAFT_LAYER + ROUTER in shapes,
        options=frozenset(),
    )
    return {
        DRAFT_LAYER + source_name(name, shapes, DRAFT_LAYER)
        for name in axes
        if name not in SPLIT_EXPERTS
    }


def _check_header_heads(arch: Arch, layers: Sequence[LayerGeometry]) -> None:
    """Refuses per-layer head counts in the header that the tensors contradict."""
    counted: Mapping[str, list[int]] = {
        "attention_heads_per_layer": [layer.heads for layer in layers],
        "kv_heads_per_layer": [layer.kv_heads for layer in layers],
    }
    for field, found in counted.items():
        stated = getattr(arch, field)
        if stated is None:
            continue
        if len(stated) != len(layers) or any(
            said != has
            for said, has, layer in zip(stated, found, layers, strict=True)
            if layer.heads
        ):
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
