"""A healed draft into a checkpoint: what changes, and that nothing else does."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from cmfio.atomic import replacing_folder
from cmfio.copying import copy_file
from cmfio.errors import CmfError, DamagedTensor, NotEncodable
from cmfio.hf_checkpoint import Checkpoint, open_hf
from cmfio.hf_identity import file_digests
from cmfio.hf_patch import audit, source_names, write_patch
from tests.tiny_checkpoints import HIDDEN, Wishes, make_checkpoint

torch.set_num_threads(1)
INDEX = "model.safetensors.index.json"
UP = "model.mtp.layers.0.mlp.up_proj.weight"
NORM = "model.mtp.norm.weight"


def up_and_norm(folder: Path) -> dict[str, np.ndarray]:
    """New values for one matrix and one norm of a head."""
    with open_hf(folder) as model:
        return {name: model.tensor(name) + 1 for name in (UP, NORM)}


def patched(folder: Path, out: Path, values: dict[str, np.ndarray], codec: str) -> Path:
    with open_hf(folder) as model:
        write_patch(model, out, values, codec, {"steps": 7})
    return out


def head_values(folder: Path, source: Path) -> dict[str, np.ndarray]:
    """The head of another checkpoint of the family, for one that has none."""
    with open_hf(source) as model:
        return {n: model.tensor(n) for n in model.entries if n.startswith("model.mtp.")}


def digests(model: Checkpoint) -> dict[str, str]:
    found: dict[str, str] = {}
    for path in model.weight_files:
        found |= file_digests(model, path, lambda _: None)
    return found


def test_only_the_files_that_hold_changed_tensors_are_written(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "hf", "qwen3_5", Wishes(shards=4))
    values = up_and_norm(folder)
    out = patched(folder, tmp_path / "patch", values, "keep")
    last = "model-00004-of-00004.safetensors"
    assert sorted(p.name for p in out.iterdir()) == [last, "mtp_heal.json"]
    assert json.loads((out / "mtp_heal.json").read_text()) == {"mtp_heal": {"steps": 7}}
    before, after = load_file(folder / last), load_file(out / last)
    assert list(after) == list(before)
    names = {"mtp.layers.0.mlp.up_proj.weight": UP, "mtp.norm.weight": NORM}
    for theirs, tensor in before.items():
        assert after[theirs].dtype == tensor.dtype
        if theirs in names:
            expected = torch.from_numpy(values[names[theirs]]).to(tensor.dtype)
            assert torch.equal(after[theirs], expected)
            assert not torch.equal(after[theirs], tensor)
        else:
            assert torch.equal(after[theirs], tensor), theirs
    with safe_open(out / last, "pt") as file:
        assert file.metadata() == {"format": "pt"}


def test_a_codec_is_for_changed_matrices_and_the_index_counts_it(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "hf", "qwen3_5")
    out = patched(folder, tmp_path / "patch", up_and_norm(folder), "f32")
    after = load_file(out / "model-00002-of-00002.safetensors")
    grown = after["mtp.layers.0.mlp.up_proj.weight"]
    assert grown.dtype == torch.float32
    assert after["mtp.norm.weight"].dtype == torch.bfloat16
    old, new = (json.loads((f / INDEX).read_text("utf-8")) for f in (folder, out))
    added = new["metadata"]["total_size"] - old["metadata"]["total_size"]
    assert added == 2 * grown.numel()
    assert new["weight_map"] == old["weight_map"]


@pytest.mark.parametrize("family", ["qwen3_5", "glm4_moe", "mimo", "ernie4_5", "qwen3"])
def test_a_new_head_gets_its_familys_names(family: str, tmp_path: Path) -> None:
    bare = make_checkpoint(tmp_path / "bare", family, Wishes(mtp_layers=0))
    whole = make_checkpoint(tmp_path / "whole", family)
    values = head_values(bare, whole)
    out = patched(bare, tmp_path / "patch", values, "keep")
    expected = {
        name: tensor
        for path in whole.glob("*.safetensors")
        for name, tensor in load_file(path).items()
        if "mtp" in name or name.startswith("model.layers.2.")
    }
    found = load_file(out / "model-mtp.safetensors")
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        if name.endswith(("embed_tokens.weight", "shared_head.head.weight")):
            continue  # copies of the own trunk's, looked at below
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor), name
    with open_hf(bare, out) as over:
        assert over.header.arch.mtp is not None
        assert isinstance(over.header.provenance, dict)
        assert over.header.provenance["mtp_heal"] == {"steps": 7}
        assert over.head is not None
        for copy, trunk in over.copies.items():
            assert over.is_same(copy, trunk), copy
        for name, array in values.items():
            assert np.array_equal(over.tensor(name), array), name
    config, text = json.loads((whole / "config.json").read_text()), "text_config"
    assert json.loads((out / "config.json").read_text()) == config
    assert (text in config) == (family == "qwen3_5")


def test_in_a_checkpoint_of_one_file_a_new_head_joins_it(tmp_path: Path) -> None:
    wishes = Wishes(shards=1, mtp_layers=0)
    bare = make_checkpoint(tmp_path / "bare", "mimo", wishes)
    values = head_values(bare, make_checkpoint(tmp_path / "whole", "mimo"))
    out = patched(bare, tmp_path / "patch", values, "keep")
    files = ["config.json", "model.safetensors", "mtp_heal.json"]
    assert sorted(path.name for path in out.iterdir()) == files
    before, after = (load_file(f / "model.safetensors") for f in (bare, out))
    assert list(after)[: len(before)] or before.keys() < after.keys()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    projection = after["model.mtp_layers.0.input_proj.weight"].float().numpy()
    swapped = values["model.mtp.eh_proj.weight"]
    assert np.array_equal(projection[:, :HIDDEN], swapped[:, HIDDEN:])


def test_the_audit_finds_what_differs(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "hf", "qwen3_5")
    values = up_and_norm(folder)
    out = patched(folder, tmp_path / "patch", values, "keep")
    with open_hf(folder) as before, open_hf(folder, out) as after:
        both = (digests(before), digests(after))
        replaced = source_names(before, values)
        assert replaced == {"mtp.layers.0.mlp.up_proj.weight", "mtp.norm.weight"}
        audit(before, after, both, replaced)
        with pytest.raises(DamagedTensor, match=r"'mtp\.norm\.weight' isn't as in"):
            audit(before, after, both, replaced - {"mtp.norm.weight"})
        flipped = both[1] | {"lm_head.weight": "0"}
        with pytest.raises(DamagedTensor, match=r"'lm_head\.weight' isn't as in"):
            audit(before, after, (both[0], flipped), replaced)
        del after.tensors["lm_head.weight"]  # type: ignore[attr-defined]  # a dict here
        with pytest.raises(DamagedTensor, match=r"lost tensor 'lm_head\.weight'"):
            audit(before, after, both, replaced)


def test_what_cant_be_written_is_refused_before_a_file_is(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "hf", "qwen3_5")
    values = up_and_norm(folder)
    with pytest.raises(CmfError, match=r"can't hold 'q8_row'.*ends in \.cmf"):
        patched(folder, tmp_path / "a", values, "q8_row")
    fused = "model.mtp.layers.0.mlp.experts.down_proj"
    with pytest.raises(CmfError, match=r"has no tensor 'model\.mtp\.\S+\.experts"):
        patched(folder, tmp_path / "b", {fused: np.ones((2, 2), np.float32)}, "keep")
    values[NORM][3] = np.nan
    with pytest.raises(NotEncodable, match=r"'model\.mtp\.norm\.weight' as bf16"):
        patched(folder, tmp_path / "c", values, "keep")
    assert not any((tmp_path / name).exists() for name in "abc")


def test_a_copied_file_is_one_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(range(256)) * 50_000)
    copy_file(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == (tmp_path / "a").read_bytes()
    assert not (tmp_path / "a").samefile(tmp_path / "b")


def test_a_folder_is_replaced_only_by_a_whole_one(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for text in ("one", "two"):
        with replacing_folder(out, replaces=True) as made:
            (made / text).write_text(text)
    assert [path.name for path in out.iterdir()] == ["two"]
    with pytest.raises(RuntimeError):
        _break_off(out)
    assert [path.name for path in out.iterdir()] == ["two"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    with pytest.raises(CmfError, match="is there already"), replacing_folder(out):
        pass


def _break_off(out: Path) -> None:
    with replacing_folder(out, replaces=True) as made:
        (made / "three").touch()
        raise RuntimeError
