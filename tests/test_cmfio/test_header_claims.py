"""What a header says of special layers, rotations, skills and genomes, and says wrongly."""

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cmfio.errors import CmfError
from cmfio.hash64 import hash64
from cmfio.header import Header, TensorEntry
from cmfio.reader import open_container
from cmfio.rewrite import encode_tensor
from cmfio.rules import trunk_hash
from cmfio.writer import write_container

Tree = dict[str, Any]  # a header's JSON, harmed by the tests

LINEAR = {"kind": "vmf_phase", "num_heads": 2, "nphase": 4, "value_head_dim": 8}
DELTA = LINEAR | {"kind": "vmf_phase_delta_v1", "phase_delta_layers": [0]}
ANCHOR = {
    "kind": "swa_sink_v1",
    "window": 128,
    "sink": 32,
    "rope": "relative_in_window",
    "sink_scores": "nope",
    "train_windows": [64, 128],
}
AFFINE = {
    "version": 1,
    "profile": "q2tp_affine",
    "group_size": 32,
    "correction_scale": 0.5,
    "target_names": ["w"],
}
PRISM = {
    "version": 1,
    "block_size": 32,
    "transform": "normalized-sylvester-walsh-hadamard",
    "axis": "input-last-dimension",
    "sign_mode": "explicit",
    "widths": [32],
    "signs": [1.0] * 32,
    "forward_weight_names": ["w"],
    "inverse_weight_names": [],
    "gdn_v_grouped": False,
    "activation_f16": False,
    "affine": AFFINE,
}
GENOME = {"id": "g1", "generation": 1, "status": "sealed", "encoding": "f32"}


def tree(arch: Tree | None = None, **fields: object) -> Tree:
    """A header of one layer, with `arch`'s fields put over a small one's."""
    plain = {
        "arch_name": "qwen3",
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_layers": 1,
        "num_attention_heads": 2,
        "num_kv_heads": 1,
        "head_dim": 16,
        "vocab_size": 10,
        "layer_types": ["FullAttention"],
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": 64,
    }
    return {"version": 2, "arch": plain | (arch or {}), "quant_type": "F32", **fields}


def linear(core: Tree, kind: str = "LinearAttention") -> Tree:
    return {"layer_types": [kind], "linear_core": core}


def anchored(**changes: object) -> Tree:
    return {"layer_types": ["BoundedAttention"], "anchor_core": ANCHOR | changes}


def rotated(**changes: object) -> Tree:
    return {"arch_name": "prism_hadamard_qwen35", "prism_hadamard": PRISM | changes}


def write(
    path: Path, header: Tree, *, name: str = "w", codec: str = "q2tp", vocab: bytes = b"{}"
) -> Path:
    """A file with that header and one 4 by 32 matrix, opened once by the writer."""
    parsed = Header.model_validate_json(json.dumps(header))
    matrix = encode_tensor(name, np.ones((4, 32), np.float32), codec)
    write_container(path, parsed, [matrix], vocab=vocab)
    return path


@pytest.mark.parametrize(
    "arch",
    [
        linear(LINEAR),
        linear(DELTA),
        linear({"kind": "vmf_phase"}, "FullAttention"),  # no layer that needs the sizes
        anchored(),
        anchored(window=1, sink=159, train_windows=[1]),
        rotated(),
        {"prism_hadamard": {k: v for k, v in PRISM.items() if k != "affine"}}
        | {"arch_name": "prism_hadamard_qwen35"},
    ],
)
def test_what_is_sound_opens_and_keeps_what_it_says(tmp_path: Path, arch: Tree) -> None:
    with open_container(write(tmp_path / "a.cmf", tree(arch))) as source:
        said = source.header.arch.to_json()
    assert isinstance(said, dict)
    assert {key: said[key] for key in arch} == {**arch}


@pytest.mark.parametrize(
    ("arch", "told"),
    [
        (linear(LINEAR | {"kind": "mamba"}), "kind is 'mamba'; there are gated_delta_net"),
        (linear(LINEAR | {"phase_delta_layers": [0]}), "doesn't go with kind 'vmf_phase'"),
        (linear(LINEAR | {"kind": "vmf_phase_delta_v1"}), "doesn't go with kind"),
        (linear(DELTA | {"phase_delta_layers": []}), "must list LinearAttention layers"),
        (linear(DELTA | {"phase_delta_layers": [0, 0]}), "must list LinearAttention"),
        (linear(DELTA | {"phase_delta_layers": [1]}), "must list LinearAttention layers"),
        (linear(DELTA, "FullAttention"), "must list LinearAttention layers"),
        (linear(LINEAR | {"nphase": 0}), "linear_core sizes must be above 0"),
        (linear({"kind": "vmf_phase"}), "linear_core sizes must be above 0"),
        ({"layer_types": ["BoundedAttention"]}, "BoundedAttention without anchor_core"),
        ({"anchor_core": ANCHOR}, "without a BoundedAttention layer"),
        (anchored(rope="absolute"), "kind, rope or sink_scores unknown"),
        (anchored(window=0, train_windows=[]), "window must be at least 1"),
        (anchored(sink=33), "sink \\+ window at most 160"),
        (anchored(train_windows=[129]), "train_windows must lie in 1..window"),
        (anchored(train_windows=[0]), "train_windows must lie in 1..window"),
        (anchored(far={"every": 2}), "far isn't supported"),
        (anchored() | {"num_layers": 2}, "layer_types must name every layer"),
        (rotated() | {"arch_name": "qwen3"}, "needs arch_name prism_hadamard_qwen35"),
        (rotated(version=2), "version must be 1"),
        (rotated(axis="output"), "transform, axis or sign_mode unknown"),
        (rotated(block_size=24), "block_size must be a power of two"),
        (rotated(block_size=0), "block_size must be a power of two"),
        (rotated(widths=[48], signs=[1.0] * 48), "widths must be multiples of block_size"),
        (rotated(signs=[1.0] * 31), "signs must be"),
        (rotated(signs=[0.5] * 32), "signs must be"),
        (rotated(inverse_weight_names=["w"]), "a weight is listed forward and inverse"),
        (rotated(affine=AFFINE | {"group_size": 64}), "affine record invalid"),
        (rotated(affine=AFFINE | {"profile": "q4"}), "affine record invalid"),
        (rotated(affine=AFFINE | {"target_names": []}), "affine record invalid"),
        (rotated(affine=AFFINE | {"target_names": ["v"]}), "affine record invalid"),
        (rotated(affine=AFFINE | {"target_names": ["w", "w"]}), "affine record invalid"),
    ],
)
def test_a_contradiction_is_named_and_no_file_is_left(
    tmp_path: Path, arch: Tree, told: str
) -> None:
    with pytest.raises(CmfError, match=told):
        write(tmp_path / "a.cmf", tree(arch))
    assert not (tmp_path / "a.cmf").exists()


