import resource
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from conf.errors import ConfigError
from conf.memory import free_host_memory, free_memory

MIB = 1 << 20
ROOMY = {"proc/meminfo": "MemTotal: 99 kB\nMemAvailable:   8388608 kB\n"}
GROUP_2 = "sys/fs/cgroup/jobs.slice"
GROUP_1 = "sys/fs/cgroup/memory/jobs"


def machine(root: Path, files: Mapping[str, str]) -> Path:
    for name, text in {**ROOMY, **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def version_2(folder: str, limit: str, used: int, inactive: int = 0) -> dict[str, str]:
    stat = f"anon 5\ninactive_file {inactive}\nactive_file {MIB}\n"
    return {
        f"{folder}/memory.max": f"{limit}\n",
        f"{folder}/memory.current": f"{used}\n",
        f"{folder}/memory.stat": stat,
    }


def test_without_limits_what_the_kernel_calls_available(tmp_path: Path) -> None:
    assert free_host_memory(machine(tmp_path, {})) == 8192 * MIB


@pytest.mark.parametrize(
    ("outer", "inner", "free"),
    [
        ("max", "max", 8192 * MIB),
        ("max", str(1000 * MIB), (1000 - 300 + 101) * MIB),  # 101 MiB are files
        (str(600 * MIB), str(1000 * MIB), (600 - 500 + 1) * MIB),
        (str(600 * MIB), "max", (600 - 500 + 1) * MIB),
        (str(10 * MIB), "max", 0),
    ],
    ids=["none", "own", "the one around it", "only around it", "overdrawn"],
)
def test_the_tightest_group_counts_less_what_it_can_drop(
    tmp_path: Path, outer: str, inner: str, free: int
) -> None:
    files = version_2(GROUP_2, outer, 500 * MIB)
    files |= version_2(f"{GROUP_2}/job.7", inner, 300 * MIB, inactive=100 * MIB)
    files |= {"proc/self/cgroup": "0::/jobs.slice/job.7\n"}
    assert free_host_memory(machine(tmp_path, files)) == free


def test_version_1_groups(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "5:cpu:/jobs\n4:hugetlb,memory:/jobs\n0::/\n",
        f"{GROUP_1}/memory.limit_in_bytes": f"{700 * MIB}\n",
        f"{GROUP_1}/memory.usage_in_bytes": f"{400 * MIB}\n",
        f"{GROUP_1}/memory.stat": f"cache 7\ntotal_inactive_file {50 * MIB}\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": "1\n",
    }
    assert free_host_memory(machine(tmp_path, files)) == 350 * MIB


def test_a_group_of_another_namespace_has_no_files(tmp_path: Path) -> None:
    files = {"proc/self/cgroup": "0::/../../elsewhere\n", **version_2("sys", "9", 1)}
    assert free_host_memory(machine(tmp_path, files)) == 8192 * MIB


def test_a_kernel_that_says_nothing_has_all_there_is(tmp_path: Path) -> None:
    root = machine(tmp_path, {"proc/meminfo": "MemFree: 5 kB\n"})
    total = Path("/proc/meminfo").read_text().split()[1]
    assert free_host_memory(root) == int(total) * 1024


def test_a_card_whose_driver_is_not_there_is_told_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(name: str) -> None:
        raise OSError(f"{name}: not found")

    monkeypatch.setattr("ctypes.CDLL", missing)
    with pytest.raises(ConfigError, match=r"runtime\.placement to resident.*not found"):
        free_memory("cuda")


LIMITED = f"""
import resource
from conf.memory import free_host_memory
resource.setrlimit(resource.RLIMIT_{{}}, ({2048 * MIB}, {2048 * MIB}))
held = bytearray({1024 * MIB})
print(free_host_memory())
"""


@pytest.mark.parametrize("limit", ["AS", "DATA"])
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says what it counts")
def test_ulimits_count(limit: str) -> None:
    assert resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY
    said = subprocess.check_output([sys.executable, "-c", LIMITED.format(limit)], text=True)
    # Half of it is held, and the interpreter takes some.
    assert 700 * MIB < int(said) <= 1024 * MIB
