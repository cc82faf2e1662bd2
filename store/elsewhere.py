"""Arrays of an artifact that are not in its folder: where they lie instead.

A folder that stands for an artifact in a bucket holds `elsewhere.json`. Readers of arrays
look there, so that they need to be told nothing else than the folder.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from store.atomic import replace_whole
from store.bucket import Bucket
from store.errors import ArtifactDamaged
from store.manifest import Stored

if TYPE_CHECKING:
    import zarr

ELSEWHERE = "elsewhere.json"


class Elsewhere(Stored):
    """The bucket, and the folder in it that holds the artifact's files."""

    url: str
    folder: str


@dataclass(frozen=True)
class AwayArray:
    """An array in a bucket, and how its errors are told."""

    array: "zarr.Array[Any]"
    errors: Callable[[], AbstractContextManager[None]]


def point_elsewhere(folder: Path, place: Elsewhere) -> None:
    """Have readers of the folder's arrays look there."""
    replace_whole(folder / ELSEWHERE, place.model_dump_json().encode())


def away_array(folder: Path, name: str) -> AwayArray | None:
    """The array `name` of that artifact where its files lie; None if they lie here.

    ArtifactDamaged where it cannot be opened or lacks a chunk.
    """
    try:
        place = Elsewhere.model_validate_json((folder / ELSEWHERE).read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise ArtifactDamaged(folder / ELSEWHERE, "cannot be read") from error
    import zarr

    bucket = Bucket.of(place.url)
    path = f"{place.folder}/{name}"
    try:
        with bucket.errors():
            array = zarr.open_array(bucket.zarr_store(), path=path, mode="r", zarr_format=3)
            have, need = array.nchunks_initialized, array.nchunks
    except (ValueError, KeyError, TypeError, OSError) as error:
        where = Path(f"{place.url}/{path}")
        raise ArtifactDamaged(where, f"no readable array ({error})") from error
    if have != need:
        raise ArtifactDamaged(folder / name, f"{have} of {need} chunks are in the bucket")
    return AwayArray(array, bucket.errors)
