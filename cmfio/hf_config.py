"""config.json of a checkpoint to the header's `arch`.

A setting that would change the model's numbers and has no place in the header is refused by
name, never dropped. A composite (vision) config is read for its text model alone.
"""

from pydantic import ValidationError

from cmfio.arch import Arch, LayerType, Moe, Mtp
from cmfio.config_json import Config
from cmfio.errors import ParseError, UnsupportedFeature
from cmfio.hf_families import DELTA_SIZES, PLAIN, Experts, HfFamily, family_of_type
from cmfio.hf_rope import rope_fields
from cmfio.json_text import Json

# Both sides spell these alike but for their names: config key, arch field.
SIZES = {
    "hidden_size": "hidden_size",
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_attention_heads",
    "vocab_size": "vocab_size",
    "max_position_embeddings": "max_position_embeddings",
}
LAYER_TYPES: dict[str, LayerType] = {
    "full_attention": "FullAttention",
    "sliding_attention": "SlidingAttention",
    "linear_attention": "LinearAttention",
}
ACTIVATIONS: dict[str, str] = {
    "silu": "silu",
    "swish": "silu",
    "gelu_pytorch_tanh": "gelu_tanh",
}
MOST_LAYERS = 1 << 16  # more are no model, and would only take memory here
MTP_KEYS = ("mtp_num_hidden_layers", "num_nextn_predict_layers")


def text_config(config: Config) -> tuple[HfFamily, Config]:
    """The family, and the settings of its text model with defaults for absent ones.

    UnsupportedFeature for a family that isn't read.
    """
    family = family_of_type(config.get("model_type"), str(config.path))
    text = config.part("text_config") if "text_config" in config.values else config
    own = text.get("model_type")
    if own not in (None, family.model_type, *family.wrappers):
        raise UnsupportedFeature(
            f"{config.path}: text_config.model_type is {own!r} inside {family.arch_name}"
        )
    # A wrapper says for both whether its head is tied.
    tied = config.get("tie_word_embeddings")
    given = text.over({} if tied is None else {"tie_word_embeddings": tied})
    return family, given.over(family.defaults)


