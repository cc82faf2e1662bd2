"""Tiny random models for tests: header record, directory, reader of their tensors, file."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cmfio.header import Arch, Header, Moe, Mtp, TokenizerConfig
from cmfio.rewrite import encode_tensor
from cmfio.writer import write_container
from tests.draw import EXPERT_FFN, KEY_DIM, TAPS, VALUE_DIM, Draw, Line, Tensors, under
from tests.draw import HEAD_DIM as HEAD_DIM  # for the tests of these models
from tests.draw import HIDDEN as HIDDEN
from tests.draw import Widths as Widths

VOCAB, EXPERTS, TOP_K = 61, 5, 2


class TinyModel(NamedTuple):
    """`arch, shapes, read = tiny_llama()`; `read` gives the tensors, no copies."""

    arch: Arch
    shapes: dict[str, tuple[int, ...]]
    read: Callable[[str], Tensor]

    @property
    def tensors(self) -> Tensors:
        return {name: self.read(name) for name in self.shapes}


@dataclass(frozen=True)
class TinySpec:
    """What tests vary. Gains are jittered, so that a norm left out or doubled shows.

    In a hybrid the layers of type LinearAttention take of `layers` the FFN only, and have
    `linear` heads; in a mixture those in `dense` have an MLP, the others `experts`.
    """

    layers: Sequence[Widths] = ((4, 2, 48), (4, 2, 48))
    draft: Widths | None = (4, 2, 40)
    vocab: int = VOCAB
    seed: int = 0
    arch: Mapping[str, Any] = field(default_factory=dict)  # any field of the header
    linear: tuple[int, int] = (2, 4)  # key heads, value heads
    experts: int = EXPERTS
    dense: Sequence[int] = ()  # layers with an MLP in a mixture
    is_draft_dense: bool = False


def tiny_llama(spec: TinySpec | None = None) -> TinyModel:
    """Llama with a head of its own."""
    return _tiny(spec, Line(_named("llama", rope_theta=1e4)))


def tiny_mistral(spec: TinySpec | None = None) -> TinyModel:
    """Mistral whose rows see five of the rows before them and themselves."""
    named = _named("mistral", sliding_window=6)
    return _tiny(spec, Line(named))


def tiny_qwen2(spec: TinySpec | None = None) -> TinyModel:
    """Qwen2: query, key and value biases; the last layer sees a window."""
    named = _named("qwen2", sliding_window=7)
    return _tiny(spec, Line(named, has_biases=True), last="SlidingAttention")


def tiny_mimo(spec: TinySpec | None = None) -> TinyModel:
    """MiMo-7B, whose trunk is a Qwen2's."""
    return _tiny(spec, Line(_named("mimo"), has_biases=True))


def tiny_ernie(spec: TinySpec | None = None) -> TinyModel:
    """Ernie-4.5: a tied head, rotary pairs beside each other, a draft without a norm."""
    named = _named("ernie4_5", tie_word_embeddings=True)
    return _tiny(spec, Line(named, has_draft_norm=False))


def tiny_qwen3(spec: TinySpec | None = None) -> TinyModel:
    """Qwen3 with a tied head."""
    named = _named("qwen3", tie_word_embeddings=True, rope_theta=1e6)
    return _tiny(spec, Line(named, has_head_norms=True))


def tiny_qwen3_moe(spec: TinySpec | None = None) -> TinyModel:
    """Qwen3-MoE: experts only."""
    line = Line(
        _named("qwen3_moe", moe=_moe(norm_topk_prob=True)),
        has_head_norms=True,
        has_experts=True,
    )
    return _tiny(spec, line)


def tiny_qwen3_5(spec: TinySpec | None = None) -> TinyModel:
    """Qwen3.5: delta nets, and full attention with an output gate in the last layer."""
    line = Line(_hybrid("qwen3_5_text"), has_head_norms=True, has_gate=True)
    return _tiny(spec, line, first="LinearAttention")


def tiny_qwen3_5_moe(spec: TinySpec | None = None) -> TinyModel:
    """Its sibling with experts and a shared one behind a gate."""
    line = Line(
        _hybrid("qwen3_5_moe_text", moe=_moe(norm_topk_prob=True)),
        has_head_norms=True,
        has_gate=True,
        has_experts=True,
        shared="gated",
    )
    return _tiny(spec, line, first="LinearAttention")


def tiny_qwen3_next(spec: TinySpec | None = None) -> TinyModel:
    """Qwen3-Next as its checkpoints pack the delta nets."""
    line = Line(
        _hybrid("qwen3_next", moe=_moe(norm_topk_prob=True)),
        has_head_norms=True,
        has_gate=True,
        has_experts=True,
        shared="gated",
        is_fused=True,
    )
    return _tiny(spec, line, first="LinearAttention")


