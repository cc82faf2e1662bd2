"""The nightly re-heal without a server: what is due, what is published, who is told."""

import json
import shutil
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from cmfio.models import open_weights
from conf.load import check
from conf.nightly import NightlyConfig
from flows import reheal as reheal_module
from flows.cli import app
from flows.reheal import Outcome, RehealFailed, refuse_failures, reheal_models
from flows.reheal_hook import tell_failures
from tasks.progress import SilentProgress
from tests.builders import write_model
from tests.small_heal import Ground, small_model

OUT = "{dir}/{stem}.healed.cmf"


@pytest.fixture
def home(ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model, its configuration, and a store that knows its heal."""
    home = tmp_path / "home"
    (home / "models").mkdir(parents=True)
    shutil.copy(ground.student, home / "models" / "a.cmf")
    (home / "small.yaml").write_text(yaml.safe_dump(ground.config()))
    shutil.copytree(ground.store, home / "store")
    monkeypatch.chdir(home)
    monkeypatch.delenv("HEAL_STORE", raising=False)
    return home


def nightly(**changes: Any) -> NightlyConfig:
    watch = {"models": "models/*.cmf", "conf": "small.yaml", "out": OUT} | changes
    return check(NightlyConfig, {"watch": [watch]}, "nightly")


def tended(config: NightlyConfig, announced: str | None = None) -> list[Outcome]:
    return reheal_models(config, Path("store"), SilentProgress(), announced)


def states(found: list[Outcome]) -> dict[str, str]:
    return {one.model.name: one.state for one in found}


def test_a_model_is_healed_once_and_again_when_its_trunk_changed(home: Path) -> None:
    (first,) = tended(nightly())
    assert (first.state, first.why) == ("healed", "no healed file yet")
    assert first.before is not None
    assert first.after is not None
    assert first.after > first.before
    assert states(tended(nightly())) == {"a.cmf": "up to date"}  # and its output is none
    write_model(home / "models" / "a.cmf", small_model(seed=1))
    config = nightly(overrides=["train.steps=4"])
    (again,) = tended(config)
    assert (again.state, again.why) == ("healed", "its trunk changed")
    assert states(tended(config)) == {"a.cmf": "up to date"}


def test_a_draft_that_changed_alone_is_no_reason(home: Path) -> None:
    tended(nightly())
    shutil.copy(home / "models" / "a.healed.cmf", home / "models" / "a.cmf")
    assert states(tended(nightly())) == {"a.cmf": "up to date"}


def test_one_that_fails_does_not_stop_the_others(home: Path) -> None:
    (home / "models" / "0.cmf").write_bytes(b"CMF")  # first in order
    found = tended(nightly())
    assert states(found) == {"0.cmf": "failed", "a.cmf": "healed"}
    with pytest.raises(RehealFailed, match="1 of 2") as failure:
        refuse_failures(found)
    assert "0.cmf" in str(failure.value)
    assert "→" in str(failure.value)


def test_a_configuration_that_only_measures_has_nothing_to_publish(home: Path) -> None:
    records = set(Path("store").rglob("record.json"))
    only = ["train.epochs=0", "train.steps=null"]
    (found,) = tended(nightly(overrides=only))
    assert found.state == "failed"
    assert "small.yaml: train.epochs is 0" in found.why
    assert "nothing to publish" in found.why
    assert not (home / "models" / "a.healed.cmf").exists()
    assert set(Path("store").rglob("record.json")) == records


def test_a_healed_draft_below_the_floor_is_not_published(home: Path) -> None:
    old = home / "models" / "a.healed.cmf"
    (found,) = tended(nightly(least_gain=2.5))  # of two steps, so out of reach
    assert found.state == "kept back"
    assert not old.exists()
    with pytest.raises(RehealFailed):
        refuse_failures([found])


def test_worse_than_the_stale_one_is_not_published(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = {"stale": 1.0, "healed": 0.99}
    monkeypatch.setattr(reheal_module, "held", lambda _, draft: held[draft])
    assert states(tended(nightly())) == {"a.cmf": "kept back"}
    assert not (home / "models" / "a.healed.cmf").exists()
    held["healed"] = 1.0
    assert states(tended(nightly())) == {"a.cmf": "healed"}


def test_a_file_no_heal_wrote_is_not_overwritten(home: Path) -> None:
    other = home / "models" / "a.healed.cmf"
    shutil.copy(home / "models" / "a.cmf", other)
    before = other.read_bytes()
    (found,) = tended(nightly())
    assert found.state == "failed"
    assert "was not written by a heal" in found.why
    assert other.read_bytes() == before


def test_half_a_healed_file_is_made_again(home: Path) -> None:
    tended(nightly())
    healed = home / "models" / "a.healed.cmf"
    whole = healed.read_bytes()
    healed.write_bytes(whole[: len(whole) // 2])
    (found,) = tended(nightly())
    assert found.state == "healed"
    assert healed.read_bytes() == whole
    with open_weights(healed) as model:
        assert isinstance(model.header.provenance, dict)


def test_what_nobody_watches_is_said(home: Path) -> None:
    progress = SilentProgress()
    reheal_models(nightly(), Path("store"), progress, "/other/b.cmf")
    assert "no watch entry covers it" in progress.said[0]


def test_a_pattern_that_no_model_matches_is_said_beside_one_that_does(home: Path) -> None:
    both = nightly()
    other = both.watch[0].model_copy(update={"models": "modles/*.cmf"})
    progress = SilentProgress()
    reheal_models(NightlyConfig(watch=(*both.watch, other)), Path("store"), progress)
    told = [text for text in progress.said if "no model matches" in text]
    assert [text.split(" in /")[0] for text in told] == ["no model matches modles/*.cmf"]


class _Listener(BaseHTTPRequestHandler):
    told: list[Any] = []  # noqa: RUF012 — the handler is made anew for each request

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.told.append(json.loads(body))
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


def test_a_webhook_and_a_command_are_told_what_failed(tmp_path: Path) -> None:
    server = HTTPServer(("127.0.0.1", 0), _Listener)
    thread = threading.Thread(target=server.handle_request)
    thread.start()
    bad = Outcome(Path("b.cmf"), "failed", "it is broken", Path("b.healed.cmf"))
    good = replace(bad, model=Path("a.cmf"), state="up to date", why="")
    hook = {
        "webhook": f"http://127.0.0.1:{server.server_port}/heal",
        "command": ["sh", "-c", f"cat > '{tmp_path}/told'"],
    }
    raw = {"watch": nightly().model_dump()["watch"], "on_failure": hook}
    config = check(NightlyConfig, raw, "nightly")
    progress = SilentProgress()
    tell_failures(config.on_failure, [good], progress)
    assert not (tmp_path / "told").exists()
    tell_failures(config.on_failure, [good, bad], progress)
    thread.join()
    server.server_close()
    assert progress.said == []
    (told,) = _Listener.told
    assert told == json.loads((tmp_path / "told").read_text())
    assert told["failed"] == [{"model": "b.cmf", "what": "it is broken"}]


def test_a_hook_that_fails_is_said(tmp_path: Path) -> None:
    bad = Outcome(Path("b.cmf"), "failed", "broken", Path("o"))
    raw = {"watch": nightly().model_dump()["watch"], "on_failure": {"command": ["false"]}}
    progress = SilentProgress()
    tell_failures(check(NightlyConfig, raw, "nightly").on_failure, [bad], progress)
    assert "on_failure: false could not be told" in progress.said[0]


def test_the_command_ends_with_1_if_one_failed(home: Path) -> None:
    (home / "n.yaml").write_text(yaml.safe_dump(nightly().model_dump(mode="json")))
    line = ["reheal", "n.yaml", "--store", "store", "--json"]
    done = CliRunner().invoke(app, line)
    assert done.exit_code == 0, done.output
    (home / "models" / "b.cmf").write_bytes(b"CMF")
    done = CliRunner().invoke(app, line)
    assert done.exit_code == 1
    told = json.loads(done.stdout)["models"]
    assert [one["state"] for one in told] == ["up to date", "failed"]
