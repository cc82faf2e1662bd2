"""Tiny random models for tests: header record, directory, reader of their tensors, file."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cmfio.header import Arch, Header, Mtp
from cmfio.rewrite import encode_tensor
from cmfio.writer import write_container

Widths = tuple[int, int, int]  # query heads, key/value heads, FFN neurons

HIDDEN, HEAD_DIM, VOCAB = 32, 8, 61


class TinyModel(NamedTuple):
    """`arch, shapes, read = tiny_llama()`; `read` gives the tensors, no copies."""

    arch: Arch
    shapes: dict[str, tuple[int, ...]]
    read: Callable[[str], Tensor]

    @property
    def tensors(self) -> dict[str, Tensor]:
        return {name: self.read(name) for name in self.shapes}


@dataclass(frozen=True)
class TinySpec:
    """What tests vary. Gains are jittered, so that a norm left out or doubled shows."""

    layers: Sequence[Widths] = ((4, 2, 48), (4, 2, 48))
    draft: Widths | None = (4, 2, 40)
    vocab: int = VOCAB
    seed: int = 0
    arch: Mapping[str, Any] = field(default_factory=dict)  # any field of the header


def tiny_llama(spec: TinySpec | None = None) -> TinyModel:
    """Llama with a head of its own."""
    spec = spec or TinySpec()
    return _tiny(
        spec, {"arch_name": "llama", "tie_word_embeddings": False, "rope_theta": 1e4}
    )


def tiny_qwen3(spec: TinySpec | None = None) -> TinyModel:
    """Qwen3 with a tied head."""
    spec = spec or TinySpec()
    return _tiny(
        spec, {"arch_name": "qwen3", "tie_word_embeddings": True, "rope_theta": 1e6}
    )


def model_of(arch: Arch, tensors: Mapping[str, Tensor]) -> TinyModel:
    """A model of these tensors."""
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    return TinyModel(arch, shapes, tensors.__getitem__)


def write_model(
    path: Path, model: TinyModel, *, vocab: bytes | None = None, dtype: str = "f16"
) -> Path:
    """A real `.cmf` of the model, every tensor in one dtype."""
    header = Header(format="cmf", version=2, arch=model.arch, quant_type=dtype.upper())
    payloads = [
        encode_tensor(name, tensor.float().numpy(), dtype)
        for name, tensor in model.tensors.items()
    ]
    write_container(path, header, payloads, vocab=vocab)
    return path


def byte_tokenizer() -> bytes:
    """A `tokenizer.json` with a token a byte, ids 0 to 255, and no merges."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer.to_str().encode()


def _tiny(spec: TinySpec, family: Mapping[str, Any]) -> TinyModel:
    arch = _arch(spec, {**family, **spec.arch})
    generator = torch.Generator().manual_seed(spec.seed)
    tensors = {"model.embed_tokens.weight": _matrix(generator, spec.vocab, HIDDEN)}
    has_head_norms = family["arch_name"] == "qwen3"
    for i, widths in enumerate(spec.layers):
        tensors |= _layer(
            generator, f"model.layers.{i}.", widths, has_head_norms=has_head_norms
        )
    tensors["model.norm.weight"] = _gain(generator, HIDDEN)
    if not arch.tie_word_embeddings:
        tensors["lm_head.weight"] = _matrix(generator, spec.vocab, HIDDEN)
    if spec.draft is not None:
        for name in ("enorm", "hnorm", "norm"):
            tensors[f"model.mtp.{name}.weight"] = _gain(generator, HIDDEN)
        tensors["model.mtp.eh_proj.weight"] = _matrix(generator, HIDDEN, 2 * HIDDEN)
        tensors |= _layer(
            generator, "model.mtp.layers.0.", spec.draft, has_head_norms=has_head_norms
        )
    return model_of(arch, tensors)


def _arch(spec: TinySpec, given: Mapping[str, Any]) -> Arch:
    heads, kv_heads, ffn = spec.layers[0]
    fields = {
        "hidden_size": HIDDEN,
        "intermediate_size": ffn,
        "num_layers": len(spec.layers),
        "num_attention_heads": heads,
        "num_kv_heads": kv_heads,
        "head_dim": HEAD_DIM,
        "vocab_size": spec.vocab,
        "layer_types": ("FullAttention",) * len(spec.layers),
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": 256,
        "mtp": None if spec.draft is None else Mtp(num_layers=1),
    }
    return Arch(**{**fields, **given})


def _layer(
    generator: torch.Generator, prefix: str, widths: Widths, *, has_head_norms: bool
) -> dict[str, Tensor]:
    heads, kv_heads, ffn = widths
    layer = {
        "input_layernorm": _gain(generator, HIDDEN),
        "self_attn.q_proj": _matrix(generator, heads * HEAD_DIM, HIDDEN),
        "self_attn.k_proj": _matrix(generator, kv_heads * HEAD_DIM, HIDDEN),
        "self_attn.v_proj": _matrix(generator, kv_heads * HEAD_DIM, HIDDEN),
        "self_attn.o_proj": _matrix(generator, HIDDEN, heads * HEAD_DIM),
        "post_attention_layernorm": _gain(generator, HIDDEN),
        "mlp.gate_proj": _matrix(generator, ffn, HIDDEN),
        "mlp.up_proj": _matrix(generator, ffn, HIDDEN),
        "mlp.down_proj": _matrix(generator, HIDDEN, ffn),
    }
    if has_head_norms:
        layer["self_attn.q_norm"] = _gain(generator, HEAD_DIM)
        layer["self_attn.k_norm"] = _gain(generator, HEAD_DIM)
    return {f"{prefix}{name}.weight": tensor for name, tensor in layer.items()}


def _matrix(generator: torch.Generator, rows: int, cols: int) -> Tensor:
    return torch.randn(rows, cols, generator=generator) / math.sqrt(cols)


def _gain(generator: torch.Generator, width: int) -> Tensor:
    return 1 + 0.2 * torch.randn(width, generator=generator)
