"""Tiny random Hugging Face checkpoints, made by transformers, heads added by hand.

    python -m tests.tiny_checkpoints OUT --family qwen3_5

writes one that `heal run` and `heal doctor` take: composite where the family is, sharded,
with a tokenizer and the draft under the family's own names. The names of heads are spelled
out here once more, so that the table in cmfio has something to disagree with.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

VOCAB, HIDDEN, LAYERS = 300, 32, 2
Tensors = dict[str, Tensor]
Settings = dict[str, Any]  # of a transformers config

BASE: Settings = {
    "hidden_size": HIDDEN,
    "intermediate_size": 64,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": VOCAB,
    "max_position_embeddings": 512,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": 299,
}
DELTA: Settings = {
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "layer_types": ["linear_attention", "full_attention"],
}
MOE: Settings = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
SHARED: Settings = {"shared_expert_intermediate_size": 16}
GLM: Settings = {
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "first_k_dense_replace": 1,
    "use_qk_norm": True,
    "attention_bias": True,
}
VISION: Settings = {
    "depth": 1,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_heads": 2,
    "out_hidden_size": HIDDEN,
    "patch_size": 2,
    "num_position_embeddings": 4,
}
QWEN_HEAD = {
    "enorm": "mtp.pre_fc_norm_embedding.weight",
    "hnorm": "mtp.pre_fc_norm_hidden.weight",
    "eh_proj": "mtp.fc.weight",
    "norm": "mtp.norm.weight",
    "block": "mtp.layers.{}.",
}
GLM_HEAD = {
    "enorm": "model.layers.{}.enorm.weight",
    "hnorm": "model.layers.{}.hnorm.weight",
    "eh_proj": "model.layers.{}.eh_proj.weight",
    "norm": "model.layers.{}.shared_head.norm.weight",
    "block": "model.layers.{}.",
    "lm_head.weight": "model.layers.{}.shared_head.head.weight",
    "model.embed_tokens.weight": "model.layers.{}.embed_tokens.weight",
}
MIMO_HEAD = {
    "enorm": "model.mtp_layers.{}.token_layernorm.weight",
    "hnorm": "model.mtp_layers.{}.hidden_layernorm.weight",
    "eh_proj": "model.mtp_layers.{}.input_proj.weight",
    "norm": "model.mtp_layers.{}.final_layernorm.weight",
    "block": "model.mtp_layers.{}.",
}
ERNIE_HEAD = {
    "enorm": "model.mtp_emb_norm.{}.weight",
    "hnorm": "model.mtp_hidden_norm.{}.weight",
    "eh_proj": "model.mtp_linear_proj.{}.weight",
    "block": "model.mtp_block.{}.",
}


@dataclass(frozen=True)
class Tiny:
    """How a family's tiny model is made: `transformers` settings and the head's names."""

    model_type: str
    settings: Settings
    head: dict[str, str]
    count_key: str = "mtp_num_hidden_layers"
    wrapper: str | None = None
    is_gemma: bool = False  # norms are 1 + w
    first: int = 0  # the number of the draft's layer


NEXTN = "num_nextn_predict_layers"
TINY = {
    "llama": Tiny("llama", {}, QWEN_HEAD),
    "mistral": Tiny("mistral", {"sliding_window": 16}, QWEN_HEAD),
    "qwen2": Tiny(
        "qwen2",
        {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1},
        QWEN_HEAD,
    ),
    "qwen3": Tiny("qwen3", {"tie_word_embeddings": True}, QWEN_HEAD),
    "qwen3_moe": Tiny("qwen3_moe", MOE, QWEN_HEAD),
    "qwen3_next": Tiny(
        "qwen3_next", {**DELTA, **MOE, **SHARED}, QWEN_HEAD, NEXTN, is_gemma=True
    ),
    "qwen3_5": Tiny("qwen3_5_text", DELTA, QWEN_HEAD, wrapper="qwen3_5", is_gemma=True),
    "qwen3_5_moe": Tiny(
        "qwen3_5_moe_text",
        {**DELTA, **MOE, **SHARED},
        QWEN_HEAD,
        wrapper="qwen3_5_moe",
        is_gemma=True,
    ),
    "glm4_moe": Tiny("glm4_moe", GLM, GLM_HEAD, NEXTN, first=LAYERS),
    "mimo": Tiny("qwen2", {}, MIMO_HEAD, NEXTN),
    "ernie4_5": Tiny("ernie4_5", {}, ERNIE_HEAD, NEXTN),
}


@dataclass(frozen=True)
class Wishes:
    """What a checkpoint is to be like beside its family.

    `mtp_layers` 0 leaves the draft away, `first` moves it, as a fold that drops layers
    does. `is_fused` stacks the experts, as real Qwen3.5-MoE files do.
    """

    shards: int = 2
    mtp_layers: int = 1
    first: int | None = None
    is_composite: bool = True
    is_fused: bool = False
    dtype: torch.dtype = torch.bfloat16
    settings: Settings | None = None
    seed: int = 0


def make_checkpoint(folder: Path, family: str, wishes: Wishes = Wishes()) -> Path:
    """A new folder with a tiny model of that family."""
    tiny = TINY[family]
    torch.manual_seed(wishes.seed)
    _save_model(folder, tiny, wishes)
    tensors = {
        name: _jittered(name, tensor, is_gemma=tiny.is_gemma).to(wishes.dtype)
        for name, tensor in load_file(folder / "model.safetensors").items()
    }
    if wishes.is_fused:
        tensors = _fused(tensors)
    first = tiny.first if wishes.first is None else wishes.first
    for number in range(first, first + wishes.mtp_layers):
        tensors |= _head(tensors, tiny, number)
    _edit_config(folder, family, tiny, wishes)
    (folder / "model.safetensors").unlink()
    save_shards(folder, tensors, wishes.shards)
    _save_tokenizer(folder)
    return folder


def save_shards(folder: Path, tensors: Tensors, shards: int) -> None:
    """The tensors in so many files, with an index if they are several."""
    metadata = {"format": "pt"}
    if shards == 1:
        save_file(tensors, folder / "model.safetensors", metadata)
        return
    places: dict[str, str] = {}
    names = list(tensors)
    for number in range(shards):
        file = f"model-{number + 1:05}-of-{shards:05}.safetensors"
        own = names[number * len(names) // shards : (number + 1) * len(names) // shards]
        save_file({name: tensors[name] for name in own}, folder / file, metadata)
        places |= dict.fromkeys(own, file)
    total = sum(tensor.nbytes for tensor in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), "utf-8")


def _save_model(folder: Path, tiny: Tiny, wishes: Wishes) -> None:
    import transformers
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    settings = {**BASE, **tiny.settings, **(wishes.settings or {})}
    text = transformers.AutoConfig.for_model(tiny.model_type, **settings)
    if tiny.wrapper is not None and wishes.is_composite:
        config = transformers.AutoConfig.for_model(
            tiny.wrapper, text_config=text.to_dict(), vision_config=dict(VISION)
        )
        model = transformers.AutoModelForImageTextToText.from_config(config)
    else:
        model = transformers.AutoModelForCausalLM.from_config(text)
    model.save_pretrained(folder)


def _jittered(name: str, tensor: Tensor, *, is_gemma: bool) -> Tensor:
    """Norms and biases away from where a mistake would not show."""
    if name.endswith(("norm.weight", "layernorm.weight", ".bias", "_bias", "dt_bias")):
        return tensor.float() + 0.2 * torch.randn_like(tensor.float())
    return tensor.float()


def _head(tensors: Tensors, tiny: Tiny, number: int) -> Tensors:
    """A random head in the family's names, its block like the last layer."""
    prefix = "model.language_model." if _is_composite(tensors) else "model."
    last = f"{prefix}layers.{LAYERS - 1}."
    names = {key: name.format(number) for key, name in tiny.head.items()}
    like = {n.removeprefix(last): t for n, t in tensors.items() if n.startswith(last)}
    found = {names["block"] + rest: _random(rest, t, tiny) for rest, t in like.items()}
    norm = like["input_layernorm.weight"]
    for key in ("enorm", "hnorm", "norm"):
        if key in names:
            found[names[key]] = _random("norm.weight", norm, tiny)
    found[names["eh_proj"]] = 0.2 * torch.randn(HIDDEN, 2 * HIDDEN).to(norm.dtype)
    copies = {trunk: copy for trunk, copy in names.items() if trunk in tensors}
    return found | {copy: tensors[trunk].clone() for trunk, copy in copies.items()}


