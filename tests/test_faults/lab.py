"""A finished heal to harm, and processes to harm it with."""

import json
import multiprocessing
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml

from store.store import Store
from tests.small_heal import Ground
from tests.test_faults.faults import Fault, fill_disk, run_command, wait_for

TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Run:
    """A process that was started; `folder` holds what it says."""

    process: BaseProcess
    folder: Path

    @property
    def said(self) -> str:
        path = self.folder / "said"
        return path.read_text() if path.exists() else ""

    def code(self) -> int:
        """Its exit code once it has ended; negative for a signal."""
        self.process.join(TIMEOUT_S)
        assert self.process.exitcode is not None, f"it hangs; it said:\n{self.said}"
        return self.process.exitcode

    def says(self, text: str) -> float:
        """When it has said `text`."""
        deadline = time.monotonic() + TIMEOUT_S
        while text not in self.said:
            assert time.monotonic() < deadline, f"not said: {text}; but:\n{self.said}"
            assert self.process.is_alive() or text in self.said, self.said
            time.sleep(0.002)
        return time.monotonic()

    def send(self, number: int) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    @property
    def error(self) -> str:
        """The one line it complained with; there must be no other and no traceback."""
        assert "Traceback" not in self.said, self.said
        (line,) = (text for text in self.said.splitlines() if text.startswith("error: "))
        return line

    @property
    def told(self) -> dict[str, Any]:
        """The JSON object it ended with; it must have ended well."""
        assert self.code() == 0, self.said
        told: dict[str, Any] = json.loads((self.folder / "out").read_text())
        return told

    def states(self, stage: str) -> list[str]:
        """How the run came by each artifact of a stage."""
        return [one["state"] for one in self.told["stages"] if one["name"] == stage]


@cache
def _processes() -> multiprocessing.context.ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.test_faults.preload"])
    return context


@dataclass(frozen=True)
class Lab:
    """A store of one test, with the config whose heal it holds or is to hold."""

    root: Path
    config: Path
    store: Path

    @property
    def out(self) -> Path:
        """Where the config publishes its model."""
        return self.root / "out" / "healed.cmf"

    def start(
        self,
        fault: Fault | None = None,
        arguments: tuple[str, ...] | None = None,
        program: Literal["heal", "cmf"] = "heal",
    ) -> Run:
        """Start a process: `heal run` of the config unless other arguments are given."""
        folder = self.root / f"run-{len(list(self.root.glob('run-*')))}"
        folder.mkdir(parents=True)
        given = arguments or ("run", str(self.config), *self.options, "--json")
        process = _processes().Process(
            target=run_command, args=(program, given, folder, fault)
        )
        process.start()
        return Run(process, folder)

    @property
    def options(self) -> tuple[str, ...]:
        """This store, and an output of this test's own."""
        outputs = f"outputs=[{{codec: keep, path: '{self.out}'}}]"
        return "--store", str(self.store), "--set", outputs

    def finish(self) -> Run:
        """Run the config to its end."""
        run = self.start()
        assert run.code() == 0, run.said
        return run

    def drop(self, stage: str) -> None:
        """Forget all that a stage made."""
        shutil.rmtree(self.store / stage)

    def contents(self) -> dict[str, str]:
        """What each finished artifact holds, all sound; no reports, which tell times."""
        store = Store(self.store)
        found = [a for a in store.artifacts() if a.stage != "report"]
        assert [p for a in found for p in store.deep_check(a)] == []
        return {artifact.name: artifact.content_digest for artifact in found}


def make_lab(ground: Ground, root: Path) -> Lab:
    """A lab whose store is empty."""
    config = root / "small.yaml"
    raw = ground.config(trunk={"shard_windows": 16})
    config.write_text(yaml.safe_dump(raw))
    return Lab(root, config, root / "store")


@contextmanager
def small_disk(folder: Path, size: str = "24m") -> Iterator[Path]:
    """A disk of its own at `folder`; skips where mounting is not permitted."""
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("mounting a small disk needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


__all__ = ["Fault", "Lab", "Run", "fill_disk", "make_lab", "small_disk", "wait_for"]
