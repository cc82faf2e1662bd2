"""`heal dump`: where a dump lies, and its export as plain .npy files."""

from pathlib import Path
from typing import Annotated

import typer

from flows.command import StoreOption, guarded, tell


def dump(
    name: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="A run's id or a dump's key, or how it begins, or `last`; `heal status` "
            "lists the runs.",
        ),
    ],
    numpy: Annotated[
        Path | None, typer.Option("--numpy", help="Write .npy files into this folder.")
    ] = None,
    store: StoreOption = None,
) -> None:
    """Prints where a dump of chains lies, or writes it for people without this code."""
    guarded(lambda: _dump(name, numpy, store))


def _dump(name: str, out: Path | None, store: Path | None) -> int:
    from flows.dump import export_numpy, find_dump
    from flows.runtime import asked_store

    found = find_dump(asked_store(store), name)
    if out is None:
        tell(str(found.path))
        return 0
    for file in export_numpy(found, out):
        tell(str(out / file))
    return 0
