"""`cmf`: the command line, only wiring. No torch; imports wait until they are needed."""

import json
from pathlib import Path
from typing import Annotated

import typer

from cmfio.cli_output import EXIT_FAILURE, bar, refusing, say, speaking
from cmfio.cli_words import Commands, VersionAsked

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)
ModelPath = Annotated[
    Path, typer.Argument(help="A .cmf file; of several shards the first.")
]
NewModel = Annotated[Path, typer.Argument(help="The .cmf to write.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON value instead.")]
ShardGb = Annotated[
    float | None,
    typer.Option("--shard-max-gb", help="Cut into files of at most so many 10^9 bytes."),
]
MOST_GB = 10**9  # 10^18 bytes: beyond any file system
Threads = Annotated[int, typer.Option(min=1, help="Threads that encode.")]


def main() -> None:
    """The console script."""
    app()


@app.callback()
def program(is_version_asked: VersionAsked = False) -> None:
    """Look into .cmf model containers, check, compare, convert, import, export."""


@app.command()
def info(path: ModelPath, *, as_json: AsJson = False) -> None:
    """Say what a model is: family, parameters, bytes by dtype, draft, provenance."""
    from cmfio.listing import summarise
    from cmfio.reader import open_container

    with speaking(), open_container(path) as container:
        summary = summarise(container)
    say(*([json.dumps(summary.to_json())] if as_json else summary.to_lines()))


