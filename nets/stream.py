"""A trunk larger than memory: its layers come one at a time, and all windows pass each.

Layer-major: a layer is read once for many windows, whose rows wait for the next; while it
computes, the next one is read on a thread. The numbers are `Trunk.hidden`'s, bit for bit.
Legend: B windows, T positions, H hidden, V vocabulary, R rows.
"""

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from cmfio.header import Arch
from nets.families import Shapes
from nets.geometry import EMBED, HEAD, TrunkGeometry, trunk_geometry
from nets.hf_layer import Read
from nets.layer import Surroundings, compiled_layer, run_layer
from nets.trunk import Shared, build_layer, build_shared

ReadRows = Callable[[str, Tensor], Tensor]  # (name, ascending ids) -> those rows of it
# Called when a layer has done a call: the layer's number, the call's, its rows [B, T, H].
Passed = Callable[[int, int, Tensor], None]


@dataclass(frozen=True)
class Call:
    """Some windows' ids, on the CPU, and with records kept apart their numbers."""

    ids_BT: Tensor
    record_BT: Tensor | None = None


@dataclass(frozen=True)
class HeadPart:
    """What turns raw rows into logits."""

    final_norm: nn.Module
    head_VH: Tensor


@dataclass(frozen=True)
class StreamedTrunk:
    """A trunk of which only the final norm and the rotary are in memory.

    `shared` has tables of no rows. `read` and `read_rows` give tensors in the compute type
    or f32, on any thread.
    """

    shared: Shared
    geometry: TrunkGeometry
    read: Read
    read_rows: ReadRows
    is_compiled: bool

    @property
    def device(self) -> torch.device:
        """Where it computes, and where rows wait."""
        return self.shared.embed_VH.device

    @torch.no_grad()
    def hidden(
        self,
        calls: Sequence[Call],
        passed: Passed = lambda *_: None,
        layers: int | None = None,
    ) -> list[Tensor]:
        """The raw rows [B, T, H] of each call, f32, as `Trunk.hidden` has them.

        `layers`: after the first so many, None for all. What `passed` raises ends it.
        """
        rows = self._embedded([call.ids_BT for call in calls])
        known: dict[torch.Size, Surroundings] = {}
        run = compiled_layer() if self.is_compiled else run_layer
        kinds = self.geometry.layers[:layers]
        with closing(self._read_ahead(len(kinds))) as read:
            for index, layer in enumerate(read):
                for call, x_BTH in enumerate(rows):
                    around = self._surroundings(calls[call], x_BTH, known)
                    with self._autocast():
                        rows[call] = around.run(run, layer, kinds[index], x_BTH)
                    passed(index, call, rows[call])
        return rows

    def read_head(self) -> HeadPart:
        """The final norm and the head, whose table is read anew."""
        name = EMBED if self.geometry.is_tied else HEAD
        dtype = self.shared.head_VH.dtype
        return HeadPart(self.shared.final_norm, self.read(name).to(self.device, dtype))

    def _surroundings(
        self, call: Call, x_BTH: Tensor, known: dict[torch.Size, Surroundings]
    ) -> Surroundings:
        """Those of a call; one of the same shape has the same unless records are apart.

        These are made anew for each layer: their masks would take more than the rows.
        """
        if call.record_BT is not None:
            return self.shared.surroundings(x_BTH, call.record_BT)
        if x_BTH.shape not in known:
            known[x_BTH.shape] = self.shared.surroundings(x_BTH)
        return known[x_BTH.shape]

    def _autocast(self) -> torch.autocast:
        is_low = self.shared.is_low
        return torch.autocast(self.device.type, torch.bfloat16, enabled=is_low)

    def _embedded(self, ids: Sequence[Tensor]) -> list[Tensor]:
        """Each call's rows that enter the first layer; only those that occur are read."""
        known = torch.unique(torch.cat([ids_BT.flatten() for ids_BT in ids]))
        table = self.read_rows(EMBED, known).to(self.device, self.shared.embed_VH.dtype)
        places = [torch.searchsorted(known, ids_BT).to(self.device) for ids_BT in ids]
        return [nn.functional.embedding(at_BT, table).float() for at_BT in places]

    def _read_ahead(self, count: int) -> Generator[nn.Module, None, None]:
        """The first layers in order, on the device; two are in memory at most."""
        if not count:
            return
        with ThreadPoolExecutor(1, thread_name_prefix="read-ahead") as reader:
            coming = reader.submit(self._read_layer, 0)
            for index in range(count):
                layer = coming.result().to(self.device, non_blocking=True)
                if index + 1 < count:
                    coming = reader.submit(self._read_layer, index + 1)
                yield layer

    def _read_layer(self, index: int) -> nn.Module:
        dtype = self.shared.embed_VH.dtype
        layer = build_layer(
            self.shared, self.geometry, index, self.read, device="cpu", dtype=dtype
        )
        if self.device.type != "cpu":
            for weight in (*layer.parameters(), *layer.buffers()):
                weight.data = weight.data.pin_memory()
        return layer


def stream_trunk(  # noqa: PLR0913 — what `build_trunk` takes, and how to read rows
    arch: Arch,
    shapes: Shapes,
    read: Read,
    read_rows: ReadRows,
    *,
    device: str,
    dtype: torch.dtype,
    is_compiled: bool = False,
) -> StreamedTrunk:
    """The model's trunk with its layers left in the container, which must stay open.

    ModelError as from `build_trunk`.
    """
    geometry = trunk_geometry(arch, shapes)

    def read_but_tables(name: str) -> Tensor:
        return torch.empty(0, arch.hidden_size) if name in (EMBED, HEAD) else read(name)

    shared = build_shared(arch, shapes, read_but_tables, device=device, dtype=dtype)
    return StreamedTrunk(shared, geometry, read, read_rows, is_compiled)
