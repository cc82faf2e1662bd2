"""Decoders and an MTP block in plain loops, f64; the block as in healing.md §3.

One position, one head at a time. What a layer is shows in its tensors' names. Nothing is
shared with `nets` or `transformers`.
"""

import math
from collections.abc import Sequence

import numpy as np

from tests.oracles.delta_net import delta_net
from tests.oracles.experts import feed_forward
from tests.oracles.plain import Plain, Rows, Tensors, YarnOracle, gain_of, norm, sigmoid

__all__ = [
    "Plain",
    "Rows",
    "YarnOracle",
    "attend",
    "decoder_layer",
    "draft_rows",
    "gain_of",
    "gated",
    "logits",
    "norm",
    "projected_heads",
    "raw_rows",
    "rotate",
]


def turns(plain: Plain) -> list[float]:
    """Radians a position, by rotary pair; YaRN (arXiv 2309.00071) slows the slow ones."""
    dim = plain.rotary_dim
    half = dim // 2
    plain_turns = [plain.theta ** (-2 * i / dim) for i in range(half)]
    if plain.yarn is None:
        return plain_turns
    yarn = plain.yarn

    def pair_with_rotations(rotations: float) -> float:
        span = yarn.original / (rotations * 2 * math.pi)
        return dim * math.log(span) / (2 * math.log(plain.theta))

    low = max(math.floor(pair_with_rotations(yarn.beta_fast)), 0)
    high = min(math.ceil(pair_with_rotations(yarn.beta_slow)), dim - 1)
    slowed = []
    for i, turn in enumerate(plain_turns):
        share = min(max((i - low) / max(high - low, 0.001), 0.0), 1.0)
        slowed.append(turn * (1 - share) + turn / yarn.factor * share)
    return slowed


def rotate(head: Rows, position: int, plain: Plain) -> Rows:
    """Pairs turned by position · rate; what is beyond the rotary's share passes."""
    half = plain.rotary_dim // 2
    scale = 1.0 if plain.yarn is None else plain.yarn.attention_factor
    out = head.copy()
    for i, turn in enumerate(turns(plain)):
        cos, sin = math.cos(position * turn) * scale, math.sin(position * turn) * scale
        left, right = (2 * i, 2 * i + 1) if plain.is_interleaved else (i, i + half)
        out[left] = head[left] * cos - head[right] * sin
        out[right] = head[right] * cos + head[left] * sin
    return out


def projected_heads(row: Rows, tensors: Tensors, name: str, plain: Plain) -> list[Rows]:
    """The heads of one projection of one row, through the head norm if there is one.

    Of queries with an output gate, every first of two: `gates` has the others.
    """
    flat = tensors[f"{name}_proj.weight"] @ row
    if f"{name}_proj.bias" in tensors:
        flat = flat + tensors[f"{name}_proj.bias"]
    heads = [flat[i : i + plain.head_dim] for i in range(0, len(flat), plain.head_dim)]
    if name.endswith(".q") and has_gate(tensors, name.removesuffix("q")):
        heads = heads[::2]
    if f"{name}_norm.weight" not in tensors:
        return heads
    gain = gain_of(tensors, f"{name}_norm.weight", plain)
    return [norm(head, gain, plain.eps) for head in heads]


def has_gate(tensors: Tensors, attention: str) -> bool:
    queries = len(tensors[f"{attention}q_proj.weight"])
    return queries == 2 * len(tensors[f"{attention}o_proj.weight"].T)


def gated(mixed: list[Rows], row: Rows, tensors: Tensors, p: str, plain: Plain) -> Rows:
    """The heads joined, each times the sigmoid of its gate if the layer has one."""
    if not has_gate(tensors, p):
        return np.concatenate(mixed)
    flat, d = tensors[f"{p}q_proj.weight"] @ row, plain.head_dim
    gates = [flat[(2 * h + 1) * d : (2 * h + 2) * d] for h in range(len(mixed))]
    return np.concatenate([m * sigmoid(g) for m, g in zip(mixed, gates, strict=True)])


