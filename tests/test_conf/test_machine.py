import subprocess
import sys

import pytest

from conf.errors import ConfigError
from conf.machine import CoreWatch, Device, compute_threads, resolve_device


@pytest.mark.parametrize(
    ("cards", "built_for_cuda", "device"),
    [(0, True, "cpu"), (1, False, "cpu"), (1, True, "cuda")],
)
def test_a_card_is_taken_only_if_torch_can_use_it(
    monkeypatch: pytest.MonkeyPatch, cards: int, *, built_for_cuda: bool, device: Device
) -> None:
    monkeypatch.setattr("conf.machine.cuda_devices", lambda: cards)
    monkeypatch.setattr("conf.machine.torch_knows_cuda", lambda: built_for_cuda)
    assert resolve_device("auto") == device
    assert resolve_device("cpu") == "cpu"
    if device == "cpu":
        with pytest.raises(ConfigError, match=r"runtime\.device is cuda"):
            resolve_device("cuda")
    else:
        assert resolve_device("cuda") == "cuda"


@pytest.mark.parametrize(
    ("busy_s", "idle"),
    [(0.0, 4), (0.8, 4), (1.2, 3), (5.2, 1), (9.0, 1)],
    ids=["quiet", "0.4 cores", "0.6 cores", "2.6 cores", "more than there are"],
)
def test_cores_that_others_used_are_not_idle(
    monkeypatch: pytest.MonkeyPatch, busy_s: float, idle: int
) -> None:
    begun, now = CoreWatch(busy_s=100.0, since=-2.0), CoreWatch(100.0 + busy_s, since=0.0)
    monkeypatch.setattr(CoreWatch, "begun", lambda: now)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2, 3})
    assert begun.idle_cores() == idle


FAULTS = """
import resource
from conf.machine import keep_freed_memory
{first}
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    bytes(bytearray(32 << 20))
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(faults())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="mallopt is glibc's")
def test_more_threads_than_processors_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    assert compute_threads(8) == 8
    with pytest.raises(ConfigError, match=r"runtime\.threads is 9: .* has 8 processors"):
        compute_threads(9)


def test_freed_memory_is_used_again() -> None:
    fresh, kept = (
        int(subprocess.check_output([sys.executable, "-c", FAULTS.format(first=first)]))
        for first in ("", "keep_freed_memory()")
    )
    assert kept < fresh / 10, (fresh, kept)
