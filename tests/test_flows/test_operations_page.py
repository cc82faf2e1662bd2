"""docs/operations.md: its units, environment and configurations are the product's."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from conf.load import check
from conf.nightly import NightlyConfig
from conf.schema import RunConfig
from conf.service import Site
from flows.operations import server_command, worker_command

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"
BIN = "/srv/heal/.venv/bin/"
SITE = Site(Path("/srv/heal"), Path("/srv/heal/.heal"))
# What only makes logs and commands pleasant, and where the page of a run is linked to.
BY_HAND_WITHOUT = {
    "PREFECT_UI_URL",
    "PREFECT_WORKER_QUERY_SECONDS",
    "PREFECT_CLI_COLORS",
    "PYTHONUNBUFFERED",
}


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def units() -> dict[str, str]:
    """Each unit's text by its file name, which its first line says."""
    found = [text for text in blocks("ini") if "[Service]" in text]
    names = [re.search(r"/etc/systemd/system/(\S+\.service)", text) for text in found]
    return {name[1]: text for name, text in zip(names, found, strict=True) if name}


def started_by(unit: str) -> list[str]:
    (line,) = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    return shlex.split(line)


def test_the_units_start_what_heal_up_starts() -> None:
    found = units()
    assert sorted(found) == ["heal-server.service", "heal-worker.service"]
    wanted = {"server": server_command(SITE), "worker": worker_command()}
    for name, command in wanted.items():
        assert started_by(found[f"heal-{name}.service"]) == [f"{BIN}prefect", *command]


def test_systemd_takes_the_units(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    here = str(Path(sys.executable).parent) + "/"
    paths = []
    for name, text in units().items():
        paths.append(tmp_path / name)
        paths[-1].write_text(text.replace(BIN, here))  # which must be there for it
    line = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no"]
    line += map(str, paths)
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_environment_by_hand_is_that_of_heal_up() -> None:
    (text,) = [block for block in blocks("ini") if "[Service]" not in block]
    told = dict(line.split("=", 1) for line in text.split())
    own = {k: v for k, v in SITE.told().items() if k not in BY_HAND_WITHOUT}
    assert told == own


def written_here(name: str) -> dict[str, Any]:
    """A file that the page has a newcomer write."""
    text = "\n".join(blocks("sh"))
    found = re.search(rf"^cat > {name} <<'END'\n(.*?)^END$", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    raw: dict[str, Any] = yaml.safe_load(found[1])
    return raw


def test_the_configurations_a_newcomer_writes_are_valid() -> None:
    night = check(NightlyConfig, written_here("nightly.yaml"), "nightly")
    (watch,) = night.watch
    assert watch.conf == "mine.yaml"
    healing = check(RunConfig, written_here("mine.yaml"), "mine")
    assert healing.train.trains
