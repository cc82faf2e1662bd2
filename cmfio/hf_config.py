"""config.json of a checkpoint, and the header's `arch`: one made from the other.

Here for plain Llama and Qwen3. A setting that would change the model's numbers and has no
place on the other side is refused by name, never dropped.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from cmfio.arch import Arch, Mtp
from cmfio.errors import ParseError, UnsupportedFeature
from cmfio.header import Header
from cmfio.json_text import Json

CLASSES = {"llama": "LlamaForCausalLM", "qwen3": "Qwen3ForCausalLM"}
# Both sides spell these alike but for their names: config key, arch field.
SIZES = {
    "hidden_size": "hidden_size",
    "intermediate_size": "intermediate_size",
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_attention_heads",
    "vocab_size": "vocab_size",
    "max_position_embeddings": "max_position_embeddings",
}
# Settings that must have this value, or be absent: the header has no field for another.
PLAIN: Mapping[str, tuple[Json, ...]] = {
    "attention_bias": (False,),
    "mlp_bias": (False,),
    "use_sliding_window": (False,),
    "hidden_act": ("silu",),
    "pretraining_tp": (1,),
    "logit_scale": (1, 1.0),
}
MOST_LAYERS = 1 << 16  # more are no model, and would only take memory here
MTP_KEYS = ("mtp_num_hidden_layers", "num_nextn_predict_layers")
ARCH_FIELDS = {
    *SIZES.values(),
    "arch_name",
    "num_kv_heads",
    "head_dim",
    "layer_types",
    "rms_norm_eps",
    "rope_theta",
    "tie_word_embeddings",
    "mtp",
}


@dataclass(frozen=True)
class Config:
    """A config.json, asked for by type; errors name its path and the key."""

    path: Path
    values: Mapping[str, Json]

    def whole(self, key: str, default: int | None = None) -> int:
        """A count from 1."""
        value = self.values.get(key)
        value = default if value is None else value
        if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
            return value
        raise ParseError(f"{self.path}: {key} should be a count, it is {value!r}")

    def real(self, key: str, default: float | None = None) -> float:
        """A number."""
        value = self.values.get(key, default)
        if isinstance(value, float | int) and not isinstance(value, bool):
            return float(value)
        raise ParseError(f"{self.path}: {key} should be a number, it is {value!r}")

    def part(self, key: str) -> "Config":
        """An object inside; empty when it is absent."""
        value = self.values.get(key) or {}
        if isinstance(value, dict):
            return Config(self.path, value)
        raise ParseError(f"{self.path}: {key} should be an object, it is {value!r}")


def arch_from_config(config: Config) -> Arch:
    """The `arch` of a Llama or Qwen3 config; UnsupportedFeature for what it can't say."""
    family = config.values.get("model_type")
    if not isinstance(family, str) or family not in CLASSES:
        raise UnsupportedFeature(
            f"{config.path}: model_type {family!r} can't be imported, only "
            f"{' and '.join(CLASSES)}"
        )
    _refuse_unplain(config)
    sizes = {field: config.whole(key) for key, field in SIZES.items()}
    heads, hidden = sizes["num_attention_heads"], sizes["hidden_size"]
    mtp = next((n for n in map(config.values.get, MTP_KEYS) if isinstance(n, int) and n), 0)
    try:
        return Arch(
            **sizes,
            arch_name=family,
            num_kv_heads=config.whole("num_key_value_heads", heads),
            head_dim=config.whole("head_dim", max(hidden // heads, 1)),
            layer_types=("FullAttention",) * _layers(config),
            rms_norm_eps=config.real("rms_norm_eps", 1e-6),
            rope_theta=_rope_theta(config),
            tie_word_embeddings=config.values.get("tie_word_embeddings", False) is True,
            mtp=Mtp(num_layers=mtp) if mtp > 0 else None,
        )
    except ValidationError as error:
        raise ParseError(f"{config.path}: describes no model: {error}") from error


def config_from_header(header: Header, where: str) -> dict[str, Json]:
    """The config.json of a Llama or Qwen3 container; UnsupportedFeature names the field."""
    arch = header.arch
    family = arch.arch_name.lower()
    if family not in CLASSES:
        raise UnsupportedFeature(
            f"{where}: a {arch.arch_name} model can't be exported, only "
            f"{' and '.join(CLASSES)}"
        )
    _refuse_unsaid(arch, where)
    special = header.tokenizer_config
    ends = list[Json](special.eos_token_ids) if special is not None else []
    rope: dict[str, Json] = {"rope_theta": arch.rope_theta, "rope_type": "default"}
    config: dict[str, Json] = {
        "architectures": [CLASSES[family]],
        "model_type": family,
        **{key: getattr(arch, field) for key, field in SIZES.items()},
        "num_key_value_heads": arch.num_kv_heads,
        "head_dim": arch.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": arch.rms_norm_eps,
        "rope_theta": arch.rope_theta,  # for readers before rope_parameters
        "rope_parameters": rope,
        "attention_bias": False,
        "tie_word_embeddings": arch.tie_word_embeddings,
        "bos_token_id": None if special is None else special.bos_token_id,
        "eos_token_id": ends[0] if len(ends) == 1 else ends or None,
        "pad_token_id": None if special is None else special.pad_token_id,
    }
    return config if arch.mtp is None else config | {MTP_KEYS[0]: arch.mtp.num_layers}


def _refuse_unplain(config: Config) -> None:
    for key, allowed in PLAIN.items():
        value = config.values.get(key)
        if value is not None and value not in allowed:
            raise UnsupportedFeature(
                f"{config.path}: {key} is {value!r}; only {allowed[0]!r} can be imported"
            )
    kinds = config.values.get("layer_types")
    for kind in kinds if isinstance(kinds, list) else ():
        if kind != "full_attention":
            raise UnsupportedFeature(
                f"{config.path}: layer type {kind!r} can't be imported, only full attention"
            )


def _layers(config: Config) -> int:
    layers = config.whole("num_hidden_layers")
    if layers > MOST_LAYERS:
        raise ParseError(f"{config.path}: num_hidden_layers is {layers:,}, too many")
    return layers


def _rope_theta(config: Config) -> float:
    rope = config.part("rope_parameters")
    scaling = config.part("rope_scaling")
    for part in (rope, scaling):
        kind = part.values.get("rope_type", part.values.get("type", "default"))
        if kind != "default":
            raise UnsupportedFeature(
                f"{config.path}: rotary scaling {kind!r} can't be imported"
            )
    return rope.real("rope_theta", config.real("rope_theta", 10000.0))


def _refuse_unsaid(arch: Arch, where: str) -> None:
    plain = Arch.model_fields
    for key in sorted({*arch.model_fields_set, *(arch.model_extra or {})} - ARCH_FIELDS):
        value = getattr(arch, key)
        default = plain[key].get_default() if key in plain else None
        if value is not None and value != default:
            raise UnsupportedFeature(
                f"{where}: arch.{key} is {value!r}, which a {arch.arch_name} config.json "
                "can't say; this model can't be exported"
            )
    if set(arch.layer_types) - {"FullAttention"}:
        raise UnsupportedFeature(f"{where}: only full attention can be exported")
