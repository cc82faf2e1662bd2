"""Draft heads under their families' names, found by content; others refused by name."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from cmfio.errors import CmfError
from cmfio.hf_checkpoint import Checkpoint
from cmfio.hf_heads import find_head
from cmfio.hf_import import import_hf
from cmfio.models import open_weights
from tests.tiny_checkpoints import HIDDEN, Wishes, make_checkpoint

torch.set_num_threads(1)
PLAIN = Wishes(shards=1, is_composite=False)
# As the checkpoints spell them: a name of the block, and all around it.
NAMES = {
    "qwen3_5": {
        "mtp.fc.weight": "model.mtp.eh_proj.weight",
        "mtp.pre_fc_norm_embedding.weight": "model.mtp.enorm.weight",
        "mtp.pre_fc_norm_hidden.weight": "model.mtp.hnorm.weight",
        "mtp.norm.weight": "model.mtp.norm.weight",
        "mtp.layers.0.mlp.up_proj.weight": "model.mtp.layers.0.mlp.up_proj.weight",
    },
    "glm4_moe": {
        "model.layers.2.eh_proj.weight": "model.mtp.eh_proj.weight",
        "model.layers.2.enorm.weight": "model.mtp.enorm.weight",
        "model.layers.2.hnorm.weight": "model.mtp.hnorm.weight",
        "model.layers.2.shared_head.norm.weight": "model.mtp.norm.weight",
        "model.layers.2.mlp.shared_experts.up_proj.weight": (
            "model.mtp.layers.0.mlp.shared_expert.up_proj.weight"
        ),
    },
    "mimo": {
        "model.mtp_layers.0.input_proj.weight": "model.mtp.eh_proj.weight",
        "model.mtp_layers.0.token_layernorm.weight": "model.mtp.enorm.weight",
        "model.mtp_layers.0.hidden_layernorm.weight": "model.mtp.hnorm.weight",
        "model.mtp_layers.0.final_layernorm.weight": "model.mtp.norm.weight",
        "model.mtp_layers.0.self_attn.q_proj.bias": (
            "model.mtp.layers.0.self_attn.q_proj.bias"
        ),
    },
    "ernie4_5": {
        "model.mtp_linear_proj.0.weight": "model.mtp.eh_proj.weight",
        "model.mtp_emb_norm.0.weight": "model.mtp.enorm.weight",
        "model.mtp_hidden_norm.0.weight": "model.mtp.hnorm.weight",
        "model.mtp_block.0.mlp.up_proj.weight": "model.mtp.layers.0.mlp.up_proj.weight",
    },
}


def opened(folder: Path) -> Checkpoint:
    model = open_weights(folder)
    assert isinstance(model, Checkpoint)
    return model


def change(folder: Path, **tensors: torch.Tensor) -> None:
    path = folder / "model.safetensors"
    save_file(load_file(path) | tensors, path)


@pytest.mark.parametrize("family", NAMES)
def test_a_head_gets_canonical_names(family: str, tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "hf", family, PLAIN)
    with opened(folder) as model:
        for theirs, ours in NAMES[family].items():
            assert model.sources[ours] == theirs
        assert ("model.mtp.norm.weight" in model.entries) == (family != "ernie4_5")
        assert not any(
            "embed_tokens" in n or "head" in n for n in model.entries if "mtp" in n
        )


def test_mimo_reads_the_hidden_row_first_in_its_file_only(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "hf", "mimo", PLAIN)
    stored = load_file(folder / "model.safetensors")["model.mtp_layers.0.input_proj.weight"]
    with opened(folder) as model:
        found = torch.from_numpy(model.tensor("model.mtp.eh_proj.weight"))
        other = torch.from_numpy(model.tensor("model.mtp.layers.0.mlp.up_proj.weight"))
    hidden, embedding = stored.float()[:, :HIDDEN], stored.float()[:, HIDDEN:]
    assert torch.equal(found, torch.cat([embedding, hidden], dim=1))
    assert not torch.equal(found, stored.float())
    up = load_file(folder / "model.safetensors")["model.mtp_layers.0.mlp.up_proj.weight"]
    assert torch.equal(other, up.float())


def test_a_head_is_found_where_a_fold_left_it_and_further_layers_are_kept(
    tmp_path: Path,
) -> None:
    wishes = Wishes(shards=1, mtp_layers=2, first=46)
    folder = make_checkpoint(tmp_path / "hf", "glm4_moe", wishes)
    stored = load_file(folder / "model.safetensors")
    with opened(folder) as model:
        assert model.head is not None
        assert model.head.healed == "model.layers.46"
        assert model.head.kept == ("model.layers.47",)
        first = model.sources["model.mtp.layers.0.self_attn.q_proj.weight"]
        assert first == "model.layers.46.self_attn.q_proj.weight"
        for ours, theirs in {
            "self_attn.q_proj.weight": "self_attn.q_proj.weight",
            "eh_proj.weight": "eh_proj.weight",
            "norm.weight": "shared_head.norm.weight",
            "shared_head.head.weight": "shared_head.head.weight",
        }.items():
            name = f"model.mtp.layers.1.{ours}"
            expected = stored[f"model.layers.47.{theirs}"].float()
            assert torch.equal(torch.from_numpy(model.tensor(name)), expected), ours


def test_a_second_qwen_layer_shares_what_is_around_the_first(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "hf", "qwen3_5", Wishes(mtp_layers=2))
    with opened(folder) as model:
        assert model.head is not None
        assert (model.head.healed, model.head.kept) == ("mtp.layers.0", ("mtp.layers.1",))
        assert "model.mtp.layers.1.self_attn.o_proj.weight" in model.entries


@pytest.mark.parametrize("part", ["embed_tokens.weight", "shared_head.head.weight"])
def test_an_own_head_or_embedding_must_be_the_trunks(part: str, tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "hf", "glm4_moe", PLAIN)
    import_hf(folder, tmp_path / "same.cmf")
    name = f"model.layers.2.{part}"
    change(folder, **{name: load_file(folder / "model.safetensors")[name] + 1})
    with pytest.raises(
        CmfError, match=rf"the draft has its own 'model\.layers\.2\.{part}'"
    ):
        import_hf(folder, tmp_path / "m.cmf")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("mtp.0.attn.wq_a.weight", "DeepSeek-V4"),
        ("mtp.layers.0.eh_proj.weight", "Nemotron-H"),
        ("model.mtp.layers.0.enorm.m.weight", "LongCat-Flash"),
        ("model.mtp.layers.0.eh_proj.weight", "MiMo-V2"),
        ("model.layers.2.self_attn.kv_a_proj_with_mqa.weight", "latent attention"),
    ],
)
def test_heads_that_arent_run_are_named(name: str, text: str, tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "hf", "glm4_moe", PLAIN)
    change(folder, **{name: torch.ones(2, 2)})
    with pytest.raises(CmfError, match=text):
        open_weights(folder)


def test_two_heads_are_one_too_many() -> None:
    with pytest.raises(CmfError, match="drafts under two sets of names"):
        find_head(["mtp.fc.weight", "model.layers.4.eh_proj.weight"], "x")


def test_no_head_is_none() -> None:
    assert (
        find_head(["model.layers.4.self_attn.q_proj.weight", "lm_head.weight"], "x") is None
    )
