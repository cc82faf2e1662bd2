"""docs/library.md, run as it stands in a program of its own."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from conf.load import check
from conf.schema import RunConfig
from flows.heal import Event, heal_model
from tasks.errors import InputError
from tests.small_heal import Ground

HERE = Path(__file__).parents[2]
STATE = """
import os, signal, threading, torch
def state():
    handlers = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)]
    environment = dict(os.environ)
    environment.pop("TORCHINDUCTOR_CACHE_DIR", None)  # torch sets it itself
    return environment, handlers, torch.get_num_threads(), os.getcwd()
untouched = state()
"""


def test_the_example_heals_and_leaves_its_process_alone(
    finished: Ground, tmp_path: Path
) -> None:
    (example,) = re.findall(
        r"```python\n(.*?)```", (HERE / "docs/library.md").read_text(), flags=re.DOTALL
    )
    lines = [line for line in example.splitlines() if line]
    assert len(lines) <= 15
    outputs = [{"codec": "keep", "path": str(tmp_path / "out.cmf")}]
    config = finished.config(outputs=outputs)
    (tmp_path / "heal.yaml").write_text(yaml.safe_dump(config))
    program = STATE + example + "\nassert state() == untouched, (state(), untouched)\n"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(HERE), "PATH": "/usr/bin:/bin", "PREFECT_HOME": "prefect"},
    )
    assert done.returncode == 0, done.stderr
    *_, measures, paths = done.stdout.splitlines()
    assert re.fullmatch(r"\d\.\d\d → \d\.\d\d drafts held per round", measures)
    page, out = paths.split()
    assert (tmp_path / page).is_file()
    assert out == str(tmp_path / "out.cmf")
    assert (tmp_path / out).is_file()
    assert len(list((tmp_path / "made" / "runs").iterdir())) == 1


def test_what_is_not_there_is_told_with_its_setting_and_all_at_once(
    finished: Ground, tmp_path: Path
) -> None:
    given = finished.config(student=str(tmp_path / "none.cmf"), data=[str(tmp_path / "no")])
    config = check(RunConfig, given, "library")
    with pytest.raises(InputError, match=r"heal_model: student: .*none\.cmf.*data\[0\]: "):
        heal_model(config, store=tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_the_callback_hears_tasks_and_may_stop_the_heal(
    finished: Ground, tmp_path: Path
) -> None:
    heard: list[Event] = []

    class EnoughError(Exception):
        pass

    def listen(event: Event) -> None:
        heard.append(event)
        if event.task == "training":
            raise EnoughError

    config = check(RunConfig, finished.config(), "library")
    with pytest.raises(EnoughError):
        heal_model(config, progress=listen, store=tmp_path / "store")
    assert heard[-1].total == 12
    heard.clear()
    report = heal_model(config, store=tmp_path / "store")
    cached = [one.name for one in report.stages if one.state == "cached"]
    assert {"pack_windows", "trunk_pass"} <= set(cached)
    assert report.measures["healed"].drafts_held >= 0
