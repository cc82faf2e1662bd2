"""The trunk of one pass: whole in memory, or streamed layer by layer over many windows.

Either way a shard asks for the rows of one call at a time. Streamed, the calls that come
next are done along with it, as many as fit, those of later missing shards too: these find
their rows waiting. A pass that is cut has the shards it finished.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, ClassVar, Protocol, Self

from cmfio.header import Arch
from tasks.model_file import ModelPart, open_part, refuse_changed_model
from tasks.placed_trunk import placed_trunk
from tasks.progress import Bar
from tasks.shard_rows import (
    ShardSettings,
    WindowShard,
    read_call,
    tokens_a_call,
    windows_a_call,
)
from tasks.stage import Runtime

if TYPE_CHECKING:
    from torch import Tensor

    from nets.stream import HeadPart, StreamedTrunk
    from nets.trunk import Trunk

CallPlace = tuple[WindowShard, slice]  # some windows of a shard


class Way(Protocol):
    """How a placed trunk gives the raw rows of a call, and the head for them.

    `is_steady` where a call takes what any other does, and none works for those to come.
    """

    is_steady: ClassVar[bool]

    def hidden(self, shard: WindowShard, part: slice, runtime: Runtime) -> "Tensor":
        """Raw rows [B, T, H] of some windows of a shard, f32."""

    def head(self) -> "HeadPart":
        """Final norm and head, for the rows given last."""


@dataclass
class PassTrunk:
    """The trunk of one pass, placed when the first missing shard asks; use it in a `with`.

    `shards` are all of the pass, or of a worker's order, in order; `is_missing` tells which
    are still to be made. `longest` is the most windows that a shard of the pass has.
    """

    part: ModelPart
    bar: Bar
    shards: Sequence[WindowShard]
    longest: int
    is_missing: Callable[[WindowShard], bool]
    asked: int = 0  # shards that asked so far
    _way: Way | None = None
    _opened: ExitStack = field(default_factory=ExitStack)

    @property
    def content_digest(self) -> str:
        """The trunk's identity."""
        return self.part.content_digest

    @cached_property
    def arch(self) -> Arch:
        """What the trunk is; every shard's size follows from it."""
        with open_part(self.part) as model:
            return model.header.arch

    def way(self, settings: ShardSettings, runtime: Runtime) -> Way:
        """The trunk, ready to give the rows of a shard."""
        self.asked += 1
        if self._way is None:
            self._way = self._placed(settings, runtime)
        return self._way

    def calls_from(self, shard: WindowShard, start: int, step: int) -> Iterator[CallPlace]:
        """Calls of `step` windows: the rest of a shard, then the missing ones after it."""
        digests = [one.content_digest for one in self.shards]
        later = self.shards[digests.index(shard.content_digest) + 1 :]
        for first in range(start, len(shard.length), step):
            yield shard, slice(first, first + step)
        for one in filter(self.is_missing, later):
            for first in range(0, len(one.length), step):
                yield one, slice(first, first + step)

    def _placed(self, settings: ShardSettings, runtime: Runtime) -> Way:
        from nets.stream import StreamedTrunk

        placing = placed_trunk(
            self.part,
            settings.dtype,
            tokens_a_call(settings, self.longest),
            runtime,
            is_compiled=settings.compile,
        )
        placed = self._opened.enter_context(placing)
        if isinstance(placed.trunk, StreamedTrunk):
            return _Streamed(placed.trunk, settings, self, placed.most_calls)
        return _Resident(placed.trunk, settings, self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._way = None
        self._opened.close()


@dataclass(frozen=True)
class _Resident:
    """A trunk that is whole in memory."""

    is_steady: ClassVar[bool] = True
    model: "Trunk"
    settings: ShardSettings
    owner: PassTrunk

    def hidden(self, shard: WindowShard, part: slice, runtime: Runtime) -> "Tensor":
        call = read_call(shard, part, self.settings)
        rows_BTH = self.model.hidden(call.ids_BT, call.record_BT)
        self.owner.bar.advance(int(shard.length[part].sum()))
        return rows_BTH

    def head(self) -> "HeadPart":
        from nets.stream import HeadPart

        return HeadPart(self.model.shared.final_norm, self.model.shared.head_VH)


@dataclass
class _Streamed:
    """A trunk whose layers stay in the file, and the rows that wait to be asked for."""

    is_steady: ClassVar[bool] = False
    model: "StreamedTrunk"
    settings: ShardSettings
    owner: PassTrunk
    most_calls: int
    _waiting: "dict[tuple[str, int], Tensor]" = field(default_factory=dict)
    _head: "HeadPart | None" = None

    def hidden(self, shard: WindowShard, part: slice, runtime: Runtime) -> "Tensor":
        place = (shard.content_digest, part.start)
        if place not in self._waiting:
            self._head = None  # its room is the layers' now
            self._waiting.clear()
            self._waiting = self._stream(shard, part.start, runtime)
        return self._waiting.pop(place)

    def head(self) -> "HeadPart":
        if self._head is None:
            self._head = self.model.read_head()
        return self._head

    def _stream(
        self, shard: WindowShard, start: int, runtime: Runtime
    ) -> "dict[tuple[str, int], Tensor]":
        """The rows of the calls from here on, as many as may wait."""
        step = windows_a_call(self.settings)
        every = self.owner.calls_from(shard, start, step)
        chosen = list(islice(every, self.most_calls))
        calls = [read_call(one, part, self.settings) for one, part in chosen]
        tokens = [int(one.length[part].sum()) for one, part in chosen]
        windows = sum(len(one.length[part]) for one, part in chosen)
        layers = len(self.model.geometry.layers)
        with runtime.progress.task(
            f"layers over {windows} windows", total=layers, unit="layers"
        ) as bar:
            passed = _Passed(tokens, layers, self.owner.bar, bar, runtime)
            rows = self.model.hidden(calls, passed)
        refuse_changed_model(self.owner.part)  # its layers were read all the while
        places = [(one.content_digest, part.start) for one, part in chosen]
        return dict(zip(places, rows, strict=True))


@dataclass(frozen=True)
class _Passed:
    """Counts what has gone through a layer, and looks whether it is to stop."""

    tokens: Sequence[int]  # of each call
    layers: int
    pass_bar: Bar
    layer_bar: Bar
    runtime: Runtime

    def __call__(self, layer: int, call: int, _rows: "Tensor") -> None:
        tokens = self.tokens[call]
        done, before = tokens * (layer + 1), tokens * layer
        self.pass_bar.advance(done // self.layers - before // self.layers)
        if call + 1 == len(self.tokens):
            self.layer_bar.advance(1)
        self.runtime.stop.check(
            f"in layer {layer + 1} of {self.layers}, over {len(self.tokens)} batches that "
            "begin anew next time"
        )
