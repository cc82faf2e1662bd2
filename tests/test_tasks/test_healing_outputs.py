"""healing.md §9: what provenance and dump say is what the run did and read."""

import math
from itertools import accumulate
from operator import mul
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file

from store.arrays import open_array
from store.tables import read_table
from tasks.packed import read_windows
from tasks.trunk_rows import read_rows
from tests.small_heal import Ground, HealRun, heal
from tests.test_tasks.test_measure import artifact


def held(rates: list[float]) -> float:
    return math.fsum(accumulate(rates, mul))


def logged(run: HealRun) -> dict[int, dict[str, Any]]:
    """The rows of a training's log, by step."""
    table = read_table(run.path("train_draft") / "log.arrow").to_pylist()
    return {row["step"]: row for row in table}


@pytest.mark.parametrize("layout", ["exact", "rows"])
def test_provenance_tells_the_start_and_the_best_of_the_log(
    ground: Ground, layout: str
) -> None:
    run = heal(ground.config(train={"layout": layout, "refresh": 3}), ground.store)
    said: Any = run.files.report.provenance
    log = logged(run)
    start, best = log[0], log[said["best_step"]]
    assert said["best_step"] > 0, "else start and best could be swapped unseen"
    for name, row in (("start", start), ("best", best)):
        assert said[f"heldout_kl_{name}"] == [row["kl_1"], row["kl_2"]]
        assert held(said[f"heldout_hold_{name}"]) == pytest.approx(row["held"])
        mean = said[f"heldout_kind_kl_{name}"]
        if layout == "exact":
            assert mean is None
        else:
            assert mean == pytest.approx((row["kind_kl_1"] + row["kind_kl_2"]) / 2)
    assert said["heldout_kl_start"] != said["heldout_kl_best"]
    assert said["heldout_hold_start"] != said["heldout_hold_best"]


def test_a_dump_s_fixed_part_is_the_windows_and_the_trunk_s_rows(ground: Ground) -> None:
    run = heal(ground.config(dump=True), ground.store)
    out = run.path("dump_chain")
    packed = read_windows(artifact(run, "pack_windows"))
    rows = read_rows(artifact(run, "trunk_pass"), run.runtime)
    fixed: dict[str, NDArray[np.generic]] = {
        "ids": packed.ids,
        "len": packed.length,
        "set": packed.set_index,
        "held_out": packed.is_held_out,
    }
    for name, wanted in fixed.items():
        assert np.array_equal(open_array(out, name)[:], wanted), name
    assert 0 < packed.is_held_out.sum() < len(packed.length)
    for window in range(len(packed.length)):
        for name, of in {"ti": "topk_id", "tp": "topk_p"}.items():
            assert np.array_equal(open_array(out, name)[window], rows.read(of, window))


def test_a_dump_s_readme_names_all_that_lies_beside_it(ground: Ground) -> None:
    run = heal(ground.config(dump=True), ground.store)
    out = run.path("dump_chain")
    readme = (out / "README.md").read_text(encoding="utf-8")
    arrays = set(artifact(run, "dump_chain").manifest.arrays)
    assert {"ids", "before_output", "after_top_p"} <= arrays
    for name in arrays - {name for name in arrays if name.startswith("after_")}:
        assert f"`{name}`" in readme, name
    tensors = load_file(out / "tensors.safetensors").keys()
    for name in {name.removeprefix("after.") for name in tensors}:
        assert f"`{name}`" in readme, name
    for word in ("`after_…`", "`after.…`", "`meta.json`", "open_array", "heal dump"):
        assert word in readme