def _is_composite(tensors: Tensors) -> bool:
    return any(name.startswith("model.language_model.") for name in tensors)


def _random(name: str, like: Tensor, tiny: Tiny) -> Tensor:
    centre = 1.0 if name.endswith("norm.weight") and not tiny.is_gemma else 0.0
    return (centre + 0.1 * torch.randn(like.shape)).to(like.dtype)


def _fused(tensors: Tensors) -> Tensors:
    """Experts stacked layer by layer, gate rows before up rows."""
    kept = {n: t for n, t in tensors.items() if ".mlp.experts." not in n}
    layers = {n.split(".mlp.experts.")[0] for n in tensors.keys() - kept.keys()}
    for layer in sorted(layers):
        experts = f"{layer}.mlp.experts."
        count = sum(
            n.startswith(experts) and n.endswith(".up_proj.weight") for n in tensors
        )
        one = [
            [tensors[f"{experts}{e}.{p}_proj.weight"] for p in ("gate", "up", "down")]
            for e in range(count)
        ]
        kept[experts + "gate_up_proj"] = torch.stack([torch.cat(e[:2]) for e in one])
        kept[experts + "down_proj"] = torch.stack([e[2] for e in one])
    return kept


def _edit_config(folder: Path, family: str, tiny: Tiny, wishes: Wishes) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text("utf-8"))
    if family == "mimo":  # its trunk is a Qwen2, under a name transformers doesn't know
        config |= {"model_type": "mimo", "architectures": ["MiMoForCausalLM"]}
        config |= {"attention_bias": True}
    text = config.get("text_config", config)
    text.pop(tiny.count_key, None)
    text |= {tiny.count_key: wishes.mtp_layers} if wishes.mtp_layers else {}
    path.write_text(json.dumps(config, indent=2) + "\n", "utf-8")


def _save_tokenizer(folder: Path) -> None:
    """A token a byte."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {letter: number for number, letter in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("out", type=Path, help="the folder to make")
    parser.add_argument("--family", choices=sorted(TINY), default="qwen3_5")
    parser.add_argument("--no-draft", action="store_true", help="leave the head away")
    parser.add_argument("--fused", action="store_true", help="stack the experts")
    parser.add_argument("--shards", type=int, default=2)
    given = parser.parse_args()
    wishes = Wishes(given.shards, 0 if given.no_draft else 1, is_fused=given.fused)
    make_checkpoint(given.out, given.family, wishes)


if __name__ == "__main__":
    main()
