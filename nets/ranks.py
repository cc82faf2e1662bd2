"""Processes that train one draft together: who takes what, and what they add up.

Each holds the whole draft and reads its share of every batch; sums over all of them make
the step that one process would have made, up to the order of f32 sums.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore, Store

from nets.errors import TrainingError

T = TypeVar("T")

# Longer than rank 0 takes to write a checkpoint of any size; a rank that died is found at
# once by other means (`tasks.card_ranks`, torchrun).
LONGEST_WAIT = timedelta(minutes=30)


@dataclass(frozen=True)
class Share:
    """The items `start` … `stop` of a list of `whole`: what one rank takes of it."""

    start: int
    stop: int
    whole: int

    def of(self, items: Sequence[T]) -> Sequence[T]:
        """These of the items."""
        return items[self.start : self.stop]


@dataclass(frozen=True)
class Ranks:
    """Which of `size` processes this is, from 0. Alone nothing is exchanged.

    All ranks call the same methods in the same order, with tensors of the same shape; what
    comes back has the same bits on all of them.
    """

    rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this is the one that writes, tells and is asked to stop."""
        return self.rank == 0

    def share(self, count: int) -> Share:
        """This rank's of `count` items: neighbours, as many as the others have, or 1 more.

        With fewer items than ranks some have none.
        """
        return Share(
            count * self.rank // self.size, count * (self.rank + 1) // self.size, count
        )

    def sum_(self, tensor: Tensor) -> Tensor:
        """The tensor, become its sum over all ranks."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def sum_gradients_(self, parameters: Iterable[nn.Parameter]) -> None:
        """Every gradient becomes its sum over all ranks; where one has none it adds 0."""
        if self.size == 1:
            return
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            dist.all_reduce(parameter.grad)

    def first_s(self, tensor: Tensor) -> Tensor:
        """The tensor as rank 0 has it: what a decision of all is made from."""
        if self.size > 1:
            dist.broadcast(tensor, src=0)
        return tensor

    def says_first(self, *, here: bool) -> bool:
        """What rank 0 says, whatever the others do."""
        return bool(self.first_s(torch.tensor([here], dtype=torch.uint8)).item())

    def refuse_unlike(self, what: str) -> None:
        """TrainingError on every rank whose `what` is not rank 0's."""
        own = hashlib.sha256(what.encode()).digest()
        theirs = self.first_s(torch.tensor(list(own), dtype=torch.uint8))
        if bytes(theirs.tolist()) != own:
            raise TrainingError(
                f"rank {self.rank} of {self.size} would train something else than rank 0 "
                "(settings, windows or checkpoint): they must run the same version on one "
                "store that all of them see"
            )


ALONE = Ranks()


def meeting_in(file: Path, size: int) -> Store:
    """Where ranks of one machine meet: a file that is not there yet."""
    # torch documents it here and does not list it among its exports.
    meeting: Store = dist.FileStore(str(file), size)  # type: ignore[attr-defined]
    return meeting


def meeting_among(keys: Store, name: str) -> Store:
    """Where ranks meet that share a store of keys, once for each name."""
    return PrefixStore(name, keys)


@contextmanager
def joined(ranks: Ranks, meeting: Store, card: int | None) -> Iterator[Ranks]:
    """The ranks, able to talk once all of them are here; `card` is this one's, None: CPU.

    They meet in `meeting`. Raises RuntimeError if they don't within half an hour. Whoever
    leaves by an exception breaks it for all: its process must then end.
    """
    if card is not None:
        torch.cuda.set_device(card)
    dist.init_process_group(
        "gloo" if card is None else "cpu:gloo,cuda:nccl",
        store=meeting,
        rank=ranks.rank,
        world_size=ranks.size,
        timeout=LONGEST_WAIT,
    )
    yield ranks
    dist.destroy_process_group()
