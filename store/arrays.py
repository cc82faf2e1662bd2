"""Zarr arrays of windows: one chunk a window, every chunk written, checksums on each."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from store.elsewhere import away_array
from store.errors import ArtifactDamaged, ArtifactError
from store.keys import checked_name

if TYPE_CHECKING:  # zarr takes a quarter of a second to import; a cached run never needs it
    import zarr

Dtype = Literal["u1", "u2", "u4", "f2", "f4", "bool"]
Kind = Literal["raw", "packed"]
Selection = int | slice | tuple[int | slice, ...]
Values = npt.NDArray[Any]  # the dtype is the array's own, known when it is opened

# What an unwritten place would read as, so that it shows: bf16's NaN in u16, NaN, no token.
FILL: dict[Dtype, int | float | bool] = {
    "u1": 0xFF,
    "u2": 0x7FC0,
    "u4": 0xFFFFFFFF,
    "f2": float("nan"),
    "f4": float("nan"),
    "bool": False,
}


class WindowArray:
    """One Zarr array, indexed like numpy's; a read checks the checksums of its chunks.

    Axis 0 counts windows. A read of one window decodes one chunk. A chunk that does not
    hold what was written raises `ArtifactDamaged`.
    """

    def __init__(
        self,
        path: Path,
        array: "zarr.Array[Any]",
        errors: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.path = path
        self._errors = errors
        self._array = array
        self.shape = tuple(array.shape)
        self.chunks = tuple(array.chunks)
        self.dtype = np.dtype(array.dtype)

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, selection: Selection) -> Values:
        try:
            with self._errors():
                return np.asarray(self._array[selection])
        except (ValueError, RuntimeError, OSError) as error:
            # zarr's checksum codecs raise bare ValueError (crc32c) and RuntimeError (zstd).
            raise ArtifactDamaged(self.path, f"a chunk is damaged ({error})") from error

    def __setitem__(self, selection: Selection, values: Values) -> None:
        self._array[selection] = values


def create_array(
    folder: Path,
    name: str,
    shape: Sequence[int],
    dtype: Dtype,
    kind: Kind,
    *,
    windows_per_chunk: int = 1,
) -> WindowArray:
    """A new array `folder/name`, to be written whole chunks at a time.

    `raw`: bytes and crc32c, for what does not compress (hidden rows). `packed`: zstd with
    its checksum, for the rest. bf16 is stored as its bits in "u2".
    """
    import zarr
    from zarr.codecs import Crc32cCodec, ZstdCodec

    path = folder / checked_name(name)
    chunks = (min(windows_per_chunk, shape[0]), *shape[1:])
    codec = Crc32cCodec() if kind == "raw" else ZstdCodec(level=3, checksum=True)
    if 0 in shape:
        raise ArtifactError(
            f"{path}: shape {tuple(shape)} holds nothing; write no such array"
        )
    array = zarr.create_array(
        path,
        shape=tuple(shape),
        dtype=dtype,
        chunks=chunks,
        compressors=[codec],
        fill_value=FILL[dtype],
        config={"write_empty_chunks": True},  # else a window of fill values is dropped
    )
    return WindowArray(path, array)


def open_array(folder: Path, name: str, *, window: int | None = None) -> WindowArray:
    """The array `folder/name`, read-only, every chunk present (or the one of `window`).

    Where it is not in the folder it is read from the bucket that this one stands for.
    Raises `ArtifactDamaged` otherwise: zarr reads a missing chunk as fill values, silently.
    """
    try:
        return _opened_here(folder / checked_name(name), window)
    except ArtifactDamaged:
        away = away_array(folder, name)
        if away is None:
            raise
    return WindowArray(folder / name, away.array, away.errors)


def _opened_here(path: Path, window: int | None) -> WindowArray:
    import zarr

    try:
        array = zarr.open_array(path, mode="r")
        if window is None:
            have, need = array.nchunks_initialized, array.nchunks
        else:
            have, need = int(_chunk_file(path, array, window).is_file()), 1
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise ArtifactDamaged(path, f"no readable array ({error})") from error
    if have != need:
        raise ArtifactDamaged(path, f"{have} of {need} chunks are there")
    return WindowArray(path, array)


def _chunk_file(path: Path, array: "zarr.Array[Any]", window: int) -> Path:
    places = [window // array.chunks[0], *(0 for _ in array.chunks[1:])]
    return path.joinpath("c", *map(str, places))
