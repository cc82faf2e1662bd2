"""A tiny model as a GGUF file, for tests: its weights, its tokenizer, its settings."""

import struct
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

HIDDEN, FFN, HEADS, KV_HEADS, HEAD_DIM, LAYERS = 64, 96, 2, 1, 32, 2
F32 = NDArray[np.float32]
Change = Callable[[gguf.GGUFWriter], None]


def byte_tokens() -> list[str]:
    """GPT-2's printable stand-ins for the 256 bytes, in the order of the bytes."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    shifted = iter(range(256, 512))
    return [chr(b) if b in printable else chr(next(shifted)) for b in range(256)]


TOKENS = ["<|end|>", *byte_tokens(), "he", "ll", "hell", "12", "Ġhe", "<|user|>"]
MERGES = ["h e", "l l", "he ll", "1 2", "Ġ he"]
VOCAB = len(TOKENS)


def model_weights(family: str) -> dict[str, F32]:
    """The tensors as Hugging Face has them, under GGUF's names."""
    draw = np.random.default_rng(9)
    weights = {"token_embd.weight": (VOCAB, HIDDEN), "output_norm.weight": (HIDDEN,)}
    for i in range(LAYERS):
        weights |= {
            f"blk.{i}.attn_norm.weight": (HIDDEN,),
            f"blk.{i}.attn_q.weight": (HEADS * HEAD_DIM, HIDDEN),
            f"blk.{i}.attn_k.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            f"blk.{i}.attn_v.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            f"blk.{i}.attn_output.weight": (HIDDEN, HEADS * HEAD_DIM),
            f"blk.{i}.ffn_norm.weight": (HIDDEN,),
            f"blk.{i}.ffn_gate.weight": (FFN, HIDDEN),
            f"blk.{i}.ffn_up.weight": (FFN, HIDDEN),
            f"blk.{i}.ffn_down.weight": (HIDDEN, FFN),
        }
        if family == "qwen3":
            weights[f"blk.{i}.attn_q_norm.weight"] = (HEAD_DIM,)
            weights[f"blk.{i}.attn_k_norm.weight"] = (HEAD_DIM,)
    return {
        name: draw.standard_normal(shape).astype(np.float32)
        for name, shape in weights.items()
    }


def interleaved(weight: F32, heads: int) -> F32:
    """llama.cpp's order of rows: of each head 0, d/2, 1, d/2 + 1, …; one row at a time."""
    out = np.empty_like(weight)
    for head in range(heads):
        for i in range(HEAD_DIM // 2):
            for half in (0, 1):
                source = head * HEAD_DIM + half * HEAD_DIM // 2 + i
                out[head * HEAD_DIM + 2 * i + half] = weight[source]
    return out


def say_what_it_is(writer: gguf.GGUFWriter, family: str) -> None:
    writer.add_block_count(LAYERS)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD_DIM)
    writer.add_rope_freq_base(50000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm" if family == "llama" else "qwen2")
    writer.add_token_list(TOKENS)
    writer.add_token_types([3, *[1] * (VOCAB - 2), 3])
    writer.add_token_merges(MERGES)
    writer.add_eos_token_id(0)
    writer.add_chat_template("{{ messages }}")


def write_gguf(
    path: Path, family: str = "llama", change: Change | None = None
) -> dict[str, F32]:
    writer = gguf.GGUFWriter(path, family)
    say_what_it_is(writer, family)
    weights = model_weights(family)
    for name, weight in weights.items():
        stored = weight
        if family == "llama" and "attn_q" in name:
            stored = interleaved(weight, HEADS)
        elif family == "llama" and "attn_k" in name:
            stored = interleaved(weight, KV_HEADS)
        if "ffn_up" in name:
            packed = gguf.quantize(stored, gguf.GGMLQuantizationType.Q8_0)
            writer.add_tensor(name, packed, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
            weights[name] = q8_0_values(packed.tobytes(), weight.shape)
        else:
            writer.add_tensor(name, stored)
    if change is not None:
        change(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return weights


def q8_0_values(packed: bytes, shape: tuple[int, ...]) -> F32:
    """Blocks of 34 bytes: a f16 scale and 32 signed steps."""
    values = []
    for start in range(0, len(packed), 34):
        scale, *steps = struct.unpack("<e32b", packed[start : start + 34])
        values += [np.float32(scale) * np.float32(step) for step in steps]
    return np.array(values, np.float32).reshape(shape)