def tiny_glm(spec: TinySpec | None = None) -> TinyModel:
    """GLM-4.5: a dense layer, then experts behind a sigmoid router with a bias."""
    moe = _moe(norm_topk_prob=True, router_sigmoid=True, routed_scaling_factor=1.5)
    line = Line(
        _named("glm4_moe", partial_rotary_factor=0.5, moe=moe),
        has_biases=True,
        has_head_norms=True,
        has_experts=True,
        shared="plain",
        dense=(0,),
    )
    return _tiny(spec, line)


EVERY_FAMILY = (
    tiny_llama,
    tiny_mistral,
    tiny_qwen2,
    tiny_mimo,
    tiny_ernie,
    tiny_qwen3,
    tiny_qwen3_moe,
    tiny_qwen3_5,
    tiny_qwen3_5_moe,
    tiny_qwen3_next,
    tiny_glm,
)


def model_of(arch: Arch, tensors: Mapping[str, Tensor]) -> TinyModel:
    """A model of these tensors."""
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    return TinyModel(arch, shapes, tensors.__getitem__)


def write_model(
    path: Path,
    model: TinyModel,
    *,
    vocab: bytes | None = None,
    dtype: str = "f16",
    ends: tuple[int, ...] = (),
) -> Path:
    """A real `.cmf` of the model, every tensor in one dtype; `ends` end a sequence."""
    header = Header(
        format="cmf",
        version=2,
        arch=model.arch,
        quant_type=dtype.upper(),
        tokenizer_config=TokenizerConfig(eos_token_ids=ends) if ends else None,
    )
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


def _named(name: str, **fields: Any) -> dict[str, Any]:
    return {"arch_name": name, "tie_word_embeddings": False, "rope_theta": 1e5, **fields}


def _hybrid(name: str, **fields: Any) -> dict[str, Any]:
    sizes = {
        "linear_conv_kernel_dim": TAPS,
        "linear_key_head_dim": KEY_DIM,
        "linear_value_head_dim": VALUE_DIM,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
    }
    named = _named(name, norm_style="gemma", partial_rotary_factor=0.5)
    return {**named, **sizes, **fields}


def _moe(**fields: Any) -> Moe:
    nominal = {"num_experts": EXPERTS, "top_k": TOP_K, "moe_intermediate_size": EXPERT_FFN}
    return Moe(**{**nominal, **fields})


def _tiny(
    spec: TinySpec | None, line: Line, first: str | None = None, last: str | None = None
) -> TinyModel:
    spec = spec or TinySpec()
    arch = _arch(spec, line, first, last)
    draw = Draw(
        torch.Generator().manual_seed(spec.seed), is_gemma=arch.norm_style == "gemma"
    )
    tensors = {"model.embed_tokens.weight": draw.matrix(spec.vocab, HIDDEN)}
    for i, widths in enumerate(spec.layers):
        is_linear = arch.layer_types[i : i + 1] == ("LinearAttention",)
        linear = spec.linear if is_linear else None
        is_sparse = line.has_experts and i not in (*line.dense, *spec.dense)
        experts = spec.experts if is_sparse else 0
        layer = draw.layer(line, widths, linear=linear, experts=experts)
        tensors |= under(f"model.layers.{i}.", layer)
    tensors["model.norm.weight"] = draw.gain(HIDDEN)
    if not arch.tie_word_embeddings:
        tensors["lm_head.weight"] = draw.matrix(spec.vocab, HIDDEN)
    if spec.draft is not None:
        tensors |= under("model.mtp.", _draft(draw, line, spec, spec.draft))
    return model_of(arch, tensors)


def _draft(draw: Draw, line: Line, spec: TinySpec, widths: Widths) -> Tensors:
    norms = ("enorm", "hnorm", *(("norm",) if line.has_draft_norm else ()))
    experts = 0 if spec.is_draft_dense or not line.has_experts else spec.experts
    return {
        **{f"{name}.weight": draw.gain(HIDDEN) for name in norms},
        "eh_proj.weight": draw.matrix(HIDDEN, 2 * HIDDEN),
        **under("layers.0.", draw.layer(line, widths, experts=experts)),
    }


def _arch(spec: TinySpec, line: Line, first: str | None, last: str | None) -> Arch:
    heads, kv_heads, ffn = spec.layers[0]
    kinds = ["FullAttention"] * len(spec.layers)
    if first is not None:  # all but the last
        kinds[:-1] = [first] * (len(kinds) - 1)
    if last is not None:
        kinds[-1] = last
    fields = {
        "hidden_size": HIDDEN,
        "intermediate_size": ffn,
        "num_layers": len(spec.layers),
        "num_attention_heads": heads,
        "num_kv_heads": kv_heads,
        "head_dim": HEAD_DIM,
        "vocab_size": spec.vocab,
        "layer_types": tuple(kinds),
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": 256,
        "mtp": None if spec.draft is None else Mtp(num_layers=1),
    }
    return Arch(**{**fields, **line.arch, **spec.arch})
