"""Feed-forward layers in plain loops, f64: an MLP, or experts one at a time."""

import numpy as np

from tests.oracles.plain import Plain, Rows, Tensors, sigmoid


def mlp(row: Rows, tensors: Tensors, prefix: str) -> Rows:
    gate = tensors[f"{prefix}gate_proj.weight"] @ row
    up = tensors[f"{prefix}up_proj.weight"] @ row
    return np.asarray(tensors[f"{prefix}down_proj.weight"] @ (gate * sigmoid(gate) * up))


def feed_forward(row: Rows, tensors: Tensors, prefix: str, plain: Plain) -> Rows:
    """One row through the layer's MLP, or through the experts it is routed to."""
    p = f"{prefix}mlp."
    if f"{p}gate.weight" not in tensors:
        return mlp(row, tensors, p)
    numbers = sorted(
        {int(n.split(".")[-3]) for n in tensors if n.startswith(f"{p}experts.")}
    )
    out = np.zeros_like(row)
    for place, weight in routed(row, tensors, p, plain).items():
        out += weight * mlp(row, tensors, f"{p}experts.{numbers[place]}.")
    if f"{p}shared_expert.gate_proj.weight" in tensors:
        shared = mlp(row, tensors, f"{p}shared_expert.")
        if f"{p}shared_expert_gate.weight" in tensors:
            shared = shared * sigmoid(tensors[f"{p}shared_expert_gate.weight"] @ row)
        out += shared
    return out


def routed(row: Rows, tensors: Tensors, p: str, plain: Plain) -> dict[int, float]:
    """A row's experts and their weights; a router's bias chooses, it does not weigh."""
    score = tensors[f"{p}gate.weight"] @ row
    weight = sigmoid(score) if plain.routes_by_sigmoid else np.exp(score - score.max())
    if not plain.routes_by_sigmoid:
        weight = weight / weight.sum()
    choice = weight + tensors.get(f"{p}expert_bias", 0.0)
    best = sorted(range(len(score)), key=lambda e: -choice[e])[: plain.top_k]
    total = sum(weight[e] for e in best) if plain.renormalises else 1.0
    return {e: float(weight[e] / total * plain.routed_scale) for e in best}
