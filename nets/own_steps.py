"""Attention of an exact chain's later steps: one causal pass, and a product a step.

Step j's row for start p sees the step-1 keys of positions up to p and one key of each of
its own later steps. Written as a mask that is j·T keys a row, nearly all of them hidden;
here the pass over the step-1 keys is merged with the others by their log-sum-exp: with m
the pass's, a_j a later key's logit and t the log-sum-exp of all of these, the output is
exp(m - t) times the pass's plus exp(a_j - t) times each later value.
Axes: B windows, N heads, T positions, S keys (step after step), D head_dim.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

NAME = "mtp_heal_chains"
LEAST = 512  # positions: below, the two take about the same time
KERNEL = "_scaled_dot_product_flash_attention_for_cpu"  # private to torch, hence the mask


def merges(width: int, device: torch.device) -> bool:
    """Whether chains of windows this wide need no mask: where it pays and can be done."""
    return device.type == "cpu" and width >= LEAST and hasattr(torch.ops.aten, KERNEL)


def attend_in_chains(layer: nn.Module) -> None:
    """Makes a layer's attention that of `own_steps` where it is called without a mask."""
    attention: Any = layer.get_submodule("self_attn")
    attention.config._attn_implementation = NAME


def _attention(  # noqa: PLR0913, PLR0917 — called by `transformers`' layers
    module: nn.Module,
    query_BNTD: Tensor,
    key_BNSD: Tensor,
    value_BNSD: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,  # whatever else a class hands on
) -> tuple[Tensor, None]:
    """`transformers`' own, but for several steps' keys without a mask."""
    width, seen = query_BNTD.shape[2], key_BNSD.shape[2]
    if attention_mask is not None or width in {1, seen}:
        given = (module, query_BNTD, key_BNSD, value_BNSD, attention_mask, dropout, scaling)
        plain: tuple[Tensor, None] = sdpa_attention_forward(*given, **kwargs)
        return plain
    assert seen % width == 0, "the keys of whole steps"
    group = query_BNTD.shape[1] // key_BNSD.shape[1]
    out_BNTD = own_steps(
        query_BNTD,
        repeat_kv(key_BNSD, group).split(width, dim=2),
        repeat_kv(value_BNSD, group).split(width, dim=2),
        query_BNTD.shape[-1] ** -0.5 if scaling is None else scaling,
    )
    return out_BNTD.transpose(1, 2).contiguous(), None


ALL_ATTENTION_FUNCTIONS.register(NAME, _attention)


def own_steps(
    query_BNTD: Tensor,
    keys: tuple[Tensor, ...],
    values: tuple[Tensor, ...],
    scale: float,
) -> Tensor:
    """Row p over the first keys up to p and the p-th of each later step; [B, N, T, D].

    Keys and values are a tensor like the query for each step. On a CPU, and under autocast
    in its type.
    """
    every = (query_BNTD, *keys, *values)
    if torch.is_autocast_enabled("cpu"):
        low = torch.get_autocast_dtype("cpu")
        every = tuple(one.to(low) for one in every)
    with torch.autocast("cpu", enabled=False):
        # torch leaves `apply` untyped.
        found: Tensor = _OwnSteps.apply(scale, *every)  # type: ignore[no-untyped-call]
    return found


class _OwnSteps(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # torch has no type for the context of a custom function
        scale: float,
        query: Tensor,
        *steps: Tensor,
    ) -> Tensor:
        keys, values = _halves(steps)
        attend = getattr(torch.ops.aten, KERNEL)
        first, mass_BNT = attend(query, keys[0], values[0], 0.0, True, scale=scale)  # noqa: FBT003
        logits = [_dot(query, key) * scale for key in keys[1:]]
        total_BNT = torch.logsumexp(torch.stack([mass_BNT, *logits]), 0)
        shares = [(logit - total_BNT).exp() for logit in logits]
        out: Tensor = first.float() * (mass_BNT - total_BNT).exp()[..., None]
        for share, value in zip(shares, values[1:], strict=True):
            out.addcmul_(share[..., None], value.float())
        out = out.to(query.dtype)
        ctx.scale, ctx.count = scale, len(keys)
        ctx.save_for_backward(query, *steps, out, total_BNT, *shares)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, *saved = ctx.saved_tensors
        keys, values = _halves(saved[: 2 * ctx.count])
        out, total_BNT, *shares = saved[2 * ctx.count :]
        backward = getattr(torch.ops.aten, f"{KERNEL}_backward")
        # Given the whole's output and mass, torch's own gives the first keys' exact part.
        first = backward(
            grad.contiguous(), query, keys[0], values[0], out, total_BNT, 0.0, True,  # noqa: FBT003
            scale=ctx.scale,
        )  # fmt: skip
        grad_query, grad_keys, grad_values = first[0].float(), [first[1]], [first[2]]
        mean_BNT = _dot(grad, out)
        for share, key, value in zip(shares, keys[1:], values[1:], strict=True):
            slope = (share * (_dot(grad, value) - mean_BNT) * ctx.scale)[..., None]
            grad_query.addcmul_(slope, key.float())
            grad_keys.append((slope * query.float()).to(key.dtype))
            grad_values.append((share[..., None] * grad.float()).to(value.dtype))
        return None, grad_query.to(query.dtype), *grad_keys, *grad_values


def _halves(
    steps: "tuple[Tensor, ...] | list[Tensor]",
) -> tuple[list[Tensor], list[Tensor]]:
    """Keys, then values."""
    count = len(steps) // 2
    return [*steps[:count]], [*steps[count:]]


def _dot(one: Tensor, other: Tensor) -> Tensor:
    """Of each row, f32."""
    return (one.float() * other.float()).sum(-1)
