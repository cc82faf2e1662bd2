"""The header's `arch` to a config.json; what such a file can't say is refused by name."""

from collections.abc import Mapping, Sequence

from cmfio.arch import Arch
from cmfio.errors import UnsupportedFeature
from cmfio.header import Header, TensorEntry
from cmfio.hf_config import ACTIVATIONS, LAYER_TYPES, SIZES
from cmfio.hf_families import DELTA_SIZES, Experts, HfFamily, family_of_arch
from cmfio.hf_heads import head_row
from cmfio.hf_layout import LayerNames, layers_of
from cmfio.hf_rope import rope_config
from cmfio.json_text import Json

EVERYWHERE = {
    *SIZES.values(),
    "arch_name",
    "intermediate_size",
    "num_kv_heads",
    "head_dim",
    "layer_types",
    "rms_norm_eps",
    "norm_style",
    "hidden_act",
    "rope_theta",
    "yarn",
    "tie_word_embeddings",
    "mtp",
}


def config_from_header(
    header: Header, entries: Mapping[str, TensorEntry], where: str
) -> dict[str, Json]:
    """The config.json of a container; UnsupportedFeature names the field that has no place.

    Which layers have experts, biases or head norms is told by `entries`.
    """
    arch = header.arch
    family = family_of_arch(arch.arch_name, where)
    _refuse_unsaid(arch, family, where)
    layers = layers_of(entries)
    trunk = [
        layers.get(f"model.layers.{i}.", LayerNames(frozenset()))
        for i in range(arch.num_layers)
    ]
    _refuse_folded(arch, entries, where)
    spoken = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
    if arch.hidden_act not in spoken:
        raise UnsupportedFeature(f"{where}: arch.hidden_act is {arch.hidden_act!r}")
    config: dict[str, Json] = {
        "architectures": [family.causal_class],
        "model_type": family.model_type,
        **{key: getattr(arch, field) for key, field in SIZES.items()},
        "intermediate_size": arch.intermediate_size,
        "num_key_value_heads": arch.num_kv_heads,
        "head_dim": arch.head_dim,
        "hidden_act": spoken[arch.hidden_act],
        "rms_norm_eps": arch.rms_norm_eps,
        **rope_config(arch, family),
        **_attention(arch, family, trunk),
        "tie_word_embeddings": arch.tie_word_embeddings,
        **_special_ids(header),
    }
    if family.linear is not None:
        config |= {key: getattr(arch, key) for key in DELTA_SIZES}
    if family.experts is not None:
        config |= _mixture(arch, family.experts, trunk, where)
    if arch.mtp is not None:
        config[head_row(family.head).count_key] = arch.mtp.num_layers
    return config


def _attention(
    arch: Arch, family: HfFamily, trunk: Sequence[LayerNames]
) -> dict[str, Json]:
    said: dict[str, Json] = {
        key: any(names[0] in layer.given for layer in trunk)
        for key, names in family.flags.items()
    }
    for key, values in family.plain.items():
        said.setdefault(key, values[0])
    theirs = {ours: word for word, ours in LAYER_TYPES.items()}
    kinds: list[Json] = [theirs[kind] for kind in arch.layer_types]
    if family.windows == "all":
        said["sliding_window"] = arch.sliding_window
    if family.windows == "some":
        said["use_sliding_window"] = arch.sliding_window is not None
        said["sliding_window"] = arch.sliding_window
        if "sliding_attention" in kinds:  # for readers before layer_types
            said["max_window_layers"] = kinds.index("sliding_attention")
    if family.windows == "some" or family.linear is not None:
        said["layer_types"] = kinds
    return said


def _mixture(
    arch: Arch, experts: Experts, trunk: Sequence[LayerNames], where: str
) -> dict[str, Json]:
    moe = arch.moe
    if moe is None:
        raise UnsupportedFeature(f"{where}: a {arch.arch_name} model needs arch.moe")
    config: dict[str, Json] = {
        experts.count_keys[0]: moe.num_experts,
        "num_experts_per_tok": moe.top_k,
        "moe_intermediate_size": moe.moe_intermediate_size,
    }
    if experts.says_renormalised:
        config["norm_topk_prob"] = moe.norm_topk_prob
    shared = moe.shared_expert_intermediate_size
    if experts.shared == "n_shared_experts":
        config["n_shared_experts"] = (shared or 0) // moe.moe_intermediate_size
    elif experts.shared is not None:
        config[experts.shared] = shared
    if experts.is_sigmoid:
        scaling = moe.routed_scaling_factor
        config["routed_scaling_factor"] = 1.0 if scaling is None else scaling
        config |= {"n_group": 1, "topk_group": 1}
    return config | _dense_layers(experts, trunk, where)


