"""A dense decoder and an MTP block in plain loops, f64, from models.md §3 and §4.

One position, one head at a time. Nothing is shared with `nets` or `transformers`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float64]
Tensors = Mapping[str, Rows]


@dataclass(frozen=True)
class YarnOracle:
    factor: float
    original: int
    beta_fast: float
    beta_slow: float
    attention_factor: float


@dataclass(frozen=True)
class Plain:
    """What the tensors don't say."""

    layers: int
    head_dim: int
    eps: float
    theta: float
    yarn: YarnOracle | None = None


def norm(row: Rows, gain: Rows, eps: float) -> Rows:
    return row / math.sqrt(float(np.mean(row**2)) + eps) * gain


def turns(plain: Plain) -> list[float]:
    """Radians a position, by rotary pair; YaRN (arXiv 2309.00071) slows the slow ones."""
    half = plain.head_dim // 2
    plain_turns = [plain.theta ** (-2 * i / plain.head_dim) for i in range(half)]
    if plain.yarn is None:
        return plain_turns
    yarn = plain.yarn

    def pair_with_rotations(rotations: float) -> float:
        span = yarn.original / (rotations * 2 * math.pi)
        return plain.head_dim * math.log(span) / (2 * math.log(plain.theta))

    low = max(math.floor(pair_with_rotations(yarn.beta_fast)), 0)
    high = min(math.ceil(pair_with_rotations(yarn.beta_slow)), plain.head_dim - 1)
    slowed = []
    for i, turn in enumerate(plain_turns):
        share = min(max((i - low) / max(high - low, 0.001), 0.0), 1.0)
        slowed.append(turn * (1 - share) + turn / yarn.factor * share)
    return slowed


def rotate(head: Rows, position: int, plain: Plain) -> Rows:
    """Pairs (i, i + half) turned by position · rate."""
    half = plain.head_dim // 2
    scale = 1.0 if plain.yarn is None else plain.yarn.attention_factor
    out = np.empty_like(head)
    for i, turn in enumerate(turns(plain)):
        cos, sin = math.cos(position * turn) * scale, math.sin(position * turn) * scale
        out[i] = head[i] * cos - head[i + half] * sin
        out[i + half] = head[i + half] * cos + head[i] * sin
    return out


def projected_heads(row: Rows, tensors: Tensors, name: str, plain: Plain) -> list[Rows]:
    """The heads of one projection of one row, through the head norm if there is one."""
    flat = tensors[f"{name}_proj.weight"] @ row
    heads = [flat[i : i + plain.head_dim] for i in range(0, len(flat), plain.head_dim)]
    gain = tensors.get(f"{name}_norm.weight")
    return heads if gain is None else [norm(head, gain, plain.eps) for head in heads]


def attend(rows: Rows, tensors: Tensors, prefix: str, plain: Plain, start: int) -> Rows:
    """Causal attention of normed rows at positions start, start + 1, …, through o_proj."""
    p = f"{prefix}self_attn."
    queries = [projected_heads(row, tensors, f"{p}q", plain) for row in rows]
    keys = [projected_heads(row, tensors, f"{p}k", plain) for row in rows]
    values = [projected_heads(row, tensors, f"{p}v", plain) for row in rows]
    group = len(queries[0]) // len(keys[0])
    out = []
    for t in range(len(rows)):
        joined = []
        for h, query in enumerate(queries[t]):
            turned = rotate(query, start + t, plain)
            scores = [
                float(turned @ rotate(keys[s][h // group], start + s, plain))
                for s in range(t + 1)
            ]
            weights = [math.exp((x - max(scores)) * plain.head_dim**-0.5) for x in scores]
            mixed = sum(
                (w * values[s][h // group] for s, w in enumerate(weights)),
                start=np.zeros(plain.head_dim),
            )
            joined.append(mixed / sum(weights))
        out.append(tensors[f"{p}o_proj.weight"] @ np.concatenate(joined))
    return np.stack(out)


def feed_forward(row: Rows, tensors: Tensors, prefix: str) -> Rows:
    gate = tensors[f"{prefix}mlp.gate_proj.weight"] @ row
    up = tensors[f"{prefix}mlp.up_proj.weight"] @ row
    return np.asarray(
        tensors[f"{prefix}mlp.down_proj.weight"] @ (gate / (1 + np.exp(-gate)) * up)
    )


def decoder_layer(
    rows: Rows, tensors: Tensors, prefix: str, plain: Plain, start: int = 0
) -> Rows:
    gain = tensors[f"{prefix}input_layernorm.weight"]
    rows = rows + attend(
        np.stack([norm(r, gain, plain.eps) for r in rows]), tensors, prefix, plain, start
    )
    gain = tensors[f"{prefix}post_attention_layernorm.weight"]
    return np.stack(
        [r + feed_forward(norm(r, gain, plain.eps), tensors, prefix) for r in rows]
    )


def raw_rows(ids: Sequence[int], tensors: Tensors, plain: Plain) -> Rows:
    """The last layer's rows before model.norm, [T, H]."""
    rows = tensors["model.embed_tokens.weight"][list(ids)]
    for i in range(plain.layers):
        rows = decoder_layer(rows, tensors, f"model.layers.{i}.", plain)
    return rows


def logits(raw: Rows, tensors: Tensors, plain: Plain) -> Rows:
    """The head on normed rows, [T, V]; a missing head is the embedding."""
    head = tensors.get("lm_head.weight", tensors["model.embed_tokens.weight"])
    gain = tensors["model.norm.weight"]
    return np.stack([head @ norm(row, gain, plain.eps) for row in raw])


def draft_rows(tokens: Sequence[int], raw: Rows, tensors: Tensors, plain: Plain) -> Rows:
    """Step 1 of the MTP block at positions 0, 1, …: rows before model.mtp.norm, [T, H]."""
    embed = tensors["model.embed_tokens.weight"]
    fused = []
    for token, hidden in zip(tokens, raw, strict=True):
        e = norm(embed[token], tensors["model.mtp.enorm.weight"], plain.eps)
        g = norm(hidden, tensors["model.mtp.hnorm.weight"], plain.eps)
        fused.append(tensors["model.mtp.eh_proj.weight"] @ np.concatenate([e, g]))
    return decoder_layer(np.stack(fused), tensors, "model.mtp.layers.0.", plain)
