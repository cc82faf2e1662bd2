"""Conventions and alignment: section A of the cases that other projects met."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from cmfio.models import open_weights
from conf.base import RAW
from flows.cli import app
from nets.draft import build_draft
from nets.evaluate import Compute, Evaluation, evaluate
from nets.source import Windows
from nets.trunk import build_shared
from tasks.model_file import weights_of
from tests.builders import model_of, tiny_qwen3, write_model
from tests.oracles.trunk import Plain, draft_rows
from tests.planted import planted_ground
from tests.small_heal import Ground, heal
from tests.test_cases.conftest import Folder, Make
from tests.test_flows.test_bad_input import complaint
from tests.test_nets.chain_source import ListSource, draft_of, jitter, own_windows
from tests.test_tasks.test_checkpoint_heal import tensors_of
from tests.tiny_checkpoints import HIDDEN, VOCAB, Wishes

torch.set_num_threads(1)


def edit_rope(folder: Path, way: str, **rope: object) -> None:
    """The text model's rotary settings, `inside` rope_parameters or `beside` as of old."""
    path = folder / "config.json"
    config = json.loads(path.read_text("utf-8"))
    text = config.get("text_config", config)
    del text["rope_parameters"]
    text |= (
        {"rope_parameters": {"rope_type": "default", **rope}} if way == "inside" else rope
    )
    path.write_text(json.dumps(config), "utf-8")


@pytest.mark.parametrize("way", ["inside", "beside"])
@pytest.mark.parametrize("share", [0.25, 0.5])
def test_a4_a_partial_rotary_is_the_references(
    make_folder: Make, way: str, share: float
) -> None:
    """The head's width, 16, is not hidden / heads = 8; a share of it is turned."""
    folder = make_folder("qwen3_5", Wishes(), with_text=False)
    edit_rope(folder.student, way, partial_rotary_factor=share, rope_theta=1e4)
    generator = torch.Generator().manual_seed(3)
    token_BT = torch.randint(VOCAB, (1, 9), generator=generator)
    hidden_BTH = torch.randn(1, 9, HIDDEN, generator=generator)
    with open_weights(folder.student) as model, torch.no_grad():
        weights, arch = weights_of(model), model.header.arch
        given = (arch, weights.shapes, weights.read)
        shared = build_shared(*given, device="cpu", dtype=torch.float32)
        draft = build_draft(*given, shared)
        found = draft.block(draft.fuse(token_BT, hidden_BTH), torch.arange(9)[None])
        tensors = {name: model.tensor(name).astype(np.float64) for name in weights.shapes}
    plain = Plain(2, 16, 1e-6, 1e4, partial=share, is_gemma=True)
    wanted = draft_rows(
        token_BT[0].tolist(), hidden_BTH[0].double().numpy(), tensors, plain
    )
    # f32 rounds at 6e-8; one layer of sums over up to 64 terms stays well inside 1e-5.
    np.testing.assert_allclose(found[0].numpy(), wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("rope", "words"),
    [
        ({"rope_theta": 1e4, "low_freq_factor": 2.0}, "low_freq_factor"),
        ({"rope_theta": 1e4, "rope_type": "longrope"}, "'longrope'"),
    ],
)
def test_a4_an_unknown_rope_field_stops_the_run_by_name(
    make_folder: Make, rope: dict[str, object], words: str
) -> None:
    folder = make_folder("qwen3_5", Wishes(), with_text=False)
    edit_rope(folder.student, "inside", **rope)
    assert words in complaint(folder.config(), folder.root)


def test_a4_two_rotary_settings_that_differ_stop_the_run(make_folder: Make) -> None:
    folder = make_folder("qwen3", Wishes(), with_text=False)
    path = folder.student / "config.json"
    config = json.loads(path.read_text("utf-8"))
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}
    path.write_text(json.dumps(config | {"rope_scaling": yarn}), "utf-8")
    assert "rope_scaling" in complaint(folder.config(), folder.root)


def test_a5_a_draft_without_its_own_last_norm(ground: Ground, tmp_path: Path) -> None:
    """What the head reads is `norm` of the block: absent, nothing is read un-normed."""
    model = ground.model
    tensors = {n: t for n, t in model.tensors.items() if n != "model.mtp.norm.weight"}
    student = write_model(tmp_path / "bare.cmf", model_of(model.arch, tensors))
    said = complaint(ground.config(student=str(student)), tmp_path)
    assert "the model's draft lacks tensor 'model.mtp.norm.weight'" in said
    assert not list((tmp_path / "own store").glob("*/*/record.json"))


def measured(source: ListSource, order: tuple[int, ...], batch: int) -> Evaluation:
    draft = jitter(draft_of(tiny_qwen3()), 0.15)
    windows = Windows(order, (0,) * len(order))
    return evaluate(draft, source, windows, 3, Compute(batch, "f32", 1))


