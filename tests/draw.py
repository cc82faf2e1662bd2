"""Random tensors of tiny models' layers, by their names in a container."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Widths = tuple[int, int, int]  # query heads, key/value heads, FFN neurons
Tensors = dict[str, Tensor]

HIDDEN, HEAD_DIM = 32, 8
KEY_DIM, VALUE_DIM, TAPS = 6, 10, 4  # of a delta net: its heads, its convolution
EXPERT_FFN, SHARED_FFN = 16, 32


@dataclass(frozen=True)
class Line:
    """What the tensors of a family are; what it says of itself in the header."""

    arch: Mapping[str, Any]
    has_biases: bool = False
    has_head_norms: bool = False
    has_gate: bool = False
    has_experts: bool = False
    shared: str | None = None  # the shared expert: "gated", "plain"
    is_fused: bool = False  # the delta net's input projections, as Qwen3-Next has them
    has_draft_norm: bool = True
    dense: Sequence[int] = ()


def under(prefix: str, tensors: Tensors) -> Tensors:
    return {prefix + name: tensor for name, tensor in tensors.items()}


@dataclass(frozen=True)
class Draw:
    """Random tensors of a layer's parts, by their names in a container."""

    generator: torch.Generator
    is_gemma: bool

    def matrix(self, rows: int, cols: int) -> Tensor:
        return torch.randn(rows, cols, generator=self.generator) / math.sqrt(cols)

    def row(self, width: int, mean: float = 0.0) -> Tensor:
        return mean + 0.2 * torch.randn(width, generator=self.generator)

    def gain(self, width: int) -> Tensor:
        return self.row(width, 0.0 if self.is_gemma else 1.0)

    def layer(
        self,
        line: Line,
        widths: Widths,
        *,
        linear: tuple[int, int] | None = None,
        experts: int = 0,
    ) -> Tensors:
        """A layer: a delta net of `linear` heads, or attention; and experts, or an MLP."""
        tensors = {"input_layernorm.weight": self.gain(HIDDEN)}
        tensors |= (
            self.attention(line, widths)
            if linear is None
            else self.delta_net(linear, is_fused=line.is_fused)
        )
        tensors["post_attention_layernorm.weight"] = self.gain(HIDDEN)
        tensors |= self.experts(line, experts) if experts else self.mlp(widths[2])
        if line.has_head_norms and linear is None:
            for name in "qk":
                tensors[f"self_attn.{name}_norm.weight"] = self.gain(HEAD_DIM)
        return tensors

    def attention(self, line: Line, widths: Widths) -> Tensors:
        heads, kv_heads, _ = widths
        query, key = heads * HEAD_DIM, kv_heads * HEAD_DIM
        tensors = {
            "q_proj.weight": self.matrix(query * (2 if line.has_gate else 1), HIDDEN),
            "k_proj.weight": self.matrix(key, HIDDEN),
            "v_proj.weight": self.matrix(key, HIDDEN),
            "o_proj.weight": self.matrix(HIDDEN, query),
        }
        if line.has_biases:
            tensors["q_proj.bias"] = self.row(query)
            tensors |= {f"{c}_proj.bias": self.row(key) for c in "kv"}
        return under("self_attn.", tensors)

    def delta_net(self, heads: tuple[int, int], *, is_fused: bool) -> Tensors:
        keys, values = heads[0] * KEY_DIM, heads[1] * VALUE_DIM
        channels = 2 * keys + values
        tensors = {
            "conv1d.weight": self.matrix(channels, TAPS)[:, None],
            "A_log": self.row(heads[1]),
            "dt_bias": self.row(heads[1], 1.0),
            "norm.weight": self.row(VALUE_DIM, 1.0),  # plain in every family
            "out_proj.weight": self.matrix(HIDDEN, values),
        }
        if is_fused:
            tensors["in_proj_qkvz.weight"] = self.matrix(channels + values, HIDDEN)
            tensors["in_proj_ba.weight"] = self.matrix(2 * heads[1], HIDDEN)
        else:
            for name, rows in (("qkv", channels), ("z", values)):
                tensors[f"in_proj_{name}.weight"] = self.matrix(rows, HIDDEN)
            for name in "ba":
                tensors[f"in_proj_{name}.weight"] = self.matrix(heads[1], HIDDEN)
        return under("linear_attn.", tensors)

    def mlp(self, neurons: int, prefix: str = "mlp.") -> Tensors:
        tensors = {
            "gate_proj.weight": self.matrix(neurons, HIDDEN),
            "up_proj.weight": self.matrix(neurons, HIDDEN),
            "down_proj.weight": self.matrix(HIDDEN, neurons),
        }
        return under(prefix, tensors)

    def experts(self, line: Line, count: int) -> Tensors:
        tensors = {"mlp.gate.weight": self.matrix(count, HIDDEN)}
        for expert in range(count):
            tensors |= self.mlp(EXPERT_FFN, f"mlp.experts.{expert}.")
        if line.shared is not None:
            tensors |= self.mlp(SHARED_FFN, "mlp.shared_expert.")
        if line.shared == "gated":
            tensors["mlp.shared_expert_gate.weight"] = self.matrix(1, HIDDEN)
        if line.shared == "plain":
            tensors["mlp.expert_bias"] = self.row(count)
        return tensors