@pytest.mark.parametrize(("name", "codec"), [("w", "f16"), ("v", "q2tp")])
def test_an_affine_target_is_a_matrix_that_is_there_and_q2tp(
    tmp_path: Path, name: str, codec: str
) -> None:
    with pytest.raises(CmfError, match="affine target 'w' isn't one q2tp matrix"):
        write(tmp_path / "a.cmf", tree(rotated()), name=name, codec=codec)


def skill(name: str = "sql", **fields: object) -> Tree:
    return {"id": name, "kind": "ffn_replace", **fields}


@pytest.mark.parametrize(
    ("skills", "told"),
    [
        ([skill(), skill()], "two skills share an id"),
        ([skill("a.b")], "skill id 'a.b' isn't allowed"),
        ([skill("@backbone")], "skill id '@backbone' isn't allowed"),
        ([skill(kind="prompt")], "skill 'sql' is of unknown kind 'prompt'"),
        ([skill("other")], "belongs to no skill of the header"),
    ],
)
def test_a_skill_that_breaks_a_rule(tmp_path: Path, skills: list[Tree], told: str) -> None:
    with pytest.raises(CmfError, match=told):
        write(tmp_path / "a.cmf", tree(skills=skills), name="skill.sql.w")


def test_a_router_alone_makes_the_rules_of_skills_count(tmp_path: Path) -> None:
    loose = [{"id": "a.b"}]  # of version 1: no kind, and no rules
    write(tmp_path / "a.cmf", tree(skills=loose))
    with pytest.raises(CmfError, match=r"skill id 'a\.b' isn't allowed"):
        write(tmp_path / "b.cmf", tree(skills=loose, router={"kind": "cosine"}))


def sealed(header: Tree) -> Tree:
    """The header with the hash that a file of `write` with an f32 matrix has."""
    data = struct.pack("<128f", *[1.0] * 128)
    entry = TensorEntry("w", "f32", (4, 32), 0, len(data), hash64(data))
    parsed = Header.model_validate_json(json.dumps(header))
    found = trunk_hash(parsed, {"w": entry}, {"vocab": memoryview(b"{}")})
    return header | {"genome": header["genome"] | {"trunk_hash": f"{found:016x}"}}


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"provenance": {"o1_attn": 1}}, "needs a vocab, no shards and no o1_attn"),
        ({"lineage": [{"seq": 2}, {"seq": 2}]}, "lineage isn't numbered upwards"),
        ({"lineage": [{"seq": 1}, {}]}, "lineage isn't numbered upwards"),
        ({"lineage": ["first"]}, "lineage isn't numbered upwards"),
    ],
)
def test_a_genome_that_breaks_a_rule(tmp_path: Path, fields: Tree, told: str) -> None:
    header = sealed(tree(genome=GENOME, **fields))
    with pytest.raises(CmfError, match=told):
        write(tmp_path / "a.cmf", header, codec="f32")


def test_a_genome_without_a_vocab(tmp_path: Path) -> None:
    with pytest.raises(CmfError, match="needs a vocab"):
        write(tmp_path / "a.cmf", sealed(tree(genome=GENOME)), codec="f32", vocab=b"")


def test_a_skill_is_bound_to_the_genome_it_was_made_for(tmp_path: Path) -> None:
    genome = GENOME | {"master_trunk_hash": "ab"}
    own = {"genome_id": "g1", "generation": 1, "master_trunk_hash": "ab"}
    write(
        tmp_path / "a.cmf",
        sealed(tree(genome=genome, skills=[skill(bound=own)])),
        codec="f32",
    )
    stale = skill(bound=own | {"generation": 0})
    with pytest.raises(CmfError, match="skill 'sql' is bound to another genome"):
        write(tmp_path / "b.cmf", sealed(tree(genome=genome, skills=[stale])), codec="f32")


def test_masks_and_index_are_in_a_genomes_hash() -> None:
    """By hand: the tail that a file with masks has and one without lacks."""
    header = Header.model_validate_json(json.dumps(tree(genome=GENOME)))
    masks = memoryview(b"mask")
    spelled = json.dumps(header.arch.to_json(), sort_keys=True, separators=(",", ":"))
    plain = b"cmf-trunk-v1\0\x1e" + spelled.replace("1e-06", "1e-6").encode()
    plain += b"\x1e" + struct.pack("<Q", 0) + b"\x1enull"
    assert trunk_hash(header, {}, {}) == hash64(plain)
    tail = b"\x1eexec\0\1" + struct.pack("<Q", hash64(b"mask")) + b"\0"
    assert trunk_hash(header, {}, {"masks": masks}) == hash64(plain + tail)
