"""The gated delta net as its recurrence, a position and a head at a time, f64."""

import math

import numpy as np

from tests.oracles.plain import Plain, Rows, Tensors, norm, sigmoid


def delta_net(rows: Rows, tensors: Tensors, prefix: str, plain: Plain) -> Rows:
    """Normed rows through a gated delta net, position by position from a zero state."""
    p, dk, dv = f"{prefix}linear_attn.", plain.key_dim, plain.value_dim
    count = len(tensors[f"{p}A_log"])
    mixed, z, b, a = delta_inputs(rows, tensors, p, plain)
    convolved = convolve(mixed, tensors[f"{p}conv1d.weight"])
    key_heads = (mixed.shape[1] - count * dv) // (2 * dk)
    state = [np.zeros((dk, dv)) for _ in range(count)]
    out = []
    for t in range(len(rows)):
        query, key, value = np.split(convolved[t], [key_heads * dk, 2 * key_heads * dk])
        beta = sigmoid(b[t])
        decay = -np.exp(tensors[f"{p}A_log"]) * np.log1p(
            np.exp(a[t] + tensors[f"{p}dt_bias"])
        )
        joined = []
        for h in range(count):
            own = h // (count // key_heads)
            q = unit(query[own * dk : (own + 1) * dk]) * dk**-0.5
            k = unit(key[own * dk : (own + 1) * dk])
            state[h] = state[h] * math.exp(decay[h])
            missing = beta[h] * (value[h * dv : (h + 1) * dv] - state[h].T @ k)
            state[h] = state[h] + np.outer(k, missing)
            normed = norm(state[h].T @ q, tensors[f"{p}norm.weight"], plain.eps)
            gate = z[t, h * dv : (h + 1) * dv]
            joined.append(normed * gate * sigmoid(gate))
        out.append(tensors[f"{p}out_proj.weight"] @ np.concatenate(joined))
    return np.stack(out)


def delta_inputs(
    rows: Rows, tensors: Tensors, p: str, plain: Plain
) -> tuple[Rows, Rows, Rows, Rows]:
    """Queries, keys and values joined; gate; b; a: each [T, channels]."""
    if f"{p}in_proj_qkv.weight" in tensors:
        names = ("qkv", "z", "b", "a")
        mixed, z, b, a = (rows @ tensors[f"{p}in_proj_{n}.weight"].T for n in names)
        return mixed, z, b, a
    # Key head by key head: [q | k | its value heads | their gates], and [b | a].
    qkvz, ba = (rows @ tensors[f"{p}in_proj_{n}.weight"].T for n in ("qkvz", "ba"))
    count = ba.shape[1] // 2
    dk, dv = plain.key_dim, plain.value_dim
    key_heads = (qkvz.shape[1] - 2 * count * dv) // (2 * dk)
    served = count // key_heads
    parts: dict[str, list[Rows]] = {name: [] for name in "qkvzba"}
    for h in range(key_heads):
        own = qkvz[:, h * (2 * dk + 2 * served * dv) :][:, : 2 * dk + 2 * served * dv]
        cuts = [dk, 2 * dk, 2 * dk + served * dv]
        for name, part in zip("qkvz", np.split(own, cuts, axis=1), strict=True):
            parts[name].append(part)
        own = ba[:, 2 * h * served : 2 * (h + 1) * served]
        parts["b"].append(own[:, :served])
        parts["a"].append(own[:, served:])
    q, k, v, z, b, a = (np.concatenate(parts[name], axis=1) for name in "qkvzba")
    return np.concatenate([q, k, v], axis=1), z, b, a


def convolve(mixed: Rows, taps: Rows) -> Rows:
    """Each channel by its own taps over the rows up to this one, then SiLU."""
    taps = taps.reshape(taps.shape[0], -1)
    width = taps.shape[1]
    out = np.zeros_like(mixed)
    for t in range(len(mixed)):
        for j in range(width):
            if t - j >= 0:
                out[t] += taps[:, width - 1 - j] * mixed[t - j]
    return out * sigmoid(out)


def unit(row: Rows) -> Rows:
    return row / math.sqrt(float(row @ row) + 1e-6)
