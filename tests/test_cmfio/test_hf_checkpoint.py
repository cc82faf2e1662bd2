"""A checkpoint's folder with a container's face, and what it is by content."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from cmfio.errors import UnsupportedFeature
from cmfio.hf_checkpoint import Checkpoint, open_hf
from cmfio.hf_identity import checkpoint_digests, file_digests
from cmfio.hf_import import import_hf
from cmfio.identity import ModelDigests, model_digests
from cmfio.models import open_weights
from cmfio.reader import Container
from tests.tiny_checkpoints import Wishes, make_checkpoint

torch.set_num_threads(1)
HYBRID = "model.language_model.layers.0.linear_attn.A_log"


def digests_of(folder: Path, side: str = "") -> ModelDigests:
    with open_hf(folder) as model:
        stored: dict[str, str] = {}
        for path in model.weight_files:
            stored |= file_digests(model, path, lambda _: None)
        return checkpoint_digests(model, stored, {"other": side})


def bump(folder: Path, name: str) -> None:
    """One tensor of the folder made another."""
    for path in folder.glob("*.safetensors"):
        tensors = load_file(path)
        if name in tensors:
            save_file(tensors | {name: tensors[name] + 1}, path)
            return
    raise AssertionError(name)


def test_entries_and_values_are_the_files(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "hf", "qwen3_5")
    stored: dict[str, torch.Tensor] = {}
    for path in folder.glob("*.safetensors"):
        stored |= load_file(path)
    with open_weights(folder) as model:
        assert isinstance(model, Checkpoint)
        assert model.header.quant_type == "BF16"
        assert bytes(model.vocab or b"") == (folder / "tokenizer.json").read_bytes()
        assert len(model.weight_files) == 2
        for name, entry in model.entries.items():
            theirs = stored[model.sources[name]]
            assert entry.shape == tuple(theirs.shape), name
            assert entry.dtype == "bf16"
            np.testing.assert_array_equal(model.tensor(name), theirs.float().numpy())
            bits = theirs.view(torch.uint16).numpy().tobytes()
            assert bytes(model.payload(name)) == bits
            assert b"".join(bytes(chunk) for chunk in model.chunks(name)) == bits
        assert not any("visual" in name for name in model.entries)
        assert any("visual" in name for name in model.tensors)


def test_its_trunk_is_that_of_the_container_made_of_it(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "hf", "qwen3_5")
    import_hf(folder, tmp_path / "m.cmf")
    with open_weights(tmp_path / "m.cmf") as model:
        assert isinstance(model, Container)
        there = model_digests(model)
    here = digests_of(folder)
    assert here.trunk == there.trunk
    assert here.draft == there.draft
    assert here.vocab == there.vocab


def test_a_digest_moves_with_what_it_is_of(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "hf", "qwen3_5")
    first = digests_of(folder)
    assert digests_of(folder) == first
    other = digests_of(folder, side="another licence")
    assert (other.trunk, other.draft) == (first.trunk, first.draft)
    assert other.content != first.content
    bump(folder, "mtp.fc.weight")
    second = digests_of(folder)
    assert second.trunk == first.trunk
    assert second.draft != first.draft
    bump(folder, HYBRID)
    third = digests_of(folder)
    assert third.trunk != second.trunk
    assert third.draft == second.draft


def test_a_draft_with_a_head_of_its_own_has_no_digests(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "hf", "glm4_moe")
    digests_of(folder)
    bump(folder, "model.layers.2.shared_head.head.weight")
    with pytest.raises(UnsupportedFeature, match="the draft has its own"):
        digests_of(folder)


def test_vision_is_of_the_content_alone(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "hf", "qwen3_5")
    first = digests_of(folder)
    with open_hf(folder) as model:
        name = next(n for n in model.tensors if ".visual." in n and n.endswith("weight"))
    bump(folder, name)
    second = digests_of(folder)
    assert (second.trunk, second.draft) == (first.trunk, first.draft)
    assert second.content != first.content


def test_files_of_a_patch_stand_in_for_the_folders(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "hf", "qwen3", Wishes(shards=1))
    (tmp_path / "patch").mkdir()
    tensors = load_file(folder / "model.safetensors")
    changed = tensors | {"mtp.fc.weight": tensors["mtp.fc.weight"] + 1}
    save_file(changed, tmp_path / "patch" / "model.safetensors")
    with open_weights(folder, tmp_path / "patch") as over, open_weights(folder) as under:
        name = "model.mtp.eh_proj.weight"
        assert not np.array_equal(over.tensor(name), under.tensor(name))
        assert over.paths[0] == tmp_path / "patch" / "model.safetensors"
