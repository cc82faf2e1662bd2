"""A real browser at a real server over a store made by real runs."""

import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import uvicorn
from playwright.sync_api import Browser, Page, Request, sync_playwright

from ui.inspector.app import create_app

if TYPE_CHECKING:
    from tests.inspected import Inspected
    from tests.small_heal import Ground


@pytest.fixture(scope="session")
def seen(
    finished: "Ground", tmp_path_factory: pytest.TempPathFactory
) -> Iterator["Inspected"]:
    from tests.inspected import inspected

    folder = tmp_path_factory.mktemp("browser")
    ground = replace(finished, store=shutil.copytree(finished.store, folder / "store"))
    with inspected(ground, folder) as made:
        yield made


@pytest.fixture(scope="session")
def served(seen: "Inspected") -> Iterator[str]:
    """The inspector's address."""
    with serving(seen.root) as address:
        yield address


@contextmanager
def serving(root: Path) -> Iterator[str]:
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        create_app(root), log_level="warning", lifespan="off", ws="none"
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = shutil.which("chromium")
    if path is None:
        pytest.fail("chromium is not on PATH: apt-get install chromium")
    with sync_playwright() as playwright:
        # Containers have no user namespaces; what is opened here is our own.
        opened = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield opened
        opened.close()


class Watched:
    """A page, and all that went wrong on it."""

    def __init__(self, page: Page, served: str) -> None:
        self.page, self.served = page, served
        self.complaints: list[str] = []
        self.elsewhere: list[str] = []
        page.on("console", lambda said: self.complaints.append(said.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", self._requested)

    def _requested(self, request: Request) -> None:
        if not request.url.startswith(self.served):
            self.elsewhere.append(request.url)

    def open(self, path: str) -> Page:
        answer = self.page.goto(self.served + path)
        assert answer is not None
        assert answer.ok, (path, answer.status)
        return self.page


@pytest.fixture
def watched(browser: Browser, served: str) -> Iterator[Watched]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    yield Watched(context.new_page(), served)
    context.close()
