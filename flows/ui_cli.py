"""`heal ui`: the inspector of a store, served to this machine alone unless told else."""

import ipaddress
import socket
from contextlib import closing, suppress
from pathlib import Path
from typing import Annotated

import typer

from flows.command import StoreOption, guarded, say, tell
from tasks.errors import InputError
from tasks.interrupt import Stopped

PORT = 4280
LOCAL_NAMES = ("127.0.0.1", "localhost", "[::1]")


def ui(
    store: StoreOption = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")
    ] = PORT,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    *,
    is_shared: Annotated[
        bool,
        typer.Option(
            "--share", help="Allow a --host that others can reach; there is no password."
        ),
    ] = False,
) -> None:
    """Serves the inspector: pages of every heal and stage in a store, read-only."""
    guarded(lambda: _serve(store, host, port, is_shared=is_shared))


def _serve(option: Path | None, host: str, port: int, *, is_shared: bool) -> int:
    is_local = is_loopback(host)
    if not is_local and not is_shared:
        raise InputError(
            f"--host {host} lets others on the network read this store, and there is no "
            "password; add --share if that is meant, or leave --host out"
        )
    import uvicorn

    from flows.runtime import asked_store
    from ui.inspector.app import create_app

    root = asked_store(option)
    listening = _listen(host, port)
    with closing(listening):
        address, bound = listening.getsockname()[:2]
        shown = f"[{address}]" if ":" in address else address
        tell(f"http://{shown}:{bound}")
        say(f"the inspector of {root}; Ctrl-C ends it")
        app = create_app(root, hosts=LOCAL_NAMES if is_local else ("*",))
        config = uvicorn.Config(app, log_level="warning", lifespan="off", ws="none")
        with suppress(KeyboardInterrupt, Stopped):  # how it is meant to end
            uvicorn.Server(config).run(sockets=[listening])
    return 0


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _listen(host: str, port: int) -> socket.socket:
    """A bound socket; InputError if the port is taken or the address is not here."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen()
    except OSError as error:
        listening.close()
        raise InputError(
            f"cannot listen on {host}, port {port}: {error.strerror or error}; choose "
            "another with --port (0 takes a free one)"
        ) from error
    return listening
