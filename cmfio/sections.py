"""The masks and index sections: checked here, carried as bytes."""

import struct
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from cmfio.arch import Arch
from cmfio.errors import ParseError
from cmfio.json_text import parse_object
from cmfio.record import U32, Bool, Int, Real, Text

_MASKS_HEAD = struct.Struct("<II")
_INDEX_HEAD = struct.Struct("<II")
_INDEX_ENTRY = struct.Struct("<IIII")


class _Meta(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class _Quality(_Meta):
    metric: Text
    value: Real
    baseline_dense: Real
    n_samples: Int
    dataset_sha256: Text | None = None


class _Mask(_Meta):
    task_id: U32
    name: Text
    description: Text | None = None
    sparsity: Real
    quality: _Quality | None = None
    parent: object | None = None
    priority: Literal["Fallback", "Normal", "Primary"]
    has_hot_pack: Bool = False
    has_expert_fields: Bool = False
    blob_off: Int
    blob_len: Int


class _Masks(_Meta):
    default_task: Text
    masks: tuple[_Mask, ...]


def check_masks(section: memoryview, arch: Arch, where: str) -> None:
    """Raise ParseError unless every mask lies inside and has the length `arch` asks for."""
    if len(section) < _MASKS_HEAD.size:
        raise ParseError(f"{where}: a masks section of {len(section)} bytes is too short")
    count, meta_length = _MASKS_HEAD.unpack(section[: _MASKS_HEAD.size])
    meta_end = _MASKS_HEAD.size + meta_length
    if meta_end > len(section):
        raise ParseError(f"{where}: the masks' description runs past their section")
    tree = parse_object(bytes(section[_MASKS_HEAD.size : meta_end]), f"{where}: masks")
    try:
        masks = _Masks.model_validate(tree).masks
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        raise ParseError(f"{where}: masks: {problem['loc']}: {problem['msg']}") from error
    if len(masks) != count:
        raise ParseError(f"{where}: {count} masks are claimed, {len(masks)} described")
    for mask in masks:
        _check_mask(mask, len(section), arch, where)


def check_index(section: memoryview, where: str) -> None:
    """Raise ParseError unless the section holds all the entries it claims."""
    if len(section) < _INDEX_HEAD.size:
        raise ParseError(f"{where}: an index section of {len(section)} bytes is too short")
    count, _ = _INDEX_HEAD.unpack(section[: _INDEX_HEAD.size])
    place = _INDEX_HEAD.size
    for i in range(count):
        if place + _INDEX_ENTRY.size > len(section):
            raise ParseError(f"{where}: index entry {i} of {count:,} lies past the section")
        entry = section[place : place + _INDEX_ENTRY.size]
        _task, _layer, groups, heads = _INDEX_ENTRY.unpack(entry)
        place += _INDEX_ENTRY.size + 2 * groups + heads
        if place > len(section):
            raise ParseError(f"{where}: index entry {i} is cut short")
        place = -(-place // 4) * 4


def _check_mask(mask: _Mask, section_length: int, arch: Arch, where: str) -> None:
    if mask.blob_off + mask.blob_len > section_length:
        raise ParseError(f"{where}: mask {mask.name!r} runs past the masks section")
    if mask.has_expert_fields and arch.moe is None:
        raise ParseError(
            f"{where}: mask {mask.name!r} selects experts of a model without any"
        )
    experts = mask.has_expert_fields
    # Older writers kept one FFN row a layer, not one a visit.
    allowed = {_blob_length(arch, loops, experts=experts) for loops in (1, arch.num_loops)}
    if mask.blob_len not in allowed:
        raise ParseError(
            f"{where}: mask {mask.name!r} has {mask.blob_len:,} bytes, this model's masks "
            f"have {max(allowed):,}"
        )


def _blob_length(arch: Arch, loops: int, *, experts: bool) -> int:
    layers = arch.num_layers
    ffn = layers * max(loops, 1) * _bit_bytes(arch.intermediate_size)
    heads = layers * _bit_bytes(arch.num_attention_heads)
    kept = 0
    if experts and arch.moe is not None:
        kept = layers * _bit_bytes(arch.moe.num_experts)
    return ffn + heads + _bit_bytes(layers) + kept


def _bit_bytes(bits: int) -> int:
    return -(-bits // 8)
