"""`cmf`: look into a container, check it, take parts out, import GGUF. No torch."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from cmfio.errors import CmfError, CmfIoError, DamagedTensor

EXIT_FAILURE = 1
EXIT_BAD_INPUT = 2

app = typer.Typer(
    help="Look into .cmf model containers, check them, import GGUF.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
ModelPath = Annotated[
    Path, typer.Argument(help="A .cmf file; of several shards the first.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON value instead.")]


def main() -> None:
    """The console script."""
    app()


@app.command()
def info(path: ModelPath, *, as_json: AsJson = False) -> None:
    """Say what a model is: family, size, dtypes, draft, sections."""
    from cmfio.listing import summarise
    from cmfio.reader import open_container

    with _speaking(), open_container(path) as container:
        summary = summarise(container)
        _print(json.dumps(summary.to_json()) if as_json else summary.to_text())


@app.command()
def tensors(path: ModelPath, *, as_json: AsJson = False) -> None:
    """List the tensors in file order: dtype, shape, bytes, name."""
    from cmfio.reader import open_container

    with _speaking(), open_container(path) as container:
        entries = list(container.entries.values())
    if as_json:
        _print(json.dumps([{**vars(e), "hash64": f"{e.hash64:016x}"} for e in entries]))
        return
    for entry in entries:
        shape = "×".join(map(str, entry.shape)) or "scalar"
        _print(f"{entry.dtype:9}{shape:>18}{entry.nbytes:>16,}  {entry.name}")


@app.command()
def verify(path: ModelPath, *, as_json: AsJson = False) -> None:
    """Compare all recorded hashes with the bytes; exit code 1 if one differs."""
    from cmfio.reader import open_container
    from cmfio.verify import verify as find_problems

    with _speaking(), open_container(path) as container:
        problems = find_problems(container)
        count = len(container.entries)
    if as_json:
        _print(json.dumps({"problems": problems, "tensors": count}))
    else:
        _print("\n".join(problems) or f"{path}: intact, {count} tensors")
    if problems:
        raise typer.Exit(EXIT_FAILURE)


@app.command()
def dump(
    path: ModelPath,
    part: Annotated[
        str, typer.Argument(help="header, masks, vocab, index or a tensor's name.")
    ],
    out: Annotated[Path, typer.Argument(help="Where to; a tensor becomes a .npy of f32.")],
    *,
    raw: Annotated[
        bool, typer.Option("--raw", help="A tensor's stored bytes instead.")
    ] = False,
) -> None:
    """Take one part out of a container into a file of its own."""
    from cmfio.atomic import refuse_same, replacing
    from cmfio.listing import part_bytes
    from cmfio.reader import open_container

    with _speaking(), open_container(path) as container:
        refuse_same(out, (file.path for file in container.files))
        data = part_bytes(container, part, raw=raw)
        with replacing(out) as file:
            file.write(data)
    _print(f"{out}: {len(data):,} bytes")


@app.command()
def import_gguf(
    gguf_path: Annotated[
        Path, typer.Argument(help="A GGUF file of a llama or qwen3 model.")
    ],
    out: Annotated[Path, typer.Argument(help="The .cmf to write.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Turn a GGUF model into a container: matrices f16, norms f32, tokenizer rebuilt."""
    from rich.console import Console
    from rich.progress import Progress

    from cmfio.gguf import import_gguf as run_import

    with _speaking(), Progress(console=Console(stderr=True)) as bars:
        bar = bars.add_task(f"importing {gguf_path.name}")
        run_import(
            gguf_path,
            out,
            lambda done, total: bars.update(bar, completed=done, total=total),
        )
    size = out.stat().st_size
    _print(
        json.dumps({"path": str(out), "bytes": size})
        if as_json
        else f"{out}: {size:,} bytes"
    )


@contextmanager
def _speaking() -> Iterator[None]:
    """Turn the room's errors into one line on stderr and an exit code."""
    try:
        yield
    except CmfError as error:
        sys.stderr.write(f"cmf: {error}\n")
        failed = isinstance(error, CmfIoError | DamagedTensor)
        raise typer.Exit(EXIT_FAILURE if failed else EXIT_BAD_INPUT) from None


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    main()
