"""A model of a given f32 size that is cheap to make: its layers are all the same."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np

from cmfio.header import Arch, Header
from cmfio.rewrite import encode_tensor
from cmfio.writer import Payload, write_container

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, FFN, VOCAB = 1024, 16, 8, 64, 4096, 8192
LAYER = {
    "input_layernorm": (HIDDEN,),
    "self_attn.q_proj": (HEADS * HEAD_DIM, HIDDEN),
    "self_attn.k_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
    "self_attn.v_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
    "self_attn.o_proj": (HIDDEN, HEADS * HEAD_DIM),
    "post_attention_layernorm": (HIDDEN,),
    "mlp.gate_proj": (FFN, HIDDEN),
    "mlp.up_proj": (FFN, HIDDEN),
    "mlp.down_proj": (HIDDEN, FFN),
}
LAYER_BYTES = 4 * sum(math.prod(shape) for shape in LAYER.values())


def write_big(path: Path, f32_bytes: int) -> int:
    """A Llama in 4 bits; how many bytes it is in f32, at least those asked for."""
    layers = -(-f32_bytes // LAYER_BYTES)
    random = np.random.default_rng(7)
    table = _payload("model.embed_tokens.weight", (VOCAB, HIDDEN), random)
    norm = _payload("model.norm.weight", (HIDDEN,), random)
    one = {name: _payload(name, shape, random) for name, shape in LAYER.items()}
    payloads = [
        table,
        *(
            replace(payload, name=f"model.layers.{i}.{name}.weight")
            for i in range(layers)
            for name, payload in one.items()
        ),
        norm,
    ]
    write_container(path, Header(arch=_arch(layers), quant_type="Q4_BLOCK"), payloads)
    return layers * LAYER_BYTES + 4 * VOCAB * HIDDEN


def _payload(name: str, shape: tuple[int, ...], random: np.random.Generator) -> Payload:
    if len(shape) == 1:
        return encode_tensor(name, np.ones(shape, np.float32), "f16")
    values = random.standard_normal(shape, np.float32) / math.sqrt(shape[1])
    return encode_tensor(name, values, "q4_tiled")


def _arch(layers: int) -> Arch:
    return Arch(
        arch_name="llama",
        hidden_size=HIDDEN,
        intermediate_size=FFN,
        num_layers=layers,
        num_attention_heads=HEADS,
        num_kv_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        vocab_size=VOCAB,
        layer_types=("FullAttention",) * layers,
        rms_norm_eps=1e-6,
        rope_theta=1e4,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
    )
