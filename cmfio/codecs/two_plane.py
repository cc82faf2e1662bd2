"""q4tp and q2tp: levels, and for each group a 5-bit code of its row's ladder of scales.

All scales of a row are rungs of one ladder; two halves tell it.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from cmfio.codecs.base import F32, GROUP, U8, TiledCodec
from cmfio.codecs.blocks import block_height, in_blocks
from cmfio.codecs.halves import F16_LIMIT, from_f16, to_f16
from cmfio.codecs.ladder import (
    log2_scales,
    nominal_steps,
    range_of_rows,
    rungs,
    steps_to,
)
from cmfio.dtypes import Label

Q4_GRID = np.array([0, -8, 7], np.float32)  # shift, lowest and highest level
Q2_GRID = np.array([1.5, 0, 3], np.float32)
Q2_SHARES = np.array([1.0, 0.9, 0.8, 0.7], np.float32)


@dataclass(frozen=True)
class Planes:
    """Views of a payload, or of some of its rows."""

    levels: U8  # [rows, groups, bytes a group]
    params: NDArray[np.float16]  # [rows, 2]: lowest log2, step
    codes: U8  # [rows, bytes]

    @classmethod
    def of(cls, payload: U8, rows: int, groups: int, group_bytes: int) -> Self:
        """The planes of a whole payload."""
        level_end = rows * groups * group_bytes
        params_end = level_end + 4 * rows
        return cls(
            payload[:level_end].reshape(rows, groups, group_bytes),
            payload[level_end:params_end].view("<f2").reshape(rows, 2),
            payload[params_end:].reshape(rows, code_bytes(groups)),
        )

    def rows(self, top: int, bottom: int) -> Self:
        """Those of some rows."""
        part = slice(top, bottom)
        return type(self)(self.levels[part], self.params[part], self.codes[part])


@dataclass(frozen=True)
class RowBlock:
    """Some rows to encode, and the scales they would like."""

    groups: F32  # [rows · groups a row, 32]
    alive_RG: NDArray[np.bool_]
    log2_RG: F32
    lowest_R: F32  # as stored
    highest_R: F32

    @classmethod
    def of(cls, values: F32, top_level: float) -> Self:
        """Measures `values` [rows, columns]."""
        from cmfio.codecs.group_kernels import largest_magnitudes

        groups = values.reshape(-1, GROUP)
        largest = np.empty(len(groups), np.float32)
        largest_magnitudes(groups, largest)
        largest_RG = largest.reshape(len(values), -1)
        log2_RG, alive_RG = log2_scales(largest_RG, top_level), largest_RG > 0
        lowest_R, highest_R = range_of_rows(log2_RG, alive_RG)
        return cls(groups, alive_RG, log2_RG, from_f16(to_f16(lowest_R)), highest_R)


def code_bytes(groups: int) -> int:
    """What a row's codes take: five bits each."""
    return -(-5 * groups // 8)


class TwoPlane(TiledCodec):
    """The layout; a subclass says which levels a group has."""

    label: ClassVar[Label] = "Q4_BLOCK"

    @property
    @abstractmethod
    def group_bytes(self) -> int:
        """Bytes of a group's levels."""

    @abstractmethod
    def pack_rows(self, values: F32, planes: Planes) -> None:
        """Encodes some rows."""

    @abstractmethod
    def ladders(self, params: NDArray[np.float16]) -> F32:
        """The scale each code of each row stands for [rows, 32]."""

    @abstractmethod
    def unpack_levels(self, levels: U8, scale: F32, groups: F32) -> None:
        """The values of groups whose scales are known."""

    def planes(self, columns: int) -> tuple[int, ...] | None:
        """Levels, the ladder's two halves, codes."""
        groups, rest = divmod(columns, GROUP)
        return None if rest else (groups * self.group_bytes, 4, code_bytes(groups))

    def packed(self, values: F32, threads: int) -> U8:
        """Row by row; see the subclass."""
        payload = self.new_payload(values.shape)
        planes = self._planes(payload, values)

        def work(top: int, bottom: int) -> None:
            self.pack_rows(values[top:bottom], planes.rows(top, bottom))

        in_blocks(work, len(values), block_height(values.shape[1]), threads)
        return payload

    def unpack(self, payload: U8, values: F32, threads: int) -> None:
        """Level times the scale its group's code stands for."""
        from cmfio.codecs.two_plane_kernels import look_up

        planes = self._planes(payload, values)

        def work(top: int, bottom: int) -> None:
            part, groups = planes.rows(top, bottom), values[top:bottom].reshape(-1, GROUP)
            scale = np.empty(part.levels.shape[:2], np.float32)
            look_up(part.codes, self.ladders(part.params), scale)
            levels = part.levels.reshape(-1, self.group_bytes)
            self.unpack_levels(levels, scale.reshape(-1), groups)

        in_blocks(work, len(values), block_height(values.shape[1]), threads)

    def _planes(self, payload: U8, values: F32) -> Planes:
        rows, columns = values.shape
        return Planes.of(payload, rows, columns // GROUP, self.group_bytes)


@dataclass(frozen=True)
class Q4TwoPlane(TwoPlane):
    """Levels -8..7, times a scale from the 32 rungs of the row's ladder."""

    name: str = "q4tp"
    dtype: str = "q4tp"
    what: str = "4 bits, for 32 weights one of their row's 32 scales"
    limit: float = 7 * F16_LIMIT

    @property
    def group_bytes(self) -> int:
        """Nibbles."""
        return 16

    def ladders(self, params: NDArray[np.float16]) -> F32:
        """The rungs."""
        return rungs(params[:, 0], params[:, 1])

    def pack_rows(self, values: F32, planes: Planes) -> None:
        """Of the rungs from 2 below to 1 above the ideal, the one with the least error."""
        from cmfio.codecs.two_plane_kernels import pack_4, pack_codes, search_codes

        block = RowBlock.of(values, 7)
        step = steps_to(block.highest_R, block.lowest_R, 31)
        planes.params[:, 0], planes.params[:, 1] = to_f16(block.lowest_R), step
        ladders = self.ladders(planes.params)
        nominal = nominal_steps(block.log2_RG, block.lowest_R, from_f16(step), 31)
        # A dead group's ideal is the lowest rung or below, where the search leaves it.
        codes = nominal.astype(np.uint8)
        errors = np.empty(codes.size, np.float32)
        search_codes(block.groups, ladders, codes.reshape(-1), errors, (-2, 1, 0), Q4_GRID)
        scale = np.take_along_axis(ladders, codes.astype(np.intp), axis=1)
        inverse = np.float32(1) / scale.reshape(-1)
        pack_4(block.groups, inverse, planes.levels.reshape(-1, self.group_bytes))
        pack_codes(codes, planes.codes)

    def unpack_levels(self, levels: U8, scale: F32, groups: F32) -> None:
        """(nibble - 8) · scale."""
        from cmfio.codecs.two_plane_kernels import unpack_4

        unpack_4(levels, scale, groups)


@dataclass(frozen=True)
class Q2TwoPlane(TwoPlane):
    """Levels -1.5, -0.5, 0.5, 1.5; code 0 means zero, the others are rungs 0 to 30."""

    name: str = "q2tp"
    dtype: str = "q2tp"
    what: str = "2 bits, for 32 weights one of their row's 31 scales, or zero"
    limit: float = 1.5 * F16_LIMIT

    @property
    def group_bytes(self) -> int:
        """Two bits a level."""
        return 8

    def ladders(self, params: NDArray[np.float16]) -> F32:
        """A zero below the rungs."""
        ladder = np.zeros((len(params), 32), np.float32)
        ladder[:, 1:] = rungs(params[:, 0], params[:, 1])[:, :31]
        return ladder

    def pack_rows(self, values: F32, planes: Planes) -> None:
        """As in q4tp, after trying ladders that end below the largest scale."""
        from cmfio.codecs.two_plane_kernels import pack_2, pack_codes

        block = RowBlock.of(values, 1.5)
        planes.params[:, 0] = to_f16(block.lowest_R)
        planes.params[:, 1] = self._best_steps(block)
        ladders = self.ladders(planes.params)
        codes, _ = self._searched(block, planes.params, reach_up=1)
        scale = np.take_along_axis(ladders, codes.astype(np.intp), axis=1)
        inverse = np.where(codes > 0, np.float32(1) / scale, np.float32(0))
        levels = planes.levels.reshape(-1, self.group_bytes)
        pack_2(block.groups, inverse.reshape(-1), levels)
        pack_codes(codes, planes.codes)

    def unpack_levels(self, levels: U8, scale: F32, groups: F32) -> None:
        """(level - 1.5) · scale."""
        from cmfio.codecs.two_plane_kernels import unpack_2

        unpack_2(levels, scale, groups)

    def _best_steps(self, block: RowBlock) -> NDArray[np.float16]:
        """The step of each row whose ladder's squared errors add up to the least."""
        best = block.highest_R
        least = np.full(len(best), np.inf, np.float32)
        span = block.highest_R - block.lowest_R
        lowest = to_f16(block.lowest_R)
        for share in Q2_SHARES:
            top = block.lowest_R + span * share
            step = steps_to(top, block.lowest_R, 30)
            params = np.stack([lowest, step], axis=1)
            _, errors = self._searched(block, params, reach_up=2)
            # One after the other, as the peer adds them; numpy's own sum goes in pairs.
            added = np.add.accumulate(errors, axis=1, dtype=np.float32)
            total = added[:, -1] if added.shape[1] else np.zeros(len(best), np.float32)
            better = (total < least) & (span > 0)
            least, best = np.where(better, total, least), np.where(better, top, best)
        return steps_to(best, block.lowest_R, 30)

    def _searched(
        self, block: RowBlock, params: NDArray[np.float16], *, reach_up: int
    ) -> tuple[U8, F32]:
        """The best codes near the ideal ones, and each group's error; 0 in dead groups."""
        from cmfio.codecs.two_plane_kernels import search_codes

        ladders = self.ladders(params)
        step = from_f16(params[:, 1])
        nominal = nominal_steps(block.log2_RG, block.lowest_R, step, 30) + np.float32(1)
        codes = nominal.astype(np.uint8)
        errors = np.empty(codes.size, np.float32)
        reach = (-2, reach_up, 1)
        search_codes(block.groups, ladders, codes.reshape(-1), errors, reach, Q2_GRID)
        codes[~block.alive_RG] = 0
        return codes, np.where(block.alive_RG, errors.reshape(codes.shape), np.float32(0))
