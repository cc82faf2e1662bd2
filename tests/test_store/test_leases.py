"""The lease itself: who holds it, when it counts as dead, who notices."""

import threading
from pathlib import Path

import pytest

from store.errors import ArtifactError, LeaseLost
from store.lease_folder import MARK, FolderBoard
from store.leases import Entry, LeaseTimes, Said, Watch, hold_lease, latest
from store.store import Store
from store.using import in_use
from tests.programs import most_inside

QUICK = LeaseTimes(beat_s=0.02, still_s=0.2, look_s=0.005)
KEY = "0" * 32
NAME = f"make/{KEY}"


@pytest.fixture
def board(tmp_path: Path) -> FolderBoard:
    return FolderBoard(tmp_path / "locks")


def left_by_the_dead(board: FolderBoard, number: int = 1, **said: object) -> None:
    dead = Said(token="dead", host="h", pid=1, boot="b")
    data = dead.model_copy(update=said).model_dump_json().encode()
    assert board.create(NAME, number, data)


def number_now(board: FolderBoard) -> int:
    entry = latest(board, NAME)
    assert entry is not None
    return entry.number


def test_threads_take_turns(board: FolderBoard) -> None:
    assert most_inside(lambda: hold_lease(board, NAME, Watch(QUICK)), 10) == 1
    assert number_now(board) == 40
    assert board.numbers(NAME) == [40]


def test_a_holder_that_beats_is_alive_however_long_it_takes(board: FolderBoard) -> None:
    watch, waits = Watch(QUICK), threading.Event()
    entered: list[int] = []

    def wait() -> None:
        with hold_lease(board, NAME, watch, waits.set):
            entered.append(1)

    waiter = threading.Thread(target=wait)
    with hold_lease(board, NAME, Watch(QUICK)):
        waiter.start()
        assert waits.wait(5)
        waiter.join(3 * QUICK.still_s)
        assert entered == []
    waiter.join(5)
    assert entered == [1]


def test_only_standing_still_under_ones_own_eyes_is_death() -> None:
    now = [1000.0]
    watch = Watch(LeaseTimes(still_s=60), clock=lambda: now[0])
    at = [Entry(1, Said(token="t", host="h", pid=1, boot="b", beats=n)) for n in range(2)]
    assert not watch.is_dead(NAME, at[0])  # however old it may be: it was just seen first
    now[0] += 59
    assert not watch.is_dead(NAME, at[1])  # one beat, and the time begins anew
    now[0] += 59
    assert not watch.is_dead(NAME, at[1])
    now[0] += 1
    assert watch.is_dead(NAME, at[1])


def test_one_that_was_taken_over_finds_out_before_it_publishes(board: FolderBoard) -> None:
    with hold_lease(board, NAME, Watch(LeaseTimes(beat_s=1000))) as slept:
        with hold_lease(board, NAME, Watch(QUICK)) as awake:
            awake.confirm()  # takes number 3, so that number 2 is free again
            assert board.numbers(NAME) == [3]
            with pytest.raises(LeaseLost, match="taken over by another run"):
                slept.confirm()
            awake.confirm()
        assert slept.is_lost
    # What the first says on its way out reaches nobody.
    entry = latest(board, NAME)
    assert entry is not None
    assert (entry.number, entry.is_held) == (4, False)


def test_the_heart_itself_notices(board: FolderBoard) -> None:
    with hold_lease(board, NAME, Watch(QUICK)) as lease:
        left_by_the_dead(board, number=2)
        for _ in range(500):
            if lease.is_lost:
                break
            threading.Event().wait(0.01)
        assert lease.is_lost


def test_a_word_that_was_cut_short_is_a_holder_that_never_moves(board: FolderBoard) -> None:
    assert board.create(NAME, 1, b'{"token": "x')
    with hold_lease(board, NAME, Watch(QUICK)):
        assert number_now(board) == 2


def test_a_number_is_made_once(board: FolderBoard) -> None:
    assert board.create(NAME, 1, b"one")
    assert not board.create(NAME, 1, b"two")
    assert board.read(NAME, 1) == b"one"
    assert board.read(NAME, 2) is None


def test_a_file_system_without_links_is_refused(
    board: FolderBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("store.lease_folder.os.link", refuse)
    with pytest.raises(ArtifactError, match=r"set runtime\.locks: flock"):
        board.create(NAME, 1, b"one")


def shared(root: Path) -> Store:
    return Store(root, leases=QUICK)


def test_who_opens_a_shared_store_later_uses_its_leases(tmp_path: Path) -> None:
    with shared(tmp_path).hold("make", KEY):
        other, waits = Store(tmp_path), list[int]()

        def refuse() -> None:
            waits.append(1)
            raise InterruptedError

        with pytest.raises(InterruptedError), other.hold("make", KEY, refuse):
            pass
        assert waits == [1]


def test_a_mark_that_cannot_be_read_locks_nothing(tmp_path: Path) -> None:
    (tmp_path / "locks").mkdir()
    (tmp_path / "locks" / MARK).write_text("{")
    with pytest.raises(ArtifactError, match="how this store is locked"):
        Store(tmp_path).hold("make", KEY).__enter__()


@pytest.mark.parametrize("waits", [False, True])
def test_what_a_lease_says_it_reads_is_in_use(tmp_path: Path, *, waits: bool) -> None:
    read = f"read/{'1' * 32}"
    with shared(tmp_path).hold("make", KEY) as hold:
        hold.announce([read])
        assert in_use(shared(tmp_path), waits=waits) == {NAME, read}
    assert in_use(shared(tmp_path), waits=waits) == set()


def test_what_the_dead_read_is_in_use_until_it_is_known(tmp_path: Path) -> None:
    store = shared(tmp_path)
    left_by_the_dead(FolderBoard(tmp_path / "locks"))
    with store.locks.gate(alone=True):  # marks the store, and is held itself
        assert in_use(store) == {NAME}
        assert in_use(store, waits=True) == set()
        assert in_use(store) == set()
