"""Digests: what must change them, what must not, and damage found in the same read."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from cmfio.errors import DamagedTensor
from cmfio.hash64 import hash64
from cmfio.identity import ModelDigests, model_digests
from cmfio.reader import open_container
from cmfio.rewrite import encode_tensor, rewrite
from cmfio.writer import write_container

PEERS = Path(__file__).parents[1] / "peers" / "cmf"
F32 = NDArray[np.float32]


def digests(path: Path) -> ModelDigests:
    with open_container(path) as container:
        return model_digests(container)


def changed(out: Path, replace: dict[str, F32]) -> ModelDigests:
    with open_container(PEERS / "full.cmf") as source:
        rewrite(source, out, replace, codec="f16")
    return digests(out)


def model_of(out: Path, weight: F32) -> ModelDigests:
    with open_container(PEERS / "align.cmf") as source:
        write_container(out, source.header, [encode_tensor("w", weight, "f32")])
    return digests(out)


def test_tensors_and_sections_are_plain_sha256() -> None:
    made = digests(PEERS / "full.cmf")
    with open_container(PEERS / "full.cmf") as container:
        for name in container.entries:
            expected = hashlib.sha256(bytes(container.payload(name))).hexdigest()
            assert made.tensors[name] == expected
        assert container.vocab is not None
        assert made.vocab == hashlib.sha256(bytes(container.vocab)).hexdigest()


def test_a_retrained_draft_keeps_the_trunk(tmp_path: Path) -> None:
    before = digests(PEERS / "full.cmf")
    after = changed(
        tmp_path / "out.cmf", {"model.mtp.enorm.weight": np.ones(32, np.float32)}
    )
    assert after.trunk == before.trunk
    assert after.draft != before.draft
    assert after.content != before.content


def test_a_changed_norm_of_the_trunk_keeps_the_draft(tmp_path: Path) -> None:
    before = digests(PEERS / "full.cmf")
    after = changed(tmp_path / "out.cmf", {"model.norm.weight": np.ones(32, np.float32)})
    assert after.trunk != before.trunk
    assert after.draft == before.draft


def test_a_skill_is_not_the_trunk(tmp_path: Path) -> None:
    name = "skill.sql.model.layers.0.mlp.gate_proj.weight"
    before = digests(PEERS / "full.cmf")
    after = changed(tmp_path / "out.cmf", {name: np.ones((70, 32), np.float32)})
    assert (after.trunk, after.draft) == (before.trunk, before.draft)
    assert after.content != before.content


def test_what_hash64_cant_see_changes_the_identity(tmp_path: Path) -> None:
    # hash64 folds words by XOR: a gain of one constant hashes like a gain of another.
    ones, twos = np.ones((1, 64), np.float32), np.full((1, 64), 2, np.float32)
    assert hash64(ones.tobytes()) == hash64(twos.tobytes())
    assert model_of(tmp_path / "a", ones).trunk != model_of(tmp_path / "b", twos).trunk
    rows = np.arange(64, dtype=np.float32).reshape(2, 32)
    assert hash64(rows.tobytes()) == hash64(rows[::-1].tobytes())
    assert (
        model_of(tmp_path / "c", rows).trunk != model_of(tmp_path / "d", rows[::-1]).trunk
    )


def test_the_arch_is_part_of_the_trunk_but_its_mtp_isnt(tmp_path: Path) -> None:
    before = digests(PEERS / "full.cmf")
    with open_container(PEERS / "full.cmf") as source:
        for field, value in (("mtp", None), ("rope_theta", 5e5)):
            header = source.header.replace_arch(**{field: value})
            rewrite(source, tmp_path / f"{field}.cmf", {}, header=header)
    without_mtp, other_theta = (
        digests(tmp_path / f"{f}.cmf") for f in ("mtp", "rope_theta")
    )
    assert without_mtp.trunk == before.trunk
    assert without_mtp.draft != before.draft
    assert other_theta.trunk != before.trunk


def test_the_layout_of_the_file_is_no_part_of_it() -> None:
    assert digests(PEERS / "align.cmf") == digests(PEERS / "stream_gap10000.cmf")


def test_damage_is_found_in_the_same_read() -> None:
    with pytest.raises(DamagedTensor, match=r"tensor 'w\.q4tp'.*39afc1702813db09"):
        digests(PEERS / "invalid" / "verify_tensor_byte.cmf")


def test_digests_are_remembered_as_json() -> None:
    made = digests(PEERS / "full.cmf")
    assert ModelDigests.from_json(json.loads(json.dumps(made.to_json()))) == made


def test_progress_counts_all_stored_bytes() -> None:
    heard: list[tuple[int, int]] = []
    with open_container(PEERS / "align.cmf") as container:
        model_digests(container, lambda done, total: heard.append((done, total)))
    total = 66 + 16384 + 60 + 16380 + 14
    assert heard[-1] == (total, total)
    assert heard == sorted(heard)
