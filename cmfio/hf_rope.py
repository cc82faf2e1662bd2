"""Rotary positions of a config.json, and of the header: one made from the other.

Both spellings are read, `rope_parameters` (transformers from 5 on) and `rope_theta` beside
`rope_scaling`; both `rope_parameters` and `rope_theta` are written.
"""

import math

from cmfio.arch import Arch, Yarn
from cmfio.config_json import Config
from cmfio.errors import UnsupportedFeature
from cmfio.hf_families import HfFamily
from cmfio.json_text import Json

THETA = 10000.0
# What is understood of a rotary's settings; the three sections of `mrope_section` are one
# and the same where there is only text, and `finetuned` tells what was done with it.
UNDERSTOOD = {
    *("rope_type", "type", "rope_theta", "partial_rotary_factor", "factor", "truncate"),
    *("original_max_position_embeddings", "beta_fast", "beta_slow", "attention_factor"),
    *("mscale", "mscale_all_dim", "mrope_section", "mrope_interleaved", "finetuned"),
}


def rope_fields(config: Config, family: HfFamily) -> dict[str, object]:
    """The header's rotary fields; UnsupportedFeature names what it has none for."""
    rope = config.part("rope_parameters")
    scaling = config.part("rope_scaling")
    source = rope if rope.values else scaling
    _refuse_nested(rope)
    _refuse_two_that_differ(rope, scaling)
    kind = source.get("rope_type") or source.get("type") or "default"
    theta = rope.real("rope_theta", config.real("rope_theta", THETA))
    fields: dict[str, object] = {"rope_theta": theta}
    partial = source.real(
        "partial_rotary_factor", config.real("partial_rotary_factor", 1.0)
    )
    if partial != 1.0:
        if not family.has_partial_rotary:
            raise UnsupportedFeature(
                f"{config.path}: partial_rotary_factor is {partial}; transformers' "
                f"{family.causal_class} ignores it, so what is meant can't be known"
            )
        fields["partial_rotary_factor"] = partial
    if kind == "yarn":
        fields["yarn"] = _yarn(source, config)
    elif kind != "default":
        raise UnsupportedFeature(
            f"{config.path}: rotary scaling {kind!r} has no place in a header, only 'yarn'"
        )
    _refuse_unknown(source)  # behind the kind, which has settings of its own
    return fields


def rope_config(arch: Arch, family: HfFamily) -> dict[str, Json]:
    """The rotary settings of a config.json."""
    rope: dict[str, Json] = {"rope_theta": arch.rope_theta, "rope_type": "default"}
    settings: dict[str, Json] = {"rope_theta": arch.rope_theta}  # for older readers
    if arch.yarn is not None:
        yarn = arch.yarn
        rope |= {
            "rope_type": "yarn",
            "factor": yarn.factor,
            "original_max_position_embeddings": yarn.original_max_position_embeddings,
            "beta_fast": yarn.beta_fast,
            "beta_slow": yarn.beta_slow,
            "attention_factor": yarn.attention_factor,
        }
    if family.has_partial_rotary:
        rope["partial_rotary_factor"] = arch.partial_rotary_factor
        settings["partial_rotary_factor"] = arch.partial_rotary_factor
    return {**settings, "rope_parameters": rope}


def _yarn(rope: Config, config: Config) -> Yarn:
    if rope.get("truncate") not in (None, True):
        raise UnsupportedFeature(
            f"{config.path}: yarn with truncate {rope.get('truncate')!r} has no place in "
            "a header"
        )
    longest = config.whole("max_position_embeddings")
    original = rope.whole("original_max_position_embeddings", longest)
    factor = rope.real("factor", longest / original)
    return Yarn(
        factor=factor,
        original_max_position_embeddings=original,
        beta_fast=rope.real("beta_fast", 32.0),
        beta_slow=rope.real("beta_slow", 1.0),
        attention_factor=rope.real("attention_factor", _attention_factor(rope, factor)),
    )


def _attention_factor(rope: Config, factor: float) -> float:
    """What transformers makes of a config that leaves it out."""
    above, below = rope.real("mscale", 0.0), rope.real("mscale_all_dim", 0.0)
    if above and below:
        return _mscale(factor, above) / _mscale(factor, below)
    return _mscale(factor, 1.0)


def _mscale(factor: float, weight: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0


def _refuse_nested(rope: Config) -> None:
    for key, value in rope.values.items():
        if isinstance(value, dict):
            raise UnsupportedFeature(
                f"{rope.path}: rope_parameters differ by layer type ({key}), which a "
                "header can't say"
            )


def _refuse_two_that_differ(rope: Config, scaling: Config) -> None:
    """transformers takes `rope_scaling` where both are there, others `rope_parameters`."""
    if not rope.values:
        return
    for key, value in scaling.values.items():
        spelled = "rope_type" if key == "type" else key
        other = rope.values.get(spelled, "default" if spelled == "rope_type" else None)
        if value != other:
            raise UnsupportedFeature(
                f"{rope.path}: rope_scaling says {key} {value!r}, rope_parameters "
                f"{other!r}; leave one of the two out"
            )


def _refuse_unknown(source: Config) -> None:
    for key, value in source.values.items():
        if key not in UNDERSTOOD and value is not None:
            raise UnsupportedFeature(
                f"{source.path}: the rotary setting {key} is {value!r}, which isn't "
                f"understood; only {', '.join(sorted(UNDERSTOOD))} are"
            )
