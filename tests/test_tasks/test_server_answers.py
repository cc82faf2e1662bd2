"""Whether Prefect's server is there, asked before anything is shown on it."""

import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from prefect.settings import PREFECT_API_URL, temporary_settings

from tasks.stage_artifacts import server_answers


class Healthy(BaseHTTPRequestHandler):
    asked: tuple[str, ...] = ()

    def do_GET(self) -> None:
        Healthy.asked += (self.path,)
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_a_server_is_asked_for_its_health() -> None:
    with HTTPServer(("127.0.0.1", 0), Healthy) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/api"
        with temporary_settings({PREFECT_API_URL: url}):
            assert server_answers()
    assert Healthy.asked == ("/api/health",)


def test_a_server_that_is_away_is_not_waited_for() -> None:
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/api"
        with temporary_settings({PREFECT_API_URL: url}):
            assert not server_answers()


def test_without_an_address_the_client_finds_its_own() -> None:
    with temporary_settings(restore_defaults={PREFECT_API_URL}):
        assert server_answers()
