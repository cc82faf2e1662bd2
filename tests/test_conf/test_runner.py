"""Who computes: which settings fit together, what is said of those that don't."""

import os
from importlib.machinery import ModuleSpec

import numpy as np
import pytest

from conf.errors import ConfigError
from conf.load import check
from conf.machine import card_names, without_ray_telemetry
from conf.runner import Runner, fault_of, refuse_missing_engine, versions_here
from conf.schema import RuntimeConfig


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ({"workers": 2}, "workers and cluster are for runner: dask or ray"),
        ({"cluster": "tcp://a:8786"}, "workers and cluster are for runner"),
        ({"runner": "dask", "cluster": "a:8786"}, "write tcp://HOST:8786"),
        ({"runner": "dask", "cluster": "auto"}, "write tcp://HOST:8786"),
        ({"runner": "ray", "cluster": "tcp://a:8786"}, "write auto"),
        ({"runner": "ray", "cluster": "ray://a:10001"}, "on a machine of the cluster"),
        ({"runner": "slurm"}, "runner"),
        ({"runner": "ray", "workers": 0}, "workers"),
    ],
)
def test_settings_that_do_not_fit_are_refused(raw: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check(RuntimeConfig, raw, "mine")


@pytest.mark.parametrize(
    ("kind", "workers", "cluster"),
    [
        ("threads", None, None),
        ("dask", 2, None),
        ("dask", None, "tcp://a:8786"),
        ("dask", 4, "tls://a:8786"),
        ("ray", 2, "auto"),
    ],
)
def test_settings_that_fit(kind: str, workers: int | None, cluster: str | None) -> None:
    given = RuntimeConfig.model_validate(
        {"runner": kind, "workers": workers, "cluster": cluster}
    )
    assert fault_of(given.runner, given.workers, given.cluster) is None


def test_a_runner_that_is_not_installed_names_the_line_for_pip(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: dict[str, ModuleSpec] = {}
    monkeypatch.setattr("conf.runner.find_spec", found.get)
    refuse_missing_engine("threads")
    with pytest.raises(ConfigError, match=r"distributed.*pip install 'mtp-heal\[dask\]'"):
        refuse_missing_engine("dask")
    with pytest.raises(ConfigError, match=r"pip install 'mtp-heal\[ray\]'"):
        refuse_missing_engine("ray")
    found["ray"] = ModuleSpec("ray", None)
    refuse_missing_engine("ray")


@pytest.mark.parametrize(
    ("runner", "jobs", "is_worth"),
    [
        (Runner(), 9, False),
        (Runner("dask", 2), 0, False),
        (Runner("dask", 2), 1, False),  # a cluster of this machine would do no better
        (Runner("dask", 2), 2, True),
        (Runner("dask", None, "tcp://a:8786"), 0, False),
        (Runner("dask", None, "tcp://a:8786"), 1, True),  # this machine may have no card
    ],
)
def test_when_workers_are_asked(runner: Runner, jobs: int, *, is_worth: bool) -> None:
    assert runner.is_worth(jobs) is is_worth


def test_each_worker_sees_a_card_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr("conf.machine.cuda_devices", lambda: 3)
    assert card_names(2) == ["0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,GPU-7a")
    assert card_names(2) == ["5", "GPU-7a"]
    with pytest.raises(ConfigError, match="is 3: 2 cards are visible"):
        card_names(3)


def test_ray_is_told_to_report_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "RAY_USAGE_STATS_ENABLED"
    monkeypatch.delenv(name, raising=False)
    with without_ray_telemetry():
        assert os.environ[name] == "0"
    assert name not in os.environ
    monkeypatch.setenv(name, "1")
    with without_ray_telemetry():
        assert os.environ[name] == "0"
    assert os.environ[name] == "1"


def test_versions_are_those_of_what_is_installed() -> None:

    assert versions_here()["numpy"] == np.__version__
    assert versions_here()["mtp-heal"] != "not installed"
