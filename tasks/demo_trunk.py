"""The demo's own trunk: a BPE tokenizer and a small Qwen3-style model, made from text."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from cmfio.header import Arch, Header
from cmfio.rewrite import encode_tensor
from cmfio.writer import write_container
from conf.base import Settings
from conf.demo import TrunkRecipe
from store.artifact import Artifact
from tasks.model_file import MODEL_NAME, TOKENIZER_NAME
from tasks.packed import read_windows
from tasks.set_records import take_texts
from tasks.sources import DataSet
from tasks.stage import Runtime, stage

if TYPE_CHECKING:
    import torch

    from nets.lm_train import LmStep


class TokenizerSettings(Settings):
    """Size of the vocabulary and how much of each set's text it is learnt from."""

    vocab: int
    bytes_a_set: int


@stage("train_tokenizer", version=2)
def train_tokenizer(
    out: Path, settings: TokenizerSettings, runtime: Runtime, *, sets: Sequence[DataSet]
) -> Mapping[str, object]:
    """A byte-level BPE `tokenizer.json`; its first id ends a sequence."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    texts = [text for data in sets for text in take_texts(data, settings.bytes_a_set)]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=settings.vocab,
        special_tokens=["<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    (out / TOKENIZER_NAME).write_text(tokenizer.to_str(), encoding="utf-8")
    return {"vocab": tokenizer.get_vocab_size()}


class DemoTrunkSettings(Settings):
    """The trunk's shape and training, and the compute type of its products."""

    recipe: TrunkRecipe
    dtype: Literal["bf16", "f32"]


@stage("train_demo_trunk", version=1)
def train_demo_trunk(
    out: Path,
    settings: DemoTrunkSettings,
    runtime: Runtime,
    *,
    windows: Artifact,
    tokenizer: Artifact,
) -> Mapping[str, object]:
    """`model.cmf`: a trunk without a draft, trained for a fixed, seeded number of steps."""
    from nets.lm_train import LmSettings, train_lm

    recipe = settings.recipe
    arch = _arch(recipe)
    losses: list[float] = []
    each = {"tokens": float(recipe.batch * recipe.window)}
    with runtime.progress.task(
        "training a trunk", total=recipe.steps, unit="steps", each=each
    ) as bar:

        def on_step(step: "LmStep") -> None:
            losses.append(step.loss)
            bar.advance(1, loss=step.loss, lr=step.lr)

        plan = LmSettings(recipe.steps, recipe.lr, recipe.seed, settings.dtype)
        state = train_lm(arch, _batches(windows, recipe), plan, on_step)
    header = Header(
        format="cmf",
        version=2,
        arch=arch,
        quant_type="F32",
        tokenizer_config={"eos_token_ids": [0]},
        provenance={"tool": "mtp-heal demo", "recipe": recipe.model_dump(mode="json")},
    )
    payloads = [
        encode_tensor(name, tensor.numpy(), "f32") for name, tensor in state.items()
    ]
    vocab = (tokenizer.path / TOKENIZER_NAME).read_bytes()
    write_container(out / MODEL_NAME, header, payloads, vocab=vocab)
    return {
        "loss": float(np.mean(losses[-20:])),
        "parameters": sum(t.numel() for t in state.values()),
    }


def _batches(windows: Artifact, recipe: TrunkRecipe) -> "Iterator[torch.Tensor]":
    """Whole training windows in a seeded order, `batch` at a time, for ever."""
    import torch

    packed = read_windows(windows)
    whole = [w for w in packed.training if packed.length[w] == recipe.window]
    order = np.random.default_rng(recipe.seed)
    while True:
        places = order.permutation(whole)
        for start in range(0, len(places) - recipe.batch + 1, recipe.batch):
            yield torch.from_numpy(
                packed.ids[places[start : start + recipe.batch]].astype("int64")
            )


def _arch(recipe: TrunkRecipe) -> Arch:
    return Arch(
        arch_name="qwen3",
        hidden_size=recipe.hidden,
        intermediate_size=recipe.ffn,
        num_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        num_kv_heads=recipe.kv_heads,
        head_dim=recipe.hidden // recipe.heads,
        vocab_size=recipe.vocab,
        layer_types=("FullAttention",) * recipe.layers,
        rms_norm_eps=1e-6,
        tie_word_embeddings=True,
        max_position_embeddings=max(2048, recipe.window),
        linear_conv_kernel_dim=None,
        linear_num_key_heads=None,
        linear_num_value_heads=None,
    )
