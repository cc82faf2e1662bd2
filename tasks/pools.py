"""The engine that a run's workers belong to; imported when there is work for them."""

from contextlib import AbstractContextManager

from conf.machine import Device
from conf.runner import Runner
from tasks.runner import Pool


def open_pool(runner: Runner, device: Device) -> AbstractContextManager[Pool]:
    """The workers of the cluster that the runner names, or of one started here.

    RunnerError if nobody answers there. One started here ends with the `with`.
    """
    if runner.kind == "dask":
        from tasks.dask_pool import dask_pool

        return dask_pool(runner, device)
    from tasks.ray_pool import ray_pool

    return ray_pool(runner, device)
