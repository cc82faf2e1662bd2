"""A heal's dump: the chains before and after training, and its export as plain files."""

import json
import shutil
from pathlib import Path

import numpy as np

from conf.schema import RunConfig
from flows.ground import Ground
from flows.wiring import Start
from store.arrays import open_array
from store.artifact import Artifact
from store.store import Store
from tasks.dump_chain import (
    META_NAME,
    TENSORS_NAME,
    DumpSettings,
    dump_chain,
)
from tasks.errors import InputError
from tasks.stage import Runtime


def refuse_undumped_layout(config: RunConfig) -> None:
    """InputError for a layout whose chains can't be dumped, before anything runs."""
    if config.dump and config.train.layout != "exact":
        raise InputError(
            f"dump: true, but train.layout is {config.train.layout}: only exact chains can "
            "be dumped; set dump: false or train.layout: exact"
        )


def dump_heal(
    config: RunConfig,
    ground: Ground,
    start: Start,
    trained: Artifact | None,
    runtime: Runtime,
) -> None:
    """The chains that `dump` asks for, in the store; says where they lie."""
    if not config.dump:
        return
    dumped = dump_chain(
        DumpSettings(
            layout="exact",
            depth=ground.measure.depth,
            wiring=ground.measure.wiring,
            dtype=ground.measure.dtype,
        ),
        runtime,
        windows=ground.windows,
        rows=ground.rows,
        trunk=ground.model.trunk,
        draft=start.draft,
        init=start.init,
        trained=trained,
    )
    runtime.progress.say(f"dump of the draft's chains: {dumped.path}")


def find_dump(root: Path, name: str) -> Artifact:
    """The dump of that key or its beginning, or the newest (`last`); InputError else."""
    store = Store(root, keeps=False)
    every = [one for one in store.artifacts() if one.stage == "dump_chain"]
    every.sort(key=lambda one: one.manifest.started)
    key = name.removeprefix("dump_chain/")
    found = every[-1:] if name == "last" else [o for o in every if o.key.startswith(key)]
    if len(found) != 1:
        keys = ", ".join(one.key[:12] for one in every) or "none"
        raise InputError(
            f"{name}: names {len(found)} of the dumps in {root}; there are: {keys}. Set "
            "dump: true in a configuration to make one"
        )
    for problem in store.check(found[0]):
        raise InputError(f"{problem}; run the heal again to make the dump anew")
    return found[0]


def export_numpy(dump: Artifact, out: Path) -> list[str]:
    """Every array as `NAME.npy`, written window by window, with the other files beside."""
    if out.exists() and any(out.iterdir()):
        raise InputError(f"{out}: is not empty; name a new folder for the files")
    out.mkdir(parents=True, exist_ok=True)
    for name in dump.manifest.arrays:
        array = open_array(dump.path, name)
        target = np.lib.format.open_memmap(
            out / f"{name}.npy", mode="w+", dtype=array.dtype, shape=array.shape
        )
        step = array.chunks[0]
        for window in range(0, len(array), step):
            target[window : window + step] = array[window : window + step]
        target.flush()
    for name in (META_NAME, TENSORS_NAME):
        shutil.copyfile(dump.path / name, out / name)
    meta = json.loads((dump.path / META_NAME).read_text())
    readme = (dump.path / "README.md").read_text()
    (out / "README.md").write_text(
        readme + f'\nHere each array is a file: `numpy.load("before_output.npy", '
        f'mmap_mode="r")[window, step - 1]`, {meta["windows"]} windows.\n'
    )
    return sorted(path.name for path in out.iterdir())
