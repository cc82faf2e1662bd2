"""healing.md §9, `epochs: 0`: an init's draft goes out as it is, in the codec asked for."""

from pathlib import Path

import numpy as np

from cmfio.reader import open_container
from tasks.drafts import BEFORE_BLOCK
from tests.builders import write_model
from tests.small_heal import Ground, heal, small_model


def test_without_training_an_init_s_block_goes_out_as_it_is(
    ground: Ground, tmp_path: Path
) -> None:
    init = write_model(tmp_path / "init.cmf", small_model(seed=5), dtype="f32")
    out = tmp_path / "out.cmf"
    raw = ground.config(
        init=str(init),
        train={"epochs": 0, "steps": None},
        outputs=[{"codec": "f32", "path": str(out)}],
    )
    run = heal(raw, ground.store)
    assert run.files.report.training is None
    with (
        open_container(ground.student) as student,
        open_container(init) as other,
        open_container(out) as written,
    ):
        draft = [name for name in student.entries if name.startswith("model.mtp.")]
        for name in draft:
            wanted = (student if name.startswith(BEFORE_BLOCK) else other).tensor(name)
            if written.entries[name].dtype != "f32":
                wanted = wanted.astype(np.float16).astype(np.float32)
            np.testing.assert_array_equal(written.tensor(name), wanted, name)
        for name in student.entries.keys() - draft:
            assert written.payload(name) == student.payload(name), name
