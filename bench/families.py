"""Every family's trunk pass against `transformers`, both in bf16, making the same arrays.

`python -m bench.families [--quick]`. Random models of 4 layers of 256 with 8,192 tokens, 4
windows of 512 a round; raw rows, top-64 and log-sum-exp from both. Layers run as
`transformers` wrote them, uncompiled: what is compared is the pass around them. Each family
is told apart from the others, so there is no target; a real model's is row 2.
"""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bench.real_model import BUDGET_BYTES, KEPT, trunk_of
from bench.turns import (
    ALLOCATOR,
    FOLDER,
    Json,
    Round,
    main,
    median,
    race,
    ratio,
    rounds_of,
    seconds,
)
from nets.head import topk_rows
from tests.tiny_checkpoints import TINY, Wishes, make_checkpoint

MODULE, WINDOWS, WIDTH, VOCAB = "bench.families", 4, 512, 8192
SIZES: Json = {
    "hidden_size": 256,
    "intermediate_size": 768,
    "num_hidden_layers": 4,
    "head_dim": 64,
    "vocab_size": VOCAB,
    "layer_types": None,
}
EXPERTS: Json = {"num_experts": 8, "n_routed_experts": 8, "moe_intermediate_size": 192}
DELTA: Json = {
    "layer_types": ["linear_attention", "full_attention"] * 2,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
}


def measure(*, quick: bool = False) -> Json:
    """How many times as quick as `transformers` each family's pass is."""
    found, rounds = {}, min(rounds_of(quick=quick), 3)
    for family in TINY:
        said = race(MODULE, [f"naive {family}", f"ours {family}"], rounds)
        naive, ours = said[f"naive {family}"], said[f"ours {family}"]
        found[family] = {
            "times": ratio(naive, ours),
            "tokens a second": WINDOWS * WIDTH / median(ours),
        }
    return {
        "rows": {},
        "details": {
            "allocator": ALLOCATOR,
            "tokens a round": WINDOWS * WIDTH,
            "rounds": rounds,
            "families": found,
        },
    }


def ours(family: str) -> Round:
    """Our pass: rows, then the fused head."""
    model, ids_WT = trunk_of(checkpoint(family), torch.bfloat16), ids()

    def one_pass() -> None:
        normed_RH = model.final_norm(model.hidden(ids_WT)).flatten(0, 1)
        topk_rows(normed_RH, model.shared.head_VH, KEPT, BUDGET_BYTES)

    return lambda _: {"seconds": seconds(one_pass)}


def naive(family: str) -> Round:
    """The model's own forward with its logits, and what makes the arrays of these."""
    model, ids_WT = peer(checkpoint(family)), ids()

    @torch.no_grad()
    def one_pass() -> None:
        found = model(ids_WT, use_cache=False, output_hidden_states=True)
        logits_WTV = found.logits.float()
        logits_WTV.softmax(-1).topk(KEPT)
        logits_WTV.logsumexp(-1)

    return lambda _: {"seconds": seconds(one_pass)}


def checkpoint(family: str) -> Path:
    """A random model of the family, made once."""
    folder = FOLDER / "families" / family
    if not (folder / "tokenizer.json").exists():
        shutil.rmtree(folder, ignore_errors=True)
        own = TINY[family].settings
        sizes = SIZES | {name: EXPERTS[name] for name in EXPERTS if name in own}
        sizes |= DELTA if "layer_types" in own else {}
        wishes = Wishes(
            shards=1, mtp_layers=0, is_composite=False, settings=sizes | _windows(own)
        )
        make_checkpoint(folder, family, wishes)
    return folder


def _windows(own: Json) -> Json:
    return {"sliding_window": 256} if "sliding_window" in own else {}


def peer(folder: Path) -> Any:  # transformers has no types
    """`transformers`' own model, loaded by itself."""
    from transformers import AutoModelForCausalLM, Qwen2ForCausalLM

    # It doesn't know MiMo-7B, whose trunk is a Qwen2.
    loader = Qwen2ForCausalLM if folder.name == "mimo" else AutoModelForCausalLM
    return loader.from_pretrained(folder, dtype=torch.bfloat16).eval()


def ids() -> Tensor:
    """Random ids [W, T]."""
    drawn: Tensor = torch.randint(
        VOCAB, (WINDOWS, WIDTH), generator=torch.Generator().manual_seed(0)
    )
    return drawn


RACERS: dict[str, Callable[[], Round]] = {
    f"{name} {family}": partial(build, family)
    for family in TINY
    for name, build in (("naive", naive), ("ours", ours))
}

if __name__ == "__main__":
    main(measure, RACERS)
