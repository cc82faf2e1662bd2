"""How many cards, or processes on a CPU, train a draft; found without torch."""

import os
from dataclasses import dataclass
from typing import Literal

from conf.errors import ConfigError
from conf.machine import Device, cuda_devices


@dataclass(frozen=True)
class Place:
    """Which of `size` processes this is, from 0, and which card of its machine it has."""

    rank: int
    size: int
    card: int


def resolve_cards(wanted: int | Literal["all"], device: Device) -> int:
    """Cards that train a draft; `all` is every card of this machine, on a CPU 1."""
    offered = cuda_devices() if device == "cuda" else None
    if wanted == "all":
        return offered or 1
    if offered is not None and wanted > offered:
        raise ConfigError(
            f"runtime.cards is {wanted}: the driver offers {offered}; use all, or start "
            "one process a card with torchrun (docs/scaling.md)"
        )
    return wanted


def torchrun_place() -> Place | None:
    """This process's place among several that `torchrun` started; None if it is alone."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return None
    place = Place(*(int(os.environ[n]) for n in ("RANK", "WORLD_SIZE", "LOCAL_RANK")))
    return place if place.size > 1 else None


def stay_on_this_machine() -> None:
    """Has the ranks of this process talk over loopback, where nobody else can listen."""
    os.environ["GLOO_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"] = "lo"
