"""What each setting of `runtime:` becomes, and which of several named stores is meant."""

from collections.abc import Callable
from pathlib import Path

import pytest

from conf.machine import host_threads
from conf.runner import Runner
from conf.schema import RuntimeConfig
from flows.runtime import asked_store, library_runtime, runner_of, store_root
from store.lease_folder import marked_times
from tasks.runtime import Runtime
from tasks.slots import Slots


def runtime_of(store: Path, **settings: object) -> Runtime:
    config = RuntimeConfig.model_validate({"device": "cpu", **settings})
    return library_runtime(config, store, lambda _: None)


@pytest.mark.parametrize(
    ("settings", "read", "wanted"),
    [
        ({}, lambda made: made.head_budget_bytes, 268_435_456),
        ({"head_budget_mib": 3}, lambda made: made.head_budget_bytes, 3_145_728),
        ({}, lambda made: made.slots, None),
        ({"gpu_limit": "cards"}, lambda made: made.slots, Slots("cards")),
        ({}, lambda made: made.placement, "auto"),
        ({"placement": "stream"}, lambda made: made.placement, "stream"),
        ({}, lambda made: made.cards, 1),
        ({"cards": 2}, lambda made: made.cards, 2),
        ({}, lambda made: made.runner, Runner()),
        ({"threads": 7}, lambda made: made.threads, host_threads()),  # the host's own
    ],
)
def test_a_setting_reaches_the_stages(
    tmp_path: Path,
    settings: dict[str, object],
    read: Callable[[Runtime], object],
    wanted: object,
) -> None:
    assert read(runtime_of(tmp_path, **settings)) == wanted


def test_leases_mark_the_store_for_everyone(tmp_path: Path) -> None:
    runtime_of(tmp_path / "own")
    runtime_of(tmp_path / "shared", locks="lease")
    assert marked_times(tmp_path / "own" / "locks") is None
    assert marked_times(tmp_path / "shared" / "locks") is not None


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        # Seven threads among workers started here; those of a cluster as asked for.
        ({"workers": 3}, Runner("dask", 3, None, 2)),
        ({"workers": 9}, Runner("dask", 9, None, 1)),
        ({"cluster": "tcp://h:8786"}, Runner("dask", None, "tcp://h:8786", None)),
        (
            {"cluster": "tcp://h:8786", "threads": 5},
            Runner("dask", None, "tcp://h:8786", 5),
        ),
    ],
)
def test_workers_share_this_run_s_threads(
    settings: dict[str, object], wanted: Runner
) -> None:
    given = {"device": "cpu", "runner": "dask", **settings}
    assert runner_of(RuntimeConfig.model_validate(given), 7) == wanted


def test_the_nearest_name_of_a_store_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HEAL_STORE", raising=False)
    named = RuntimeConfig(store="from-config")
    assert store_root(None, RuntimeConfig()) == Path(".heal")
    assert store_root(None, named) == Path("from-config")
    monkeypatch.setenv("HEAL_STORE", "from-environment")
    assert store_root(None, named) == Path("from-environment")
    assert store_root(Path("from-option"), named) == Path("from-option")
    assert asked_store(None) == tmp_path / "from-environment"


@pytest.mark.parametrize("scratch", [None, "copies"])
def test_a_bucket_s_copies_lie_in_scratch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scratch: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HEAL_STORE", raising=False)
    config = RuntimeConfig(store="s3://own/store", scratch=scratch)
    wanted = tmp_path / (scratch or ".heal-s3") / "own" / "store"
    assert store_root(None, config) == wanted
    assert wanted.is_dir()
