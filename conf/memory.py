"""How much memory a process may still take, on this machine or on its card; no torch.

Of several limits the least counts: what is free, what the control groups (containers, job
schedulers) leave, what `ulimit` allows.
"""

import ctypes
import os
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from conf.errors import ConfigError
from conf.machine import Device

ROOT = Path("/")
UNKNOWN_CARD = (
    "the card's driver doesn't say how much of its memory is free; set runtime.placement "
    "to resident or stream"
)


@dataclass(frozen=True)
class _Group:
    """A control group: its folder, and the names its version of the interface has."""

    folder: Path
    limit: str
    used: str
    cached: tuple[str, ...]

    def free_bytes(self) -> int | None:
        """What the group may still take; None if it has no limit.

        Files it has read count as used, and are dropped when something needs the room.
        """
        limit = _number(self.folder / self.limit)
        used = _number(self.folder / self.used)
        if limit is None or used is None:
            return None
        stat = dict(_pairs(self.folder / "memory.stat"))
        cached = sum(stat.get(name, 0) for name in self.cached)
        return max(0, limit - max(0, used - cached))


def free_memory(device: Device = "cpu") -> int:
    """Bytes this process may still take on the device, without pushing anything out."""
    return free_host_memory() if device == "cpu" else free_card_memory()


def free_host_memory(root: Path = ROOT) -> int:
    """Bytes of this machine's memory this process may still take; `root` is for tests.

    Where the kernel doesn't say what is free, all the machine has.
    """
    available = dict(_pairs(root / "proc/meminfo")).get("MemAvailable:")
    if available is None:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    groups = [group.free_bytes() for group in _groups(root)]
    limits = [free for free in groups if free is not None]
    return min([available * 1024, *limits, *_under_ulimits(root)])


def free_card_memory() -> int:
    """Bytes free on the first CUDA card, asked of the driver; no context is made for it."""
    try:
        driver, manager = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libnvidia-ml.so.1")
    except OSError as error:
        raise ConfigError(f"{UNKNOWN_CARD} ({error})") from error
    card, bus, handle = ctypes.c_int(), ctypes.create_string_buffer(32), ctypes.c_void_p()
    total_free_used = (ctypes.c_ulonglong * 3)()
    # The two number the cards differently, so the card is found by its place on the bus.
    failed = (
        driver.cuInit(0)
        or driver.cuDeviceGet(ctypes.byref(card), 0)
        or driver.cuDeviceGetPCIBusId(bus, len(bus), card)
        or manager.nvmlInit_v2()
        or manager.nvmlDeviceGetHandleByPciBusId_v2(bus, ctypes.byref(handle))
        or manager.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(total_free_used))
    )
    if failed:
        raise ConfigError(f"{UNKNOWN_CARD} (code {failed})")
    return int(total_free_used[1])


def _groups(root: Path) -> Iterator[_Group]:
    """The memory groups this process is in, and those around them."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:  # version 2
            top = root / "sys/fs/cgroup"
            names = ("memory.max", "memory.current", ("inactive_file", "active_file"))
        elif "memory" in controllers.split(","):
            top = root / "sys/fs/cgroup/memory"
            cached = ("total_inactive_file", "total_active_file")
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", cached)
        else:
            continue
        own = top / path.lstrip("/")
        for folder in (own, *own.parents):
            yield _Group(folder, *names)
            if folder == top:
                break


def _under_ulimits(root: Path) -> Iterator[int]:
    """What RLIMIT_AS and RLIMIT_DATA leave of what each counts."""
    status = dict(_pairs(root / "proc/self/status"))
    for which, name in ((resource.RLIMIT_AS, "VmSize:"), (resource.RLIMIT_DATA, "VmData:")):
        limit, _ = resource.getrlimit(which)
        if limit != resource.RLIM_INFINITY:
            yield max(0, limit - status.get(name, 0) * 1024)


def _pairs(path: Path) -> Iterator[tuple[str, int]]:
    """The lines `name number …` of a file; none if it can't be read."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        words = line.split()
        if len(words) > 1 and words[1].isdigit():
            yield words[0], int(words[1])


def _number(path: Path) -> int | None:
    """The number a file holds; None for `max`, or where there is no such file."""
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
