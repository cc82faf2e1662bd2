"""What a user installs: a wheel, in an environment of its own; `make wheel`."""

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
import yaml

HERE = Path(__file__).parents[1]
PROJECT = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
OURS = ("cmfio", "conf", "flows", "nets", "store", "tasks", "ui")
# What lies beside the programs and must come with them.
CARRIED = {".yaml", ".css", ".j2", ".html", ".js", ".svg"}


def test_the_version_is_one_everywhere() -> None:
    version = PROJECT["version"]
    changelog = (HERE / "CHANGELOG.md").read_text()
    newest = re.findall(r"^## (.+)$", changelog, re.MULTILINE)[0]
    assert re.fullmatch(rf"{re.escape(version)} \(\d{{4}}-\d\d-\d\d\)|Unreleased", newest)
    images = re.findall(
        r"mtp-heal:(\d[\w.]*)", (HERE / "deploy/kubernetes/once.yaml").read_text()
    )
    assert images == [version]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a folder of the tracked files and those not yet added, no others."""
    root = tmp_path_factory.mktemp("release")
    listed = done("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    for name in filter(None, listed.split("\0")):
        target = root / "checkout" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (HERE / name).is_file():  # one that was deleted is listed until the commit
            target.write_bytes((HERE / name).read_bytes())
    pip = (sys.executable, "-m", "pip", "wheel", "-q", "--no-deps")
    done(*pip, "-w", str(root / "dist"), ".", cwd=root / "checkout")
    (built,) = (root / "dist").iterdir()
    return built


@pytest.fixture(scope="module")
def programs(wheel: Path) -> Path:
    """`bin` of a fresh environment with the wheel, and with this one's dependencies."""
    home = wheel.parents[1] / "venv"
    done(sys.executable, "-m", "venv", str(home))
    done(str(home / "bin/pip"), "install", "-q", "--no-deps", str(wheel))
    # The packages alone: a .pth file of theirs is not read, so no editable install is seen.
    (site,) = home.glob("lib/python3*/site-packages")
    (site / "zz_dependencies.pth").write_text(metadata_folder() + "\n")
    return home / "bin"


def metadata_folder() -> str:
    return str(Path(str(metadata.distribution("typer").locate_file(""))))


def done(*command: str, cwd: Path = HERE) -> str:
    """A command's stdout; its stderr in the failure."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    ran = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.mark.release
def test_the_wheel_holds_every_file_of_every_room(wheel: Path) -> None:
    assert wheel.name == f"mtp_heal-{PROJECT['version']}-py3-none-any.whl"
    held = set(zipfile.ZipFile(wheel).namelist())
    tracked = done("git", "ls-files", *OURS).split()
    wanted = {name for name in tracked if Path(name).suffix in {".py", *CARRIED}}
    assert wanted - held == set()
    assert {name.split("/")[0] for name in held if ".dist-info" not in name} == set(OURS)
    (licence,) = [name for name in held if name.endswith("licenses/LICENSE")]
    assert zipfile.ZipFile(wheel).read(licence) == (HERE / "LICENSE").read_bytes()


@pytest.mark.release
def test_the_programs_run_from_the_wheel(programs: Path, tmp_path: Path) -> None:
    where = done(
        str(programs / "python"), "-c", "import flows; print(flows.__file__)", cwd=tmp_path
    )
    assert Path(where.strip()).is_relative_to(programs.parent)
    helped = done(str(programs / "heal"), "--help", cwd=tmp_path)
    assert "Retrains a stale" in helped
    assert "--model" in done(str(programs / "heal"), "demo", "--help", cwd=tmp_path)
    peer = str(HERE / "tests/peers/cmf/align.cmf")
    told = done(str(programs / "cmf"), "info", peer, cwd=tmp_path)
    assert "2 layers of 32, vocabulary 40" in told


@pytest.mark.release
def test_a_heal_runs_from_the_wheel(programs: Path, tmp_path: Path) -> None:
    """Its settings, report templates and inspector pages are there, from another folder."""
    from tests.small_heal import small_ground  # torch, which the others don't need

    ground = small_ground(tmp_path)
    config = ground.config(outputs=[{"codec": "keep", "path": "out/healed.cmf"}])
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(config))
    done(str(programs / "heal"), "run", "mine.yaml", cwd=tmp_path)
    page = Path(done(str(programs / "heal"), "report", "last", cwd=tmp_path).strip())
    assert "Drafts held" in (tmp_path / page).read_text()
    assert (tmp_path / "out/healed.cmf").is_file()
    carried = "import conf, ui; print(*conf.__path__, *ui.__path__)"
    rooms = done(str(programs / "python"), "-c", carried, cwd=tmp_path).split()
    assert [Path(room).is_relative_to(programs.parent) for room in rooms] == [True, True]
