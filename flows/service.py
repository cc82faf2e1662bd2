"""A process that outlives the command that started it, known by a file in its home."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from conf.service import Site
from store.atomic import write_whole
from tasks.count import duration
from tasks.errors import InputError

ASK_S = 180.0
STILL_EVERY_S = 5.0
TAIL_LINES = 20

Say = Callable[[str], None]


class Service:
    """The server or the worker of a site, running or not."""

    def __init__(self, site: Site, name: str) -> None:
        self.site, self.name = site, name
        self._book = site.books / f"{name}.json"

    @property
    def log(self) -> Path:
        """What it says."""
        return self.site.books / f"{self.name}.log"

    @property
    def pid(self) -> int | None:
        """Its process, if that still is the one that was started."""
        said = self._said()
        pid = said.get("pid")
        if not isinstance(pid, int) or said.get("born") != born(pid):
            return None
        return pid

    @property
    def is_running(self) -> bool:
        """Whether a process of it was found."""
        return self.pid is not None

    @property
    def about(self) -> str:
        """What was written down at its start, as the server's address."""
        return str(self._said().get("about", ""))

    def _said(self) -> dict[str, object]:
        try:
            said = json.loads(self._book.read_bytes())
        except (OSError, ValueError):
            return {}
        return said if isinstance(said, dict) else {}

    def start(self, command: list[str], about: str = "") -> None:
        """Start `prefect` with a command in a session of its own, from the site's home."""
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "prefect", *command],
                cwd=self.site.home,
                env=self.site.environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        said = {"pid": process.pid, "born": born(process.pid), "about": about}
        write_whole(self._book, json.dumps(said).encode())

    def stop(self, patience_s: float, say: Say) -> None:
        """Ask it to end, once more after half that time, and end it after the whole."""
        pid = self.pid
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
            if pid is not None and self.pid == pid:
                _signal(pid, number)
                self.wait(lambda: not self.is_running, patience_s / 2, "end", say)
        self._book.unlink(missing_ok=True)

    def wait(self, until: Callable[[], bool], most_s: float, to: str, say: Say) -> bool:
        """Whether it came to that in time and while it ran; says what is waited for."""
        began, due = time.monotonic(), STILL_EVERY_S
        while not until():
            waited = time.monotonic() - began
            if waited > most_s or not self.is_running:
                return False
            if waited >= due:
                due += STILL_EVERY_S
                say(f"{self.name}: waiting for it to {to}, {duration(waited)}")
            time.sleep(0.1)
        return True

    def tail(self) -> str:
        """The last lines of its log."""
        try:
            lines = self.log.read_text(errors="replace").splitlines()
        except OSError:
            return ""
        return "\n".join(lines[-TAIL_LINES:])

    def ask(self, *command: str) -> str:
        """Run a `prefect` command against the site; its words. InputError if it fails."""
        done = subprocess.run(
            [sys.executable, "-m", "prefect", *command],
            cwd=self.site.home,
            env=self.site.environment(),
            capture_output=True,
            text=True,
            timeout=ASK_S,
            check=False,
        )
        said = f"{done.stdout}\n{done.stderr}".strip()
        if done.returncode:
            raise InputError(f"prefect {' '.join(command)} failed:", said)
        return said


def born(pid: int) -> str | None:
    """When a process was started, as text no later one repeats; None if it ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None if Path("/proc/self").exists() else _born_elsewhere(pid)
    return None if fields[0] == "Z" else fields[19]


def _born_elsewhere(pid: int) -> str | None:
    """The same where there is no /proc: `ps` knows."""
    command = ["ps", "-o", "lstart=", "-p", str(pid)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