def arch_from_config(config: Config) -> Arch:
    """The `arch` of a checkpoint; UnsupportedFeature for what a header can't say."""
    family, text = text_config(config)
    _refuse_unplain(text, family)
    sizes = {field: text.whole(key) for key, field in SIZES.items()}
    heads, hidden = sizes["num_attention_heads"], sizes["hidden_size"]
    mtp = max((n for n in map(text.get, MTP_KEYS) if isinstance(n, int)), default=0)
    fields: dict[str, object] = {
        **sizes,
        "arch_name": family.arch_name,
        "intermediate_size": _dense_width(text, family),
        "num_kv_heads": text.whole("num_key_value_heads", heads),
        "head_dim": text.whole("head_dim", max(hidden // heads, 1)),
        "rms_norm_eps": text.real("rms_norm_eps", 1e-6),
        "tie_word_embeddings": text.flag("tie_word_embeddings"),
        **_layer_types(text, family, sizes["num_layers"]),
        **rope_fields(text, family),
    }
    optional: dict[str, object] = {
        "norm_style": family.norm_style if family.norm_style != "qwen" else None,
        "hidden_act": _activation(text),
        "moe": None if family.experts is None else _moe(text, family.experts),
        "mtp": Mtp(num_layers=mtp) if mtp > 0 else None,
    }
    if family.linear is not None:
        optional |= {key: text.whole(key) for key in DELTA_SIZES}
    fields |= {key: value for key, value in optional.items() if value is not None}
    try:
        return Arch.model_validate(fields)
    except ValidationError as error:
        raise ParseError(f"{config.path}: describes no model: {error}") from error


def _refuse_unplain(config: Config, family: HfFamily) -> None:
    for key, allowed in {**PLAIN, **family.plain}.items():
        value = config.get(key)
        if value is not None and value not in allowed:
            only = f"; only {allowed[0]!r} is understood" if allowed else ""
            raise UnsupportedFeature(
                f"{config.path}: {key} is {value!r}, which has no place in a header{only}"
            )


def _dense_width(config: Config, family: HfFamily) -> int:
    """Where every layer has experts a config may not say how wide one without would be."""
    spare = None if family.experts is None else config.get("moe_intermediate_size")
    return config.whole("intermediate_size", spare if isinstance(spare, int) else None)


def _activation(config: Config) -> str | None:
    """The header's word; None for the one it leaves out."""
    said = config.get("hidden_act")
    if said is not None and (not isinstance(said, str) or said not in ACTIVATIONS):
        raise UnsupportedFeature(
            f"{config.path}: hidden_act is {said!r}; only {', '.join(ACTIVATIONS)} are "
            "understood"
        )
    known = "silu" if said is None else ACTIVATIONS[said]
    return None if known == "silu" else known


def _layer_types(config: Config, family: HfFamily, layers: int) -> dict[str, object]:
    if layers > MOST_LAYERS:
        raise ParseError(f"{config.path}: num_hidden_layers is {layers:,}, too many")
    window = _window(config, family)
    said = config.get("layer_types")
    if family.windows == "all" or not isinstance(said, list):
        kinds = _implied_types(config, family, layers, has_window=window is not None)
    else:
        kinds = [_layer_type(config, kind) for kind in said]
    if len(kinds) != layers:
        raise ParseError(
            f"{config.path}: layer_types has {len(kinds)} entries for {layers} layers"
        )
    for kind in kinds:
        if kind not in family.layer_types or (kind == "SlidingAttention" and not window):
            raise UnsupportedFeature(
                f"{config.path}: a layer of type {_spelled(kind)!r} has no place in this "
                f"{family.arch_name} model"
            )
    fields: dict[str, object] = {"layer_types": tuple(kinds)}
    return fields if window is None else fields | {"sliding_window": window}


def _window(config: Config, family: HfFamily) -> int | None:
    """How far a sliding layer sees; None where nothing slides."""
    is_on = family.windows == "all" or (
        family.windows == "some" and config.flag("use_sliding_window")
    )
    if not is_on or config.get("sliding_window") is None:
        return None
    return config.whole("sliding_window")


def _implied_types(
    config: Config, family: HfFamily, layers: int, *, has_window: bool
) -> list[LayerType]:
    """The layers' types where the config leaves them to the class."""
    if family.linear is not None:
        every = config.whole("full_attention_interval")
        return [
            "FullAttention" if (i + 1) % every == 0 else "LinearAttention"
            for i in range(layers)
        ]
    said = 0 if family.windows == "all" else config.get("max_window_layers")
    first = said if isinstance(said, int) else 28
    return [
        "SlidingAttention" if has_window and i >= first else "FullAttention"
        for i in range(layers)
    ]


def _layer_type(config: Config, kind: Json) -> LayerType:
    if isinstance(kind, str) and kind in LAYER_TYPES:
        return LAYER_TYPES[kind]
    raise UnsupportedFeature(
        f"{config.path}: layer type {kind!r} isn't one of {', '.join(LAYER_TYPES)}"
    )


def _spelled(kind: LayerType) -> str:
    return next(said for said, ours in LAYER_TYPES.items() if ours == kind)


def _moe(config: Config, experts: Experts) -> Moe:
    key = next((k for k in experts.count_keys if k in config.values), experts.count_keys[0])
    width = config.whole("moe_intermediate_size")
    fields: dict[str, object] = {
        "num_experts": config.whole(key),
        "top_k": config.whole("num_experts_per_tok"),
        "moe_intermediate_size": width,
        "norm_topk_prob": not experts.says_renormalised or config.flag("norm_topk_prob"),
    }
    if experts.shared == "n_shared_experts":
        fields["shared_expert_intermediate_size"] = width * config.whole(experts.shared)
    elif experts.shared is not None:
        fields["shared_expert_intermediate_size"] = config.whole(experts.shared)
    if experts.is_sigmoid:
        fields["router_sigmoid"] = True
        fields["routed_scaling_factor"] = config.real("routed_scaling_factor", 1.0)
    return Moe.model_validate(fields)