def _dense_layers(
    experts: Experts, trunk: Sequence[LayerNames], where: str
) -> dict[str, Json]:
    dense: list[Json] = [i for i, layer in enumerate(trunk) if not layer.is_sparse]
    if experts.dense_key == "mlp_only_layers":
        return {"mlp_only_layers": dense, "decoder_sparse_step": 1}
    if experts.dense_key == "first_k_dense_replace" and dense == [*range(len(dense))]:
        return {"first_k_dense_replace": len(dense)}
    if dense:
        raise UnsupportedFeature(
            f"{where}: layer {dense[-1]} has no experts, which this family's config.json "
            "can't say"
        )
    return {}


def _special_ids(header: Header) -> dict[str, Json]:
    special = header.tokenizer_config
    ends = list[Json](special.eos_token_ids) if special is not None else []
    return {
        "bos_token_id": None if special is None else special.bos_token_id,
        "eos_token_id": ends[0] if len(ends) == 1 else ends or None,
        "pad_token_id": None if special is None else special.pad_token_id,
    }


def _refuse_unsaid(arch: Arch, family: HfFamily, where: str) -> None:
    known = set(EVERYWHERE)
    known |= {"sliding_window"} if family.windows != "none" else set()
    known |= {"partial_rotary_factor"} if family.has_partial_rotary else set()
    known |= set(DELTA_SIZES) if family.linear is not None else set()
    known |= {"moe"} if family.experts is not None else set()
    plain = Arch.model_fields
    for key in sorted({*arch.model_fields_set, *(arch.model_extra or {})} - known):
        value = getattr(arch, key)
        default = plain[key].get_default() if key in plain else None
        if value is not None and value != default:
            raise _unsaid(arch, key, value, where)
    if arch.norm_style != family.norm_style:
        raise _unsaid(arch, "norm_style", arch.norm_style, where)
    for kind in arch.layer_types:
        if kind not in family.layer_types:
            raise _unsaid(arch, "layer_types", kind, where)
    if family.windows == "all" and (arch.sliding_window is None) == (
        "SlidingAttention" in arch.layer_types
    ):
        raise _unsaid(arch, "layer_types", arch.layer_types, where)
    if arch.moe is not None and family.experts is not None:
        _refuse_other_router(arch, family.experts, where)


def _refuse_other_router(arch: Arch, experts: Experts, where: str) -> None:
    moe = arch.moe
    assert moe is not None
    if moe.router_sigmoid != experts.is_sigmoid or moe.router_resonance:
        raise _unsaid(arch, "moe", moe.to_json(), where)
    if not experts.is_sigmoid and moe.routed_scaling_factor not in (None, 1.0):
        raise _unsaid(arch, "moe.routed_scaling_factor", moe.routed_scaling_factor, where)


def _refuse_folded(arch: Arch, entries: Mapping[str, TensorEntry], where: str) -> None:
    """Widths that differ from the header's are in no config.json."""
    for layer in range(arch.num_layers):
        name = f"model.layers.{layer}.mlp.gate_proj.weight"
        entry = entries.get(name)
        if entry is not None and entry.shape[0] != arch.intermediate_size:
            raise UnsupportedFeature(
                f"{where}: tensor {name!r} has {entry.shape[0]} rows, the header says "
                f"{arch.intermediate_size}: a config.json can't give each layer its width; "
                "keep the .cmf"
            )


def _unsaid(arch: Arch, key: str, value: object, where: str) -> UnsupportedFeature:
    return UnsupportedFeature(
        f"{where}: arch.{key} is {value!r}, which a {arch.arch_name} config.json can't "
        "say; this model can't be exported"
    )
