"""A model file whose draft is made for one wiring, by construction: nothing is trained.

The trunk's layers add nothing, so a row is its token's embedding and the trunk's choice a
function of the token. The draft says that function of the token it is fed, plus K times a
*contrast* of two channels of the hidden row. These channels are equal in every embedding
and the head does not read them; the contrast is zero for rows of the planted wiring and,
through the gains of the norms, for no other.
"""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from conf.base import Wiring
from tests.builders import HIDDEN, TinyModel, TinySpec, model_of, tiny_llama, write_model
from tests.small_heal import VOCAB, WINDOW, Ground, write_records

FINAL, OWN = (1.0, 3.0), (1.0, 0.25)  # gains of the two channels: final norm, mtp.norm
K = 6.0
OWN_SHARE = 0.5


def planted_model(wiring: Wiring, *, is_swapped: bool = False, k: float = K) -> TinyModel:
    """The model; `is_swapped` has the projection read the hidden row first."""
    model = tiny_llama(TinySpec(vocab=VOCAB))
    tensors = dict(model.tensors)
    for name, tensor in tensors.items():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            tensors[name] = torch.zeros_like(tensor)
        if name.startswith("model.mtp.") and name.endswith("norm.weight"):
            tensors[name] = torch.ones_like(tensor)
    embed = tensors["model.embed_tokens.weight"].clone()
    embed[:, 1] = embed[:, 0]
    head = tensors["lm_head.weight"].clone()
    head[:, :2] = 0
    gain = tensors["model.norm.weight"].clone()
    tensors["model.embed_tokens.weight"], tensors["lm_head.weight"] = embed, head
    tensors["model.norm.weight"] = torch.cat([torch.tensor(FINAL), gain[2:]])
    tensors["model.mtp.norm.weight"] = torch.cat([torch.tensor(OWN), gain[2:]])
    halves = _projection(wiring, k)
    tensors["model.mtp.eh_proj.weight"] = torch.cat(
        halves[::-1] if is_swapped else halves, dim=1
    )
    return model_of(model.arch, tensors)


def _projection(wiring: Wiring, k: float) -> list[Tensor]:
    """The halves of `eh_proj`: for the embedding, then for the hidden row."""
    first, second = FINAL if wiring.hidden == "normed" else (1.0, 1.0)
    contrast = torch.zeros(HIDDEN)
    contrast[:2] = torch.tensor([1 / first, -1 / second])
    own_first, own_second = OWN if wiring.chain == "normed" else (1.0, 1.0)
    of_embedding = torch.ones(HIDDEN)
    # What makes the draft's own rows, normed or not, have no contrast either.
    of_embedding[:2] = torch.tensor([first / own_first, second / own_second])
    astray = torch.randn(HIDDEN, generator=torch.Generator().manual_seed(1))
    astray[:2] = 0
    return [of_embedding.diag(), k * torch.outer(astray, contrast)]


def trunk_choices(model: TinyModel) -> list[int]:
    """What the trunk says after each token: its layers add nothing to the embedding."""
    embed, head = (model.read(f"{n}.weight") for n in ("model.embed_tokens", "lm_head"))
    rows = embed / embed.square().mean(-1, keepdim=True).sqrt()
    logits = (rows * model.read("model.norm.weight")) @ head.T
    return [int(i) for i in logits.argmax(-1)]


def planted_ground(
    root: Path, wiring: Wiring, *, is_swapped: bool = False, k: float = K
) -> Ground:
    """The files of a heal, not run yet; every other token is the trunk's own choice."""
    model = planted_model(wiring, is_swapped=is_swapped, k=k)
    student = write_model(root / "planted.cmf", model, dtype="f32")
    draw, own = np.random.default_rng(0), trunk_choices(model)
    records = []
    for _ in range(60):
        record = [int(draw.integers(VOCAB))]
        while len(record) < WINDOW:
            is_own = draw.random() < OWN_SHARE
            record.append(own[record[-1]] if is_own else int(draw.integers(VOCAB)))
        records.append(record)
    data = write_records(root / "noise.jsonl", records)
    return Ground(student, data, root / "store", model, records)