def test_a6_no_row_depends_on_batch_or_order() -> None:
    """Windows of uneven length; batches of 4 leave a last one of 1."""
    source = own_windows(draft_of(tiny_qwen3()), (14, 9, 14, 6, 11), 14)
    one = measured(source, (0, 1, 2, 3, 4), 1)
    assert one.arrays.hit_WTC.sum() > 0
    for order in ((0, 1, 2, 3, 4), (4, 3, 2, 1, 0)):
        four = measured(source, order, 4)
        at = np.argsort(order)
        np.testing.assert_array_equal(four.arrays.counted_WTC[at], one.arrays.counted_WTC)
        np.testing.assert_array_equal(four.arrays.hit_WTC[at], one.arrays.hit_WTC)
        live = one.arrays.counted_WTC
        np.testing.assert_array_equal(
            four.top_id_WTC4[at][live][:, 0], one.top_id_WTC4[live][:, 0]
        )
        # The same sums of f32 in batches of another size.
        np.testing.assert_allclose(
            four.top_p_WTC4[at][live], one.top_p_WTC4[live], rtol=0, atol=1e-5
        )


def test_a7_what_a_draft_cannot_know_it_does_not_hold(tmp_path: Path) -> None:
    """The probe's own controls, in the report of a whole heal."""
    ground = planted_ground(tmp_path, RAW)
    only = {"epochs": 0, "steps": None}
    run = heal(ground.config(probe={"wiring": "auto"}, train=only), ground.store)
    probe = run.files.report.probe
    assert probe is not None
    best = max(probe.readings, key=lambda reading: reading.drafts)
    assert best.agreement[0] > 0.9
    assert {control.name for control in probe.controls} == {"shifted", "foreign"}
    for control in probe.controls:
        assert control.agreement[0] < 0.2
        assert all(low <= at for low, at in zip(control.low, probe.chance, strict=True))


def test_a8_of_three_mtp_layers_the_first_is_healed(make_folder: Make) -> None:
    folder = make_folder("qwen3_5", Wishes(mtp_layers=3))
    run = heal(folder.config(), folder.root / "store")
    before, after = tensors_of(folder.student), tensors_of(folder.root / "out")
    assert after.keys() == before.keys()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert any(name.startswith("mtp.layers.0.") for name in changed)
    further = ("mtp.layers.1", "mtp.layers.2")
    assert any(name.startswith(further) for name in before)
    kept = [name for name in changed if name.startswith(further) or name[:4] != "mtp."]
    assert kept == []
    patch = run.path("rewrite_checkpoint") / "manifest.json"
    numbers = json.loads(patch.read_bytes())["numbers"]
    assert numbers["healed"] == "mtp.layers.0"
    assert numbers["kept"] == ["mtp.layers.1", "mtp.layers.2"]
    done = CliRunner().invoke(app, ["doctor", str(folder.root / "out")])
    assert "MTP layer 0 is healed; layers 1, 2 stay as they are" in done.stdout


OWN_EMBED = "model.layers.2.embed_tokens.weight"
OWN_HEAD = "model.layers.2.shared_head.head.weight"


def doctor_of(folder: Folder) -> str:
    store = str(folder.root / "doctor")
    return CliRunner().invoke(app, ["doctor", str(folder.student), "--store", store]).stdout


def edit_head(folder: Folder, way: str) -> None:
    for path in folder.student.glob("*.safetensors"):
        tensors = load_file(path)
        if OWN_HEAD not in tensors:
            continue
        if way == "another":
            tensors[OWN_HEAD] = tensors[OWN_HEAD] + 1
        elif way == "absent":
            del tensors[OWN_HEAD]
            index = folder.student / "model.safetensors.index.json"
            listed = json.loads(index.read_text("utf-8"))
            del listed["weight_map"][OWN_HEAD]
            index.write_text(json.dumps(listed), "utf-8")
        save_file(tensors, path, {"format": "pt"})


@pytest.mark.parametrize(
    ("way", "words"),
    [
        (
            "equal",
            f"its own {OWN_EMBED}, {OWN_HEAD} equal the trunk's",
        ),
        ("absent", f"; its own {OWN_EMBED} equal the trunk's"),
    ],
)
def test_a9_whose_head_the_draft_has_is_said(
    make_folder: Make, way: str, words: str
) -> None:
    folder = make_folder("glm4_moe", Wishes(), with_text=False)
    edit_head(folder, way)
    assert words in doctor_of(folder)


@pytest.mark.parametrize("way", ["equal", "absent"])
def test_a9_the_head_is_written_back_as_it_was(make_folder: Make, way: str) -> None:
    folder = make_folder("glm4_moe", Wishes())
    edit_head(folder, way)
    run = heal(folder.config(), folder.root / "store")
    assert "train_draft heal" in run.made
    before, after = tensors_of(folder.student), tensors_of(folder.root / "out")
    assert (OWN_HEAD in before) == (way == "equal")
    assert after.keys() == before.keys()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed
    assert not changed & {OWN_HEAD, OWN_EMBED, "lm_head.weight"}
    assert not [name for name in changed if not name.startswith("model.layers.2.")]


def test_a9_another_head_of_its_own_is_refused_not_overwritten(make_folder: Make) -> None:
    folder = make_folder("glm4_moe", Wishes(), with_text=False)
    edit_head(folder, "another")
    said = complaint(folder.config(), folder.root)
    assert f"the draft has its own {OWN_HEAD!r}, which differs from the trunk's" in said
    assert not (folder.root / "out").exists()
