"""Decode rounds one at a time: a draft with its own key/value cache, a row a call, f64.

Built on the plain layer of `tests.oracles.trunk`, from healing.md §6; nothing of `nets`.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from tests.oracles.experts import feed_forward
from tests.oracles.trunk import (
    Plain,
    Rows,
    gain_of,
    gated,
    norm,
    projected_heads,
    rotate,
)

LAYER = "model.mtp.layers.0."


class DecodingDraft:
    """One draft as a runtime holds it: it is fed row after row and remembers their keys."""

    def __init__(self, tensors: Mapping[str, Rows], plain: Plain) -> None:
        self.tensors, self.plain = tensors, plain
        self.keys: list[list[Rows]] = []
        self.values: list[list[Rows]] = []

    def feed(self, token: int, hidden: Rows, position: int) -> Rows:
        """The block's output for one more row, which sees every row fed before it."""
        embedded = self.tensors["model.embed_tokens.weight"][token]
        e = self.normed(embedded, "model.mtp.enorm")
        g = self.normed(hidden, "model.mtp.hnorm")
        x = self.tensors["model.mtp.eh_proj.weight"] @ np.concatenate([e, g])
        x = x + self.attend(self.normed(x, f"{LAYER}input_layernorm"), position)
        after = self.normed(x, f"{LAYER}post_attention_layernorm")
        return np.asarray(x + feed_forward(after, self.tensors, LAYER, self.plain))

    def normed(self, row: Rows, name: str) -> Rows:
        gain = gain_of(self.tensors, f"{name}.weight", self.plain)
        return norm(row, gain, self.plain.eps)

    def attend(self, row: Rows, position: int) -> Rows:
        queries, keys, values = (
            projected_heads(row, self.tensors, f"{LAYER}self_attn.{name}", self.plain)
            for name in "qkv"
        )
        self.keys.append([rotate(key, position, self.plain) for key in keys])
        self.values.append(values)
        group = len(queries) // len(keys)
        mixed = []
        for h, query in enumerate(queries):
            turned = rotate(query, position, self.plain)
            scores = [
                float(turned @ seen[h // group]) * self.plain.head_dim**-0.5
                for seen in self.keys
            ]
            weights = [math.exp(score - max(scores)) for score in scores]
            total = np.zeros(self.plain.head_dim)
            for weight, seen in zip(weights, self.values, strict=True):
                total += weight / sum(weights) * seen[h // group]
            mixed.append(total)
        joined = gated(mixed, row, self.tensors, f"{LAYER}self_attn.", self.plain)
        return np.asarray(self.tensors[f"{LAYER}self_attn.o_proj.weight"] @ joined)


def round_from(
    start: int, ids: Sequence[int], hidden: Rows, tensors: Mapping[str, Rows], plain: Plain
) -> DecodingDraft:
    """A draft that was fed the trunk's rows before `start`, and nothing else."""
    draft = DecodingDraft(tensors, plain)
    for q in range(start):
        draft.feed(ids[q + 1], hidden[q], q)
    return draft


def all_rounds(
    ids: Sequence[int], hidden: Rows, depth: int, tensors: Mapping[str, Rows], plain: Plain
) -> dict[tuple[int, int], Rows]:
    """The block's output at (start, step) of every round that fits, each from nothing."""
    outputs = {}
    for start in range(len(ids) - 1):
        draft = round_from(start, ids, hidden, tensors, plain)
        carried = hidden[start]
        for step in range(1, depth + 1):
            if start + step >= len(ids):
                break
            carried = draft.feed(ids[start + step], carried, start + step - 1)
            outputs[start, step] = carried
    return outputs