def attend(
    rows: Rows,
    tensors: Tensors,
    prefix: str,
    plain: Plain,
    start: int,
    *,
    layer: int | None = None,
) -> Rows:
    """Causal attention of normed rows at positions start, start + 1, …, through o_proj.

    `layer` is the trunk's number, for what `plain` lists by layer; None for a draft.
    """
    p = f"{prefix}self_attn."
    queries = [projected_heads(row, tensors, f"{p}q", plain) for row in rows]
    keys = [projected_heads(row, tensors, f"{p}k", plain) for row in rows]
    values = [projected_heads(row, tensors, f"{p}v", plain) for row in rows]
    group = len(queries[0]) // len(keys[0])

    def turned(head: Rows, position: int) -> Rows:
        return head if layer in plain.unrotated else rotate(head, start + position, plain)

    out = []
    for t in range(len(rows)):
        seen = range(t + 1)
        if layer in plain.windowed and plain.window is not None:
            seen = range(max(0, t - plain.window + 1), t + 1)
        joined = []
        for h, query in enumerate(queries[t]):
            scores = [
                float(turned(query, t) @ turned(keys[s][h // group], s)) for s in seen
            ]
            weights = [math.exp((x - max(scores)) * plain.head_dim**-0.5) for x in scores]
            mixed = sum(
                (w * values[s][h // group] for s, w in zip(seen, weights, strict=True)),
                start=np.zeros(plain.head_dim),
            )
            joined.append(mixed / sum(weights))
        out.append(tensors[f"{p}o_proj.weight"] @ gated(joined, rows[t], tensors, p, plain))
    return np.stack(out)


def decoder_layer(
    rows: Rows,
    tensors: Tensors,
    prefix: str,
    plain: Plain,
    start: int = 0,
    *,
    layer: int | None = None,
) -> Rows:
    gain = gain_of(tensors, f"{prefix}input_layernorm.weight", plain)
    inner = np.stack([norm(r, gain, plain.eps) for r in rows])
    if f"{prefix}linear_attn.A_log" in tensors:
        rows = rows + delta_net(inner, tensors, prefix, plain)
    else:
        rows = rows + attend(inner, tensors, prefix, plain, start, layer=layer)
    gain = gain_of(tensors, f"{prefix}post_attention_layernorm.weight", plain)
    return np.stack(
        [r + feed_forward(norm(r, gain, plain.eps), tensors, prefix, plain) for r in rows]
    )


def raw_rows(ids: Sequence[int], tensors: Tensors, plain: Plain) -> Rows:
    """The last layer's rows before model.norm, [T, H]."""
    rows = tensors["model.embed_tokens.weight"][list(ids)]
    for i in range(plain.layers):
        rows = decoder_layer(rows, tensors, f"model.layers.{i}.", plain, layer=i)
    return rows


def logits(raw: Rows, tensors: Tensors, plain: Plain) -> Rows:
    """The head on normed rows, [T, V]; a missing head is the embedding."""
    head = tensors.get("lm_head.weight", tensors["model.embed_tokens.weight"])
    gain = gain_of(tensors, "model.norm.weight", plain)
    return np.stack([head @ norm(row, gain, plain.eps) for row in raw])


def draft_rows(tokens: Sequence[int], raw: Rows, tensors: Tensors, plain: Plain) -> Rows:
    """Step 1 of the MTP block at positions 0, 1, …: rows before model.mtp.norm, [T, H]."""
    embed = tensors["model.embed_tokens.weight"]
    enorm = gain_of(tensors, "model.mtp.enorm.weight", plain)
    hnorm = gain_of(tensors, "model.mtp.hnorm.weight", plain)
    fused = []
    for token, hidden in zip(tokens, raw, strict=True):
        e, g = norm(embed[token], enorm, plain.eps), norm(hidden, hnorm, plain.eps)
        fused.append(tensors["model.mtp.eh_proj.weight"] @ np.concatenate([e, g]))
    return decoder_layer(np.stack(fused), tensors, "model.mtp.layers.0.", plain)
