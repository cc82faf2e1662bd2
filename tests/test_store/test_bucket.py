"""Objects of a bucket, what its server may refuse, and leases there."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from store import bucket as bucket_module
from store.bucket import Bucket
from store.bucket_locks import BucketBoard
from store.errors import BucketError, LeaseLost, NotAStore
from store.leases import LeaseTimes, Watch, hold_lease, latest
from tests.bucket_server import bucket_server, lead_to, new_bucket

QUICK = LeaseTimes(beat_s=0.05, still_s=0.3, look_s=0.01)
REFUSAL = (
    b"<Error><Code>AccessDenied</Code><AWSAccessKeyId>AKIDONTTELL</AWSAccessKeyId></Error>"
)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with bucket_server() as url:
        yield url


@pytest.fixture
def bucket(server: str) -> Bucket:
    return Bucket.of(new_bucket(server))


@pytest.mark.parametrize(
    ("url", "name", "prefix"),
    [
        ("s3://heals", "heals", ""),
        ("s3://heals/", "heals", ""),
        ("s3://heals/a/b/", "heals", "a/b"),
        ("s3:/heals/a", "heals", "a"),  # as a Path spells it
    ],
)
def test_what_a_url_names(url: str, name: str, prefix: str) -> None:
    assert Bucket.of(url) == Bucket(name, prefix)


@pytest.mark.parametrize(
    "url", ["s3://", "s3://B", "gs://heals", "s3://heals/../x", "s3://heals/a//b", "/heals"]
)
def test_what_is_no_bucket_is_refused(url: str) -> None:
    with pytest.raises(NotAStore, match="write s3://bucket"):
        Bucket.of(url)


def test_objects_come_and_go(bucket: Bucket, tmp_path: Path) -> None:
    assert bucket.get("a/one") is None
    assert bucket.create("a/one", b"1")
    assert not bucket.create("a/one", b"2")
    assert bucket.get("a/one") == b"1"
    bucket.put("a/b/two", b"22")
    bucket.put("ab", b"3")  # beside the folder, not in it
    assert {name: one.size for name, one in bucket.listing("a").items()} == {
        "one": 1,
        "b/two": 2,
    }
    digest = "785f3ec7eb32f30b90cd0fcf3657d388b5ff4297f2f9716ff66e9b69c05ddd09"  # of b"22"
    assert bucket.fetch("a/b/two", tmp_path / "x" / "two") == digest
    assert bucket.sha256("a/b/two") == digest
    assert (tmp_path / "x" / "two").read_bytes() == b"22"
    bucket.remove(["a/one", "a/never"])
    assert [*bucket.listing("a")] == ["b/two"]
    assert bucket.fetch("a/one", tmp_path / "one") is None
    assert not (tmp_path / "one").exists()


def test_a_large_file_goes_in_parts(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_module, "PART_BYTES", 5 << 20)
    (tmp_path / "big").write_bytes(bytes(range(256)) * (11 << 12))  # 11 MiB: three parts
    sent = bucket.put("big", tmp_path / "big")
    assert sent.e_tag.endswith('-3"')
    assert bucket.listing("")["big"] == sent
    assert bucket.fetch("big", tmp_path / "back") is not None
    assert (tmp_path / "back").read_bytes() == (tmp_path / "big").read_bytes()


@pytest.mark.parametrize("act", ["get", "put", "create", "listing", "sha256"])
def test_a_bucket_that_is_missing(server: str, act: str) -> None:
    nowhere = Bucket("nowhere-at-all", "")
    args = ("x", b"x") if act in {"put", "create"} else ("x",)
    with pytest.raises(BucketError, match="there is no bucket nowhere-at-all; make it"):
        getattr(nowhere, act)(*args)


class Refusing(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(403)
        self.send_header("Content-Length", str(len(REFUSAL)))
        self.end_headers()
        self.wfile.write(REFUSAL)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing to tell."""


def test_a_refusal_is_told_without_what_the_server_repeats(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with HTTPServer(("127.0.0.1", 0), Refusing) as refusing:
        threading.Thread(target=refusing.serve_forever, daemon=True).start()
        lead_to(monkeypatch, f"http://127.0.0.1:{refusing.server_port}")
        with pytest.raises(
            BucketError, match=r"denied \(AccessDenied\); check AWS"
        ) as told:
            Bucket("refused", "").get("x")
        refusing.shutdown()
    assert "AKIDONTTELL" not in str(told.value)
    assert told.value.__cause__ is None


def test_a_server_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_module, "RETRIES", 0)
    lead_to(monkeypatch, "http://127.0.0.1:1")
    with pytest.raises(BucketError, match="does not answer; check AWS_ENDPOINT_URL"):
        Bucket("away", "").get("x")


def test_a_lease_there_is_taken_over_from_the_dead_who_notices(bucket: Bucket) -> None:
    board = BucketBoard(bucket)
    assert board.agreed(QUICK) == QUICK
    assert board.agreed(LeaseTimes()) == QUICK
    with hold_lease(board, "make/1", Watch(LeaseTimes(beat_s=1000))) as slept:
        assert board.names() == ["make/1"]
        with hold_lease(board, "make/1", Watch(QUICK)) as awake:
            awake.confirm()
            with pytest.raises(LeaseLost):
                slept.confirm()
            awake.confirm()
    last = latest(board, "make/1")
    assert last is not None
    assert (last.number, last.is_held) == (4, False)


def test_a_server_without_conditional_writes_is_refused(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Bucket, "create", lambda *_: True)
    with pytest.raises(BucketError, match="ignores conditional writes"):
        BucketBoard(bucket).agreed(QUICK)
