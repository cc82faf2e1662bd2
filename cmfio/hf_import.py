"""A Hugging Face checkpoint in: safetensors of a Llama or Qwen3, every tensor as it is."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from cmfio.errors import CmfIoError, FileNotFound, ParseError, UnsupportedFeature
from cmfio.header import Arch, Header, TokenizerConfig
from cmfio.hf_config import Config, arch_from_config
from cmfio.hf_layout import model_order
from cmfio.hf_names import canonical_name
from cmfio.json_text import Json, parse_object
from cmfio.safetensors_files import SafeTensor, open_checkpoint
from cmfio.writer import Output, Payload, write_model

DTYPES = {"F32": "f32", "F16": "f16", "BF16": "bf16"}
# Buffers that old checkpoints carry, made anew from the config by every reader.
BUFFERS = (".rotary_emb.inv_freq",)
QUANTISED_FILES = ("quantize_config.json", "quant_config.json", "quantization_config.json")


def import_hf(
    folder: Path,
    out: Path,
    output: Output = Output(),  # noqa: B008 — frozen
) -> list[Path]:
    """The files written: the checkpoint's tensors under canonical names, bytes untouched.

    Beside the weights config.json is needed; tokenizer.json, chat template and special ids
    are taken where they are. UnsupportedFeature names what makes a model another variant:
    its family, a setting, a tensor, or how it is quantised.
    """
    if not folder.is_dir():
        raise FileNotFound(f"{folder}: there is no such folder")
    config = Config(folder / "config.json", _object(folder, "config.json", needed=True))
    _refuse_quantised(folder, config)
    arch = arch_from_config(config)
    vocab = _bytes(folder / "tokenizer.json")
    sections = {} if vocab is None else {"vocab": vocab}
    with open_checkpoint(folder) as tensors:
        payloads = _payloads(tensors, arch, str(folder))
        header = Header(
            arch=arch,
            quant_type=_label(payloads),
            provenance={"tool": "cmf import-hf", "source_model": folder.resolve().name},
            tokenizer_config=_tokenizer_config(folder, config),
        )
        files = {tensor.stored.path for tensor in tensors.values()}
        return write_model(out, header, payloads, sections, output, sorted(files))


def _payloads(tensors: Mapping[str, SafeTensor], arch: Arch, where: str) -> list[Payload]:
    named: dict[str, SafeTensor] = {}
    for source, tensor in tensors.items():
        name = None if source.endswith(BUFFERS) else canonical_name(source)
        if name in named:
            raise ParseError(
                f"{where}: {source!r} and {named[name].name!r} both are {name!r} here"
            )
        if name is not None:
            named[name] = tensor
    return [_payload(name, named[name], where) for name in model_order(named, arch, where)]


def _payload(name: str, tensor: SafeTensor, where: str) -> Payload:
    if tensor.dtype not in DTYPES:
        raise UnsupportedFeature(
            f"{where}: tensor {tensor.name!r} is {tensor.dtype}, which isn't a plain "
            f"float (is it quantised?); give a checkpoint of {', '.join(DTYPES)}"
        )
    stored = tensor.stored
    return Payload(name, DTYPES[tensor.dtype], tensor.shape, stored, stored.nbytes)


def _label(payloads: list[Payload]) -> str:
    sizes: Counter[str] = Counter()
    for payload in payloads:
        sizes[payload.dtype] += payload.nbytes or 0
    return sizes.most_common(1)[0][0].upper()


def _refuse_quantised(folder: Path, config: Config) -> None:
    quantised = config.values.get("quantization_config")
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
    generation = _object(folder, "generation_config.json")
    ends = generation.get("eos_token_id", config.values.get("eos_token_id"))
    found = {
        "chat_template": _chat_template(folder),
        "eos_token_ids": _ids(ends, config.path),
        "bos_token_id": next(
            iter(_ids(config.values.get("bos_token_id"), config.path)), None
        ),
        "pad_token_id": next(
            iter(_ids(config.values.get("pad_token_id"), config.path)), None
        ),
    }
    given = {key: value for key, value in found.items() if value not in (None, ())}
    return TokenizerConfig.model_validate(given) if given else None


def _chat_template(folder: Path) -> str | None:
    text = (_bytes(folder / "chat_template.jinja") or b"").decode("utf-8", "replace")
    if text.strip():
        return text
    template = _object(folder, "tokenizer_config.json").get("chat_template")
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


def _object(folder: Path, name: str, *, needed: bool = False) -> dict[str, Json]:
    data = _bytes(folder / name)
    if data is None and needed:
        raise FileNotFound(f"{folder / name}: there is no such file; give a checkpoint")
    return {} if data is None else parse_object(data, str(folder / name))


def _bytes(path: Path) -> bytes | None:
    try:
        return path.read_bytes() if path.exists() else None
    except OSError as error:
        raise CmfIoError(f"{path}: can't be read: {error}") from error
