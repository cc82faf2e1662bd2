"""`heal store`: what lies in a store, what it takes, whether it is whole; taking out."""

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.command import FAILED, AsJson, StoreOption, guarded, tell, tell_json

if TYPE_CHECKING:
    from store.store import Store
    from store.upkeep import Item

SHOWN_KEY = 12

store_app = typer.Typer(
    help="Lists, measures, checks and clears stored artifacts.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

Names = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="NAME", help="A stage, stage/key or how a key begins; else everything."
    ),
]


@store_app.command("ls")
def ls(names: Names = None, *, store: StoreOption = None, as_json: AsJson = False) -> None:
    """Lists artifacts: state, size, age, name."""
    guarded(lambda: _ls(names or [], store, as_json=as_json))


@store_app.command("du")
def du(*, store: StoreOption = None, as_json: AsJson = False) -> None:
    """Tells what each stage and the store's own folders take."""
    guarded(lambda: _du(store, as_json=as_json))


@store_app.command("verify")
def verify(
    names: Names = None,
    *,
    is_deep: Annotated[
        bool, typer.Option("--deep", help="Read every byte, not only sizes and times.")
    ] = False,
    store: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """Checks that artifacts are as they were written; exit code 1 if one is not."""
    guarded(lambda: _verify(names or [], store, is_deep=is_deep, as_json=as_json))


@store_app.command("rm")
def rm(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME", help="A stage, stage/key or how a key begins, or `damaged`."
        ),
    ],
    *,
    is_forced: Annotated[
        bool, typer.Option("--force", help="Also what is in use or part of another.")
    ] = False,
    store: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """Deletes artifacts; a run that needs one makes it again."""
    guarded(lambda: _rm(names, store, is_forced=is_forced, as_json=as_json))


def opened(option: Path | None) -> "Store":
    """The store a command is about."""
    from flows.runtime import asked_store
    from store.opened import refuse_bucket
    from store.store import Store

    root = asked_store(option)
    refuse_bucket(root, "heal store")
    return Store(root)


def _named(listed: "list[Item]", names: list[str]) -> "list[Item]":
    """The named items, each once; all of them if none is named."""
    from store.upkeep import chosen

    found = [item for name in names for item in chosen(listed, name)]
    return list({item.name: item for item in found}.values()) if names else listed


def counted(number: int) -> str:
    """`1 artifact`, `2 artifacts`."""
    return f"{number} artifact{'' if number == 1 else 's'}"


def _json(item: "Item") -> dict[str, object]:
    shown = {k: v for k, v in asdict(item).items() if k not in {"path", "manifest"}}
    return {"name": item.name, **shown, "path": str(item.path)}


def _ls(names: list[str], option: Path | None, *, as_json: bool) -> int:
    from store.space import size_text
    from store.upkeep import items
    from tasks.count import duration

    store = opened(option)
    listed = _named(items(store), names)
    if as_json:
        tell_json({"store": str(store.root), "artifacts": [_json(i) for i in listed]})
        return 0
    for item in listed:
        age = duration(max(time.time() - item.changed, 0.0))
        name = f"{item.stage}/{item.key[:SHOWN_KEY]}"
        tell(f"{item.state:12}{size_text(item.size_bytes):>10}{age:>15}  {name}")
    total = size_text(sum(item.size_bytes for item in listed))
    tell(f"{counted(len(listed))}, {total}, in {store.root}")
    return 0


def _du(option: Path | None, *, as_json: bool) -> int:
    from store.space import size_text

    store = opened(option)
    space = store.space()
    total = sum(space.values())
    if as_json:
        tell_json({"store": str(store.root), "folders": space, "total": total})
        return 0
    for name, size in sorted(space.items(), key=lambda pair: -pair[1]):
        tell(f"{size_text(size):>10}  {name}")
    tell(f"{size_text(total):>10}  in {store.root}")
    return 0


def _verify(names: list[str], option: Path | None, *, is_deep: bool, as_json: bool) -> int:
    from store.upkeep import items
    from store.upkeep import verify as find_problems
    from tasks.progress import make_progress

    store = opened(option)
    listed = _named(items(store), names)
    total = sum(item.size_bytes for item in listed)
    progress = make_progress(quiet=not is_deep)
    with progress.task("reading", total=total, unit="bytes") as bar:
        problems = find_problems(
            store, listed, is_deep=is_deep, seen=lambda item: bar.advance(item.size_bytes)
        )
    unfinished = sum(item.state == "unfinished" for item in listed)
    if as_json:
        counts = {"artifacts": len(listed), "unfinished": unfinished}
        tell_json({"store": str(store.root), "problems": problems, **counts})
        return FAILED if problems else 0
    for found in problems.values():
        for problem in found:
            tell(problem)
    whole = f"{counted(len(listed) - unfinished)}, {unfinished} unfinished"
    if problems:
        tell(f"{whole}; {len(problems)} damaged: the next run makes what it needs again")
    else:
        tell(f"{whole}: {'every byte is' if is_deep else 'sizes and times are'} as written")
    return FAILED if problems else 0


def _rm(names: list[str], option: Path | None, *, is_forced: bool, as_json: bool) -> int:
    from store.errors import storage_errors
    from store.space import size_text
    from store.upkeep import clear_damaged, items, remove

    store = opened(option)
    listed = items(store)
    wanted = [name for name in names if name != "damaged"]
    doomed = _named(listed, wanted) if wanted else []
    with storage_errors(store.root, "heal store rm"):
        remove(store, listed, doomed, is_forced=is_forced)
        freed = sum(item.size_bytes for item in doomed)
        freed += clear_damaged(store) if "damaged" in names else 0
    removed = [item.name for item in doomed]
    if as_json:
        tell_json({"store": str(store.root), "removed": removed, "size_bytes": freed})
    else:
        tell(f"removed {counted(len(removed))}, {size_text(freed)} in all")
    return 0
