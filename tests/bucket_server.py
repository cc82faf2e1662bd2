"""An S3 server in this process, on a free loopback port, for tests of stores in buckets."""

import logging
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.request import Request, urlopen

import pytest


@contextmanager
def bucket_server() -> Iterator[str]:
    """The server's URL; it ends with the block. The AWS variables lead there meanwhile."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        lead_to(patch, f"http://{host}:{port}")
        try:
            yield f"http://{host}:{port}"
        finally:
            server.stop()


def lead_to(patch: pytest.MonkeyPatch, url: str) -> None:
    """Have clients that are opened from now on talk to that server."""
    for name, value in {
        "AWS_ENDPOINT_URL": url,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "AKIDONTTELL",
        "AWS_SECRET_ACCESS_KEY": "do-not-tell",
        "AWS_REGION": "us-east-1",
    }.items():
        patch.setenv(name, value)


def new_bucket(server: str) -> str:
    """`s3://NAME/heal` of a bucket made for one test."""
    name = f"test-{secrets.token_hex(6)}"
    urlopen(Request(f"{server}/{name}", method="PUT")).close()
    return f"s3://{name}/heal"
