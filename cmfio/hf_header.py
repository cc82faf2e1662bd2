"""The header of a checkpoint: config.json, special ids, chat template; no weights."""

from dataclasses import dataclass
from pathlib import Path

from cmfio.arch import Arch
from cmfio.config_json import Config
from cmfio.errors import CmfIoError, FileNotFound, ParseError, UnsupportedFeature
from cmfio.header import TokenizerConfig
from cmfio.hf_config import arch_from_config, text_config
from cmfio.hf_families import HfFamily
from cmfio.hf_folder import PROVENANCE
from cmfio.json_text import Json, parse_object
from cmfio.opening import is_folder, read_regular
from cmfio.safetensors_files import patched

CONFIG, TOKENIZER = "config.json", "tokenizer.json"
QUANTISED_FILES = ("quantize_config.json", "quant_config.json", "quantization_config.json")


@dataclass(frozen=True)
class Described:
    """What a checkpoint's small files say of it; `text` has the text model's settings."""

    family: HfFamily
    text: Config
    arch: Arch
    tokenizer_config: TokenizerConfig | None
    vocab: bytes | None
    provenance: dict[str, Json]  # what an earlier heal wrote beside the weights


def describe_folder(folder: Path, patch: Path | None = None) -> Described:
    """What a checkpoint is, before its weights are looked at.

    Files in `patch` stand in for those of the same name.
    UnsupportedFeature names its family, its quantisation, or the setting that a header
    can't say.
    """
    if not is_folder(folder):
        what = "is no folder" if folder.exists() else "there is no such folder"
        raise FileNotFound(f"{folder}: {what}; give that of a Hugging Face checkpoint")
    path = patched(folder, patch, CONFIG)
    if not path.exists():
        raise FileNotFound(
            f"{folder}: is a folder without {CONFIG}; give a .cmf file or the folder of a "
            "Hugging Face checkpoint"
        )
    config = Config(path, read_object(path.parent, path.name, needed=True))
    _refuse_quantised(folder, config)
    family, text = text_config(config)
    return Described(
        family,
        text,
        arch_from_config(config),
        _tokenizer_config(folder, config),
        _bytes(folder / TOKENIZER),
        read_object(patched(folder, patch, PROVENANCE).parent, PROVENANCE),
    )


def read_object(folder: Path, name: str, *, needed: bool = False) -> dict[str, Json]:
    """The object in a JSON file of a folder; {} if it may be absent and is."""
    data = _bytes(folder / name)
    if data is None and needed:
        raise FileNotFound(f"{folder / name}: there is no such file; give a checkpoint")
    if data is None:
        return {}
    try:
        return parse_object(data, str(folder / name))
    except ParseError as error:
        raise ParseError(f"{error}; mend it, or download the checkpoint again") from error


def _refuse_quantised(folder: Path, config: Config) -> None:
    text = config.part("text_config") if "text_config" in config.values else config
    quantised = config.get("quantization_config") or text.get("quantization_config")
    method = quantised.get("quant_method") if isinstance(quantised, dict) else quantised
    found = [name for name in QUANTISED_FILES if (folder / name).exists()]
    if method is None and quantised is None and not found:
        return
    where = f"{config.path}: quantization_config" if quantised else folder / found[0]
    raise UnsupportedFeature(
        f"{where}: the checkpoint is quantised ({method or 'method unsaid'}) and can't "
        "be imported; give the original in F32, F16 or BF16"
    )


def _tokenizer_config(folder: Path, config: Config) -> TokenizerConfig | None:
    text = config.part("text_config")

    def said(key: str) -> Json:
        return config.get(key) if config.get(key) is not None else text.get(key)

    generation = read_object(folder, "generation_config.json")
    ends = generation.get("eos_token_id", said("eos_token_id"))
    path = config.path
    found = {
        "chat_template": _chat_template(folder),
        "eos_token_ids": _ids(ends, path),
        "bos_token_id": next(iter(_ids(said("bos_token_id"), path)), None),
        "pad_token_id": next(iter(_ids(said("pad_token_id"), path)), None),
    }
    given = {key: value for key, value in found.items() if value not in (None, ())}
    return TokenizerConfig.model_validate(given) if given else None


def _chat_template(folder: Path) -> str | None:
    text = (_bytes(folder / "chat_template.jinja") or b"").decode("utf-8", "replace")
    if text.strip():
        return text
    template = read_object(folder, "tokenizer_config.json").get("chat_template")
    if isinstance(template, list):  # several by name
        named = {one.get("name"): one for one in template if isinstance(one, dict)}
        template = named.get("default", {}).get("template")
    return template if isinstance(template, str) else None


def _ids(value: Json, path: Path) -> tuple[int, ...]:
    values = value if isinstance(value, list) else [] if value is None else [value]
    ids = tuple(n for n in values if isinstance(n, int) and 0 <= n < 1 << 32)
    if len(ids) != len(values):
        raise ParseError(f"{path}: {value!r} should be a token's id, or several")
    return ids


def _bytes(path: Path) -> bytes | None:
    try:
        is_there = path.exists()
    except OSError as error:
        raise CmfIoError(f"{path}: can't be read: {error}") from error
    return read_regular(path, "a file") if is_there else None