@app.command()
def tensors(
    path: ModelPath,
    *,
    sort: Annotated[
        str, typer.Option(help="file, name, bytes (largest first) or dtype.")
    ] = "file",
    pattern: Annotated[
        str | None, typer.Option("--filter", help="Only names like this, e.g. '*.mtp.*'.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List tensors: dtype, shape, bytes, name."""
    from cmfio.reader import open_container
    from cmfio.tensor_list import matching, order_named, ordered, tensor_json, tensor_line

    with speaking(), open_container(path) as container:
        entries = ordered(matching(container, pattern), order_named(sort))
    if as_json:
        say(json.dumps([tensor_json(entry) for entry in entries]))
    else:
        say(*map(tensor_line, entries))


@app.command()
def verify(path: ModelPath, *, as_json: AsJson = False) -> None:
    """Compare all recorded hashes with the bytes: exit 0 intact, 1 damaged, 2 refused."""
    from cmfio.reader import open_container
    from cmfio.verify import verify as find_problems

    with refusing(as_json=as_json), open_container(path) as container:
        with bar(f"checking {path.name}") as progress:
            problems = find_problems(container, progress)
        count = len(container.entries)
    if as_json:
        say(json.dumps({"error": None, "problems": problems}))
    else:
        say(*(problems or [f"{path}: intact, {count} tensors"]))
    if problems:
        raise typer.Exit(EXIT_FAILURE)


@app.command()
def diff(
    a: Annotated[Path, typer.Argument(help="One model.")],
    b: Annotated[Path, typer.Argument(help="Another.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Say which tensors and header keys of two models differ: exit 0 none, 1 some."""
    from cmfio.diff import compare
    from cmfio.reader import open_container

    with (
        speaking(),
        open_container(a) as one,
        open_container(b) as other,
        bar("comparing") as progress,
    ):
        found = compare(one, other, progress)
    say(*([json.dumps(found.to_json())] if as_json else found.to_lines()))
    if not found.is_empty:
        raise typer.Exit(EXIT_FAILURE)


@app.command()
def sizes(path: ModelPath, *, as_json: AsJson = False) -> None:
    """Say what the draft and the model would weigh in every codec; writes nothing."""
    from cmfio.reader import open_container
    from cmfio.sizes import sizes as weigh
    from cmfio.sizes import sizes_table

    with speaking(), open_container(path) as container:
        found = weigh(container)
    as_one = [json.dumps([size.to_json() for size in found])]
    say(*(as_one if as_json else sizes_table(found)))


@app.command()
def convert(  # noqa: PLR0913 — a command's options
    path: ModelPath,
    out: NewModel,
    *,
    codec: Annotated[
        str, typer.Option(help="keep, a codec (a dtype's name is one), or profile:NAME.")
    ] = "keep",
    only: Annotated[
        str | None, typer.Option(help="Only names like this, e.g. 'model.mtp.*'.")
    ] = None,
    shard_max_gb: ShardGb = None,
    threads: Threads = 1,
    as_json: AsJson = False,
) -> None:
    """Write a copy with some tensors encoded anew; all else is copied as it is."""
    from cmfio.convert import convert as run_convert
    from cmfio.reader import open_container
    from cmfio.writer import Output

    title = f"writing {out.name}"
    with speaking(), open_container(path) as source, bar(title) as progress:
        output = Output(_bytes(shard_max_gb), threads, progress)
        paths = run_convert(source, out, codec, only=only, output=output)
    _say_written(paths, as_json=as_json)


@app.command()
def dump(
    path: ModelPath,
    name: Annotated[str, typer.Argument(help="A tensor's name.")],
    out: Annotated[Path, typer.Argument(help="The .npy to write.")],
) -> None:
    """Write a tensor's values as .npy: f32, or the whole numbers it holds."""
    from cmfio.extract import dump_tensor
    from cmfio.reader import open_container

    with speaking(), open_container(path) as container:
        dump_tensor(container, name, out)
    _say_written([out], as_json=False)


@app.command()
def extract(
    path: ModelPath,
    part: Annotated[
        str, typer.Argument(help="tokenizer, header, masks, index, or a tensor's name.")
    ],
    out: Annotated[Path, typer.Argument(help="The file to write.")],
) -> None:
    """Write one part as it is stored: the tokenizer.json, the header, a tensor's bytes."""
    from cmfio.extract import extract_part
    from cmfio.reader import open_container

    with speaking(), open_container(path) as container:
        extract_part(container, part, out)
    _say_written([out], as_json=False)


@app.command()
def import_gguf(
    gguf_path: Annotated[
        Path, typer.Argument(help="A GGUF file of a llama or qwen3 model.")
    ],
    out: NewModel,
    *,
    as_json: AsJson = False,
) -> None:
    """Turn a GGUF model into a container: matrices f16, norms f32, tokenizer rebuilt."""
    from cmfio.gguf import import_gguf as run_import

    with speaking(), bar(f"importing {gguf_path.name}") as progress:
        run_import(gguf_path, out, progress)
    _say_written([out], as_json=as_json)


@app.command()
def import_hf(
    folder: Annotated[
        Path, typer.Argument(help="A folder with config.json and safetensors files.")
    ],
    out: NewModel,
    *,
    shard_max_gb: ShardGb = None,
    as_json: AsJson = False,
) -> None:
    """Turn a Hugging Face checkpoint into a container, every tensor in its own dtype."""
    from cmfio.hf_import import import_hf as run_import
    from cmfio.writer import Output

    with speaking(), bar(f"importing {folder.name}") as progress:
        output = Output(_bytes(shard_max_gb), progress=progress)
        paths = run_import(folder, out, output)
    _say_written(paths, as_json=as_json)


@app.command()
def export_hf(
    path: ModelPath,
    folder: Annotated[Path, typer.Argument(help="The folder to make.")],
    *,
    dtype: Annotated[
        str, typer.Option(help="f32, f16 or bf16, for tensors stored by a codec.")
    ] = "f16",
    shard_max_gb: ShardGb = None,
    as_json: AsJson = False,
) -> None:
    """Write a Hugging Face checkpoint; tensors stored as floats keep their dtype."""
    from cmfio.hf_export import export_hf as run_export
    from cmfio.reader import open_container
    from cmfio.writer import Output

    title = f"writing {folder.name}"
    with speaking(), open_container(path) as source, bar(title) as progress:
        output = Output(_bytes(shard_max_gb), progress=progress)
        paths = run_export(source, folder, dtype, output)
    _say_written(paths, as_json=as_json)


def _bytes(gigabytes: float | None) -> int | None:
    if gigabytes is None:
        return None
    if not 0 < gigabytes <= MOST_GB:
        raise typer.BadParameter(f"--shard-max-gb must be above 0, at most {MOST_GB:,}")
    return round(gigabytes * 1e9)


def _say_written(paths: list[Path], *, as_json: bool) -> None:
    sizes = {str(path): path.stat().st_size for path in paths}
    if as_json:
        say(json.dumps([{"path": path, "bytes": size} for path, size in sizes.items()]))
    else:
        say(*(f"{path}: {size:,} bytes" for path, size in sizes.items()))


if __name__ == "__main__":
    main()
