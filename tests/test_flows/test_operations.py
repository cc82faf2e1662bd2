"""What `heal up` deploys and refuses, and how it knows its own processes."""

import json
import os
import signal
import socket
import subprocess
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import yaml

from conf.errors import ConfigError
from conf.load import load_config
from conf.nightly import NightlyConfig
from conf.schema import RunConfig
from conf.service import Site
from flows import operations_api
from flows.operations import deployments_file, deployments_in, refuse_taken_port, stop
from flows.service import Service, born
from tasks.errors import InputError

SHIPPED = Path(__file__).parents[2] / "prefect.yaml"


@pytest.fixture
def site(tmp_path: Path) -> Site:
    (tmp_path / ".services").mkdir()
    return Site(tmp_path, tmp_path / ".heal")


def test_what_is_deployed_exists_and_its_configuration_loads(site: Site) -> None:
    import flows.deployed

    assert deployments_file(site) == SHIPPED
    found = deployments_in(SHIPPED)
    assert [one.text for one in found] == ["heal/qwen14b", "heal/smollm2", "reheal/nightly"]
    for raw in yaml.safe_load(SHIPPED.read_text())["deployments"]:
        module, _, name = raw["entrypoint"].partition(":")
        assert getattr(flows.deployed, name).name == name
        assert module == "flows.deployed"
        model = RunConfig if name == "heal" else NightlyConfig
        given = raw["parameters"]
        load_config(model, given["conf"], given.get("overrides", []))
        assert raw["concurrency_limit"] == {"limit": 1, "collision_strategy": "ENQUEUE"}


def test_the_homes_own_file_comes_first_and_must_be_one(site: Site) -> None:
    own = site.home / "prefect.yaml"
    own.write_text("deployments: [{name: x}]")
    assert deployments_file(site) == own
    with pytest.raises(ConfigError, match="no list of deployments"):
        deployments_in(own)


def test_a_deployment_that_gives_a_key_twice_is_refused(site: Site) -> None:
    own = site.home / "prefect.yaml"
    own.write_text("deployments:\n- name: x\n  entrypoint: a:b\n  name: y\n")
    with pytest.raises(ConfigError) as caught:
        deployments_in(own)
    assert str(caught.value) == (
        f"{own}: name is given on line 2 and again on line 4; keep one of them"
    )
    own.write_bytes(b"deployments: [\xff]")
    with pytest.raises(ConfigError, match="no list of deployments"):
        deployments_in(own)


def test_a_port_of_another_program_is_refused(site: Site) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = replace(site, port=other.getsockname()[1])
        with pytest.raises(InputError, match="choose another with --port"):
            refuse_taken_port(taken)


def test_a_process_is_known_by_more_than_its_number(site: Site) -> None:
    process = subprocess.Popen(["sleep", "60"])
    service = Service(site, "server")
    book = site.books / "server.json"
    said = {"pid": process.pid, "born": born(process.pid), "about": "x"}
    book.write_text(json.dumps(said))
    assert service.is_running
    book.write_text(json.dumps(said | {"born": "1"}))  # the number, used again
    assert Service(site, "server").pid is None
    service.stop(1.0, print)
    assert process.poll() is None
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert born(process.pid) is None


def test_who_waits_for_a_service_is_told_what_for(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.service.STILL_EVERY_S", 0.05)
    said: list[str] = []
    server = Service(site, "server")
    with subprocess.Popen(["sleep", "60"]) as process:
        book = {"pid": process.pid, "born": born(process.pid)}
        (site.books / "server.json").write_text(json.dumps(book))
        assert not server.wait(lambda: False, 0.3, "answer", said.append)
        assert set(said) == {"server: waiting for it to answer, 0 s"}
        process.kill()
    said.clear()
    assert not server.wait(lambda: False, 60, "answer", said.append)  # it ended
    assert server.wait(lambda: True, 0.3, "answer", said.append)
    assert said == []


def test_nothing_calls_out_and_everything_stays_in_the_home(site: Site) -> None:
    told = site.environment()
    assert told["PREFECT_HOME"] == str(site.home / ".prefect")
    assert told["PREFECT_API_URL"] == "http://127.0.0.1:4200/api"
    assert told["PREFECT_SERVER_ANALYTICS_ENABLED"] == "false"
    assert told["PREFECT_SERVER_UI_V2_ENABLED"] == "false"
    assert told["DO_NOT_TRACK"] == "1"


class _Busy(BaseHTTPRequestHandler):
    answers: list[int] = []  # noqa: RUF012 — the handler is made anew for each request

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(self.answers.pop(0))
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


def test_a_server_whose_database_is_locked_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(operations_api, "PAUSE_S", 0.0)
    with HTTPServer(("127.0.0.1", 0), _Busy) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        api = operations_api.Api(f"http://127.0.0.1:{server.server_port}")
        try:
            _Busy.answers = [503, 503, 204]
            api.announce(Path("a.cmf"))
            assert _Busy.answers == []
            _Busy.answers = [500, 204]
            with pytest.raises(InputError, match="no server took the event"):
                api.announce(Path("a.cmf"))
        finally:
            server.shutdown()
            thread.join()


def test_down_with_nothing_up_says_so(site: Site) -> None:
    said: list[str] = []
    stop(site, said.append)
    assert said == ["worker: was not running", "server: was not running"]
