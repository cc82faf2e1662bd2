"""`heal store gc|pin|unpin|export|import`: a store kept small, a heal moved."""

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from flows.command import AsJson, StoreOption, guarded, tell, tell_json
from flows.store_cli import counted, opened, store_app

__all__ = ["store_app"]

SHOWN_NAME = 40

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="A run's id, stage/key, the beginning of either, or `last`."
    ),
]


@store_app.command("gc")
def gc(
    *,
    keep: Annotated[
        int, typer.Option(min=0, help="How many of the last runs and reports stay whole.")
    ] = 10,
    grace: Annotated[
        float, typer.Option(min=0, help="Nothing younger than so many hours goes.")
    ] = 1.0,
    is_real: Annotated[
        bool, typer.Option("--yes", help="Free it; without, only tell what would go.")
    ] = False,
    store: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """Frees what no kept run, report or pin was made from, and leftovers."""
    guarded(lambda: _gc(store, keep, grace, is_real=is_real, as_json=as_json))


@store_app.command("pin")
def pin(name: Name, *, store: StoreOption = None) -> None:
    """Keeps a run or an artifact, and what it was made from, from `gc`."""
    guarded(lambda: _pin(name, store))


@store_app.command("unpin")
def unpin(name: Name, *, store: StoreOption = None) -> None:
    """Lets a pinned run or artifact go again."""
    guarded(lambda: _unpin(name, store))


@store_app.command("export")
def export(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="A run's id or an artifact, or how it begins, or `last`."
        ),
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The .tar to write.")],
    *,
    store: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """Writes one heal, with all it was made from, to a tar."""
    guarded(lambda: _export(name, out, store, as_json=as_json))


@store_app.command("import")
def import_(
    bundle: Annotated[
        Path, typer.Argument(metavar="BUNDLE", help="A .tar that export wrote.")
    ],
    *,
    store: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """Takes an exported heal in, after checking every byte of it."""
    guarded(lambda: _import(bundle, store, as_json=as_json))


def _gc(
    option: Path | None, keep: int, grace: float, *, is_real: bool, as_json: bool
) -> int:
    from store.collect import free, sweep
    from store.errors import storage_errors
    from store.space import size_text
    from tasks.count import duration

    store = opened(option)
    found = sweep(store, keep, grace_s=grace * 3600, waits=True)
    if is_real:
        with storage_errors(store.root, "heal store gc"):
            found = free(store, found)
    if as_json:
        wastes = [{**asdict(one), "path": str(one.path)} for one in found.wastes]
        sizes = {"size_bytes": found.size_bytes, "kept": found.kept, "freed": is_real}
        tell_json({"store": str(store.root), "wastes": wastes, **sizes})
        return 0
    for one in found.wastes:
        age = duration(max(time.time() - one.changed, 0.0))
        name = one.name[:SHOWN_NAME]
        tell(f"{one.kind:12}{size_text(one.size_bytes):>10}{age:>15}  {name}")
    if not found.wastes and grace:
        tell(f"nothing to free that is older than {duration(grace * 3600)} (--grace)")
    size = f"{len(found.wastes)} things, {size_text(found.size_bytes)}"
    if is_real:
        tell(f"freed {size}; {counted(found.kept)} kept, in {store.root}")
    else:
        tell(f"would free {size}, and keep {counted(found.kept)}; --yes frees them")
    return 0


def _pin(name: str, option: Path | None) -> int:
    from store.errors import storage_errors
    from store.pins import name_of, pin

    store = opened(option)
    whole = name_of(store, name)
    with storage_errors(store.root, "heal store pin"):
        pin(store, whole)
    tell(f"pinned {whole}")
    return 0


def _unpin(name: str, option: Path | None) -> int:
    from store.errors import UnknownName, storage_errors
    from store.pins import name_of, pinned, unpin

    store = opened(option)
    fitting = [one for one in pinned(store) if one.startswith(name)]
    whole = fitting[0] if len(fitting) == 1 else name_of(store, name)
    with storage_errors(store.root, "heal store unpin"):
        was_pinned = unpin(store, whole)
    if not was_pinned:
        raise UnknownName(
            f"{whole} is not pinned; heal store gc keeps it only if it is new"
        )
    tell(f"unpinned {whole}")
    return 0


def _export(name: str, out: Path, option: Path | None, *, as_json: bool) -> int:
    from store.bundle import export
    from store.space import size_text
    from tasks.errors import InputError

    store = opened(option)
    try:
        index = export(store, name, out)
    except OSError as error:
        raise InputError(
            f"heal store export: {out} could not be written ({error.strerror}); choose "
            "another path"
        ) from error
    told = {"out": str(out), "root": index.root, "artifacts": list(index.artifacts)}
    if as_json:
        tell_json({**told, "size_bytes": out.stat().st_size})
    else:
        size = size_text(out.stat().st_size)
        tell(f"wrote {out}: {index.root}, {counted(len(index.artifacts))}, {size}")
    return 0


def _import(bundle: Path, option: Path | None, *, as_json: bool) -> int:
    from store.errors import storage_errors
    from store.unbundle import take_in

    store = opened(option)
    with storage_errors(store.root, "heal store import"):
        taken = take_in(store, bundle)
    if as_json:
        tell_json({"store": str(store.root), **asdict(taken)})
    else:
        there = f", {len(taken.known)} were there" if taken.known else ""
        tell(f"imported {counted(len(taken.new))}{there}; into {store.root}")
    return 0
