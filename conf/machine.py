"""What this machine is: processor features, idle cores, cards; found without torch."""

import ctypes
import importlib.util
import os
import platform
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from conf.errors import ConfigError

Device = Literal["cpu", "cuda"]
ComputeType = Literal["bf16", "f32"]


@cache
def cpu_flags() -> frozenset[str]:
    """The kernel's names of the processor's features; empty where /proc is absent."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return frozenset()
    for line in text.splitlines():
        if line.startswith(("flags", "Features")):
            return frozenset(line.partition(":")[2].split())
    return frozenset()


@cache
def cuda_devices() -> int:
    """CUDA cards the driver offers, 0 without a driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0
    return count.value


def workers_here(wanted: int | None, device: Device) -> int:
    """How many workers a cluster of this machine has: as wanted, one a card, else two."""
    return wanted or (cuda_devices() if device == "cuda" else 2)


def card_names(count: int) -> list[str]:
    """What CUDA_VISIBLE_DEVICES must say for each of `count` processes to have one card.

    ConfigError if this process has fewer.
    """
    said = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = said.split(",") if said else [str(i) for i in range(cuda_devices())]
    if count > len(names):
        raise ConfigError(
            f"runtime.workers is {count}: {len(names)} cards are visible here, and each "
            "worker has one to itself; use as many workers as cards"
        )
    return names[:count]


def torch_knows_cuda() -> bool:
    """Whether the installed torch was built for CUDA; looked up, not imported."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return False
    return any((Path(spec.origin).parent / "lib").glob("*torch_cuda*"))


def resolve_device(wanted: Literal["auto", "cpu", "cuda"]) -> Device:
    """The device a run computes on; `auto` takes a card if driver and torch offer one."""
    has_card = wanted != "cpu" and cuda_devices() > 0 and torch_knows_cuda()
    if wanted == "cuda" and not has_card:
        raise ConfigError(
            f"runtime.device is cuda: the driver offers {cuda_devices()} cards and torch "
            f"was built {'with' if torch_knows_cuda() else 'without'} CUDA; use auto or cpu"
        )
    return "cuda" if has_card else "cpu"


def fast_in_bf16(device: Device) -> bool:
    """True where a bf16 matrix product is quicker than f32: cards, AMX, AVX-512 BF16."""
    return device == "cuda" or bool({"amx_bf16", "avx512_bf16"} & cpu_flags())


def resolve_dtype(wanted: Literal["auto", "bf16", "f32"], device: Device) -> ComputeType:
    """The compute type; `auto` is bf16 where that is fast, else f32."""
    if wanted == "auto":
        return "bf16" if fast_in_bf16(device) else "f32"
    return wanted


@dataclass(frozen=True)
class CoreWatch:
    """What others had used of this machine's cores when we began to look."""

    busy_s: float
    since: float

    @classmethod
    def begun(cls) -> "CoreWatch | None":
        """A watch from now on; None where /proc is absent."""
        try:
            fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
        except OSError:
            return None
        ticks = [int(field) for field in fields]
        all_s = (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")
        return cls(all_s - time.process_time(), time.monotonic())

    def idle_cores(self, watch_s: float = 0.2) -> int:
        """Cores that were idle since then, at least 1; looks for `watch_s` at least.

        Two threads on one busy core are many times slower than one: OpenMP's barriers wait
        for the thread that was put aside. So a core counts only if nobody else uses most of
        it. What this process used itself is left out.
        """
        time.sleep(max(0.0, self.since + watch_s - time.monotonic()))
        now, cores = CoreWatch.begun(), len(os.sched_getaffinity(0))
        if now is None:
            return cores
        busy = (now.busy_s - self.busy_s) / (now.since - self.since)
        return max(1, min(cores, round(cores - busy)))


# From the import on: a command has half a second of imports ahead in which to watch.
_watch = CoreWatch.begun()


def idle_cores() -> int:
    """Cores that nobody else used since this process began, at least 1."""
    return len(os.sched_getaffinity(0)) if _watch is None else _watch.idle_cores()


def compute_threads(wanted: int | Literal["auto"]) -> int:
    """The threads of a command here: the idle cores, or as many as wanted.

    ConfigError for more than this machine has processors.
    """
    if wanted == "auto":
        return idle_cores()
    most = os.cpu_count() or 1
    if wanted > most:
        raise ConfigError(
            f"runtime.threads is {wanted}: this machine has {most} processors, and threads "
            "beyond them only wait for each other; leave it out to take the idle ones"
        )
    return wanted


def has_compiler() -> bool:
    """Whether the C++ compiler that torch.compile calls is there: CXX, else g++."""
    return shutil.which(os.environ.get("CXX") or "g++") is not None


def keep_freed_memory() -> None:
    """Has glibc keep what this process frees, for the next array of its size.

    It gives arrays of megabytes back to the kernel otherwise, and every pass over a fresh
    one pays for its pages again: a tenth of a trunk pass. No other libc knows the call. For
    the start of a command; memory in use then never shrinks.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        trim_threshold, mmap_max = -1, -4  # as malloc.h numbers them
        mallopt(mmap_max, 0)
        mallopt(trim_threshold, 2**31 - 1)


def limit_threads(threads: int) -> None:
    """Holds every numeric library of this process to `threads`, loaded already or not.

    The libraries read these variables when they are first imported; torch, if it is there
    already, is told directly.
    """
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ[name] = str(threads)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(threads)


def host_threads() -> int:
    """The threads torch computes on in this process, as whoever runs it has set them."""
    torch = sys.modules.get("torch")
    return len(os.sched_getaffinity(0)) if torch is None else int(torch.get_num_threads())


def describe() -> str:
    """One line for manifests and reports: processor, cores, cards."""
    cards = cuda_devices()
    fast = sorted({"amx_bf16", "avx512_bf16"} & cpu_flags())
    parts = [f"{platform.machine()}, {os.cpu_count()} cores", *fast]
    if cards:
        parts.append(f"{cards} CUDA card{'s' if cards > 1 else ''}")
    return ", ".join(parts)


def this_machine() -> str:
    """`describe` behind the processor's own name; equal for machines of one make."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if "model name" in line)
    return ", ".join([*filter(None, [next(names, "")]), describe()])


def keep_prefect_in(folder: Path) -> None:
    """Has Prefect, not imported yet, take `folder` for its home where it has none so far.

    It makes one in the home folder otherwise, or warns where that cannot be written.
    """
    with suppress(RuntimeError):  # no home folder at all
        if (Path.home() / ".prefect").exists():
            return
    os.environ.setdefault("PREFECT_HOME", str(folder.absolute()))


def environment_store() -> str | None:
    """HEAL_STORE, if set and not empty."""
    return os.environ.get("HEAL_STORE") or None


def environment_inspector() -> str | None:
    """HEAL_INSPECTOR, where `heal ui` answers, if set and not empty."""
    return os.environ.get("HEAL_INSPECTOR", "").rstrip("/") or None


@contextmanager
def without_ray_telemetry() -> Iterator[None]:
    """While this lasts a ray that is started here counts and reports nothing."""
    name = "RAY_USAGE_STATS_ENABLED"
    before = os.environ.get(name)
    os.environ[name] = "0"
    try:
        yield
    finally:
        os.environ.pop(name)
        if before is not None:
            os.environ[name] = before
