"""Slots for a device among flow runs: a global concurrency limit of Prefect's."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from conf.errors import ConfigError
from tasks.record import in_flow_run


@dataclass(frozen=True)
class Slots:
    """The limit's name; `server` is where a worker of a flow run asks for a slot.

    Without it a slot is taken inside a flow run only: elsewhere there is nobody to ask.
    """

    limit: str
    server: str | None = None

    def for_workers(self) -> "Slots | None":
        """The same for the workers of this flow run; None outside one."""
        if not in_flow_run():
            return None
        from prefect.settings import PREFECT_API_URL

        return Slots(self.limit, PREFECT_API_URL.value())


@contextmanager
def device_slot(slots: Slots | None) -> Iterator[None]:
    """Holds one slot while the body computes; waits for it without limit.

    ConfigError if the server has no limit of that name. A slot is freed by the server when
    its holder's lease runs out, so a killed holder keeps none for long.
    """
    if slots is None or (slots.server is None and not in_flow_run()):
        yield
        return
    with ExitStack() as held:
        _take(slots, held)
        yield


def _take(slots: Slots, held: ExitStack) -> None:
    from prefect.concurrency.asyncio import ConcurrencySlotAcquisitionError
    from prefect.concurrency.sync import concurrency
    from prefect.settings import PREFECT_API_URL, temporary_settings

    if slots.server is not None:
        held.enter_context(temporary_settings({PREFECT_API_URL: slots.server}))
    try:
        # A server that is away for a while must not end hours of work in their midst.
        slot = concurrency(slots.limit, strict=True, raise_on_lease_renewal_failure=False)
        held.enter_context(slot)
    except ConcurrencySlotAcquisitionError as error:
        raise ConfigError(
            f"runtime.gpu_limit is {slots.limit}: the server gives no slot of it: {error}; "
            f"make it with `prefect gcl create {slots.limit} --limit 1`"
        ) from error
