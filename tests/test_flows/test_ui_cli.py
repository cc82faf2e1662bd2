"""`heal ui`: who may listen where, and that it serves and ends."""

import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from flows.ui_cli import is_loopback


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.0.7", False),
        ("localhost.example", False),
    ],
)
def test_only_this_machines_own_addresses_are_loopback(
    host: str, *, expected: bool
) -> None:
    assert is_loopback(host) is expected


def start(*arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", "from flows.cli import main; main()", "ui", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_another_host_is_refused_unless_shared(tmp_path: Path) -> None:
    process = start("--store", str(tmp_path), "--host", "0.0.0.0")
    _, said = process.communicate(timeout=30)
    assert process.returncode == 2
    assert "add --share if that is meant" in said


def test_a_taken_port_is_said_so(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = start("--store", str(tmp_path), "--port", str(port))
        _, said = process.communicate(timeout=30)
    assert process.returncode == 2
    assert f"port {port}" in said


def test_it_serves_and_ends_quietly(tmp_path: Path) -> None:
    process = start("--store", str(tmp_path), "--port", "0")
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", address)
    for _ in range(100):
        try:
            page = urllib.request.urlopen(address, timeout=10).read().decode()
            break
        except OSError:
            time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert "heal demo" in page
    assert process.returncode == 0
    assert "Traceback" not in said
