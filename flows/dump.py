"""A heal's dump: the chains before and after training, and its export as plain files."""

import json
import shutil
from pathlib import Path

import numpy as np

from conf.schema import RunConfig
from flows.ground import Ground
from flows.named import Wanted, find_named
from flows.wiring import Start
from store.arrays import open_array
from store.artifact import Artifact
from store.runs import Run
from store.store import Store
from tasks.dump_chain import (
    META_NAME,
    TENSORS_NAME,
    DumpSettings,
    dump_chain,
)
from tasks.errors import InputError
from tasks.stage import Runtime

STAGE = dump_chain.name


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
            # A stride has rows for some starts only: dumped as the reference does.
            layout="exact" if config.train.layout == "exact" else "rows",
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


def _of_run(run: Run) -> list[str]:
    return [event.key for event in run.record.events if event.name == STAGE]


DUMP = Wanted(
    command="dump",
    stage=STAGE,
    word="dump",
    of_run=_of_run,
    advice="set dump: true in a configuration and run it to make one",
)


def find_dump(root: Path, name: str) -> Artifact:
    """The dump that `name` means to `find_named`; InputError too for a damaged one."""
    store, path = Store(root, keeps=False), find_named(root, DUMP, name)
    found = store.load(STAGE, path.name)
    assert found is not None, "a finished artifact can be loaded"
    for problem in store.check(found):
        raise InputError(f"{problem}; run the heal again to make the dump anew")
    return found


def export_numpy(dump: Artifact, out: Path) -> list[str]:
    """Every array as `NAME.npy`, written window by window, with the other files beside.

    InputError for a folder that holds something, or that can't be made or written.
    """
    try:
        if out.exists() and any(out.iterdir()):
            raise InputError(f"{out}: is not empty; name a new folder for the files")
        out.mkdir(parents=True, exist_ok=True)
        return _exported(dump, out)
    except OSError as error:
        raise InputError(
            f"{error.filename or out}: can't be written ({error.strerror}); name another "
            "folder with --numpy"
        ) from error


def _exported(dump: Artifact, out: Path) -> list[str]:
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
