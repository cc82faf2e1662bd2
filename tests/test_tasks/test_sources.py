"""What a data set may be, and the records that are read from it."""

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet
import pytest

from conf.schema import DataSpec
from store.digests import FileDigests
from tasks.errors import InputError
from tasks.sources import DataSet, absence, gather, kind_of, open_set, parse_spec, weigh

Row = dict[str, object]

ROWS: list[Row] = [
    {"ids": [5, 6, 7], "split": "train"},
    {"ids": [8], "split": "valid"},
    {"ids": [9, 10], "split": "train"},
    {"ids": [], "split": "train"},
]


@pytest.fixture
def digests(tmp_path: Path) -> FileDigests:
    return FileDigests(tmp_path / "digests")


def write_table(path: Path, rows: Sequence[Row]) -> Path:
    """The rows in the format that the path's suffix names."""
    table = pa.Table.from_pylist(list(rows))
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(table, path, row_group_size=2)
    elif path.suffix == ".arrow":
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as out:
            out.write_table(table, max_chunksize=2)
    else:
        path.write_text("\n".join(json.dumps(row) for row in rows) + "\n\n")
    return path


def records(data: DataSet) -> list[str | list[int]]:
    return gather(data, range(len(weigh(data, 1 << 20))), 1 << 20)


@pytest.mark.parametrize(
    ("spec", "path", "tokens"),
    [
        ("text/code@200000", "text/code", 200_000),
        ("text/code", "text/code", 393_216),
        ("me@home/text@50", "me@home/text", 50),
        ("me@home/text", "me@home/text", 393_216),
        ("text@1.5", "text@1.5", 393_216),
        ("text@-5", "text@-5", 393_216),
    ],
)
def test_only_an_integer_behind_the_last_at_is_a_cap(
    spec: str, path: str, tokens: int
) -> None:
    assert parse_spec(spec) == DataSpec(path=path, tokens=tokens)


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".jsonl"])
def test_a_table_of_ids_less_what_is_not_for_training(
    tmp_path: Path, digests: FileDigests, suffix: str
) -> None:
    path = write_table(tmp_path / f"own{suffix}", ROWS)
    data = open_set(f"{path}@50", digests)
    assert (data.name, data.tokens, kind_of(data)) == (f"own{suffix}", 50, "ids")
    assert weigh(data, 1) == [3, 2, 0]
    assert records(data) == [[5, 6, 7], [9, 10], []]
    assert gather(data, [1, 0], 1) == [[9, 10], [5, 6, 7]]


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".jsonl"])
def test_a_table_of_text_without_a_split(
    tmp_path: Path, digests: FileDigests, suffix: str
) -> None:
    rows: list[Row] = [{"text": "one", "more": 1}, {"text": "töö", "more": 2}]
    data = open_set(str(write_table(tmp_path / f"a{suffix}", rows)), digests)
    assert (kind_of(data), records(data)) == ("text", ["one", "töö"])


def tree(root: Path) -> Path:
    for name, text in {
        "b.md": "second",
        "a/tests/z.txt": "first",  # no folder of the user's is left out
        "c/deep/x.py": "third",
        ".git/y.txt": "hidden",
        "c/image.png": "no text",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_a_folder_is_read_in_the_order_of_its_paths(
    tmp_path: Path, digests: FileDigests
) -> None:
    data = open_set(str(tree(tmp_path / "prose")), digests)
    assert data.name == "prose"
    assert records(data) == ["first", "second", "third"]
    assert weigh(data, 1 << 20) == [5, 6, 5]
    assert gather(data, [2], 1 << 20) == ["third"]


def test_a_glob_and_a_file_of_any_suffix(tmp_path: Path, digests: FileDigests) -> None:
    root = tree(tmp_path / "prose")
    data = open_set(DataSpec(path=f"{root}/**/*.md", name="notes"), digests)
    assert (data.name, records(data)) == ("notes", ["second"])
    assert records(open_set(f"{root}/**/*.txt", digests)) == ["first"]
    assert records(open_set(f"{root}/c/image.png", digests)) == ["no text"]


def test_a_folder_of_tables_is_one_set(tmp_path: Path, digests: FileDigests) -> None:
    write_table(tmp_path / "2.jsonl", [{"ids": [2]}])
    write_table(tmp_path / "1.parquet", [{"ids": [1]}])
    assert records(open_set(f"{tmp_path}/*.*", digests)) == [[1], [2]]


def test_tables_and_text_do_not_mix(tmp_path: Path, digests: FileDigests) -> None:
    write_table(tmp_path / "2.jsonl", [{"ids": [2]}])
    (tmp_path / "1.txt").write_text("a")
    with pytest.raises(InputError, match="mixes tables and text"):
        open_set(str(tmp_path), digests)


@pytest.mark.parametrize("content", [b"CMF\x01\x00\x00", "text".encode("utf-16")])
def test_what_is_no_text_is_refused(
    tmp_path: Path, digests: FileDigests, content: bytes
) -> None:
    (tmp_path / "a.txt").write_text("text")
    (tmp_path / "b.txt").write_bytes(content)
    with pytest.raises(InputError, match=r"b\.txt: is no text, byte \d is zero"):
        open_set(str(tmp_path), digests)
    assert open_set(f"{tmp_path}/a.txt", digests).kind == "text"


def test_a_digest_is_of_the_bytes_in_their_order(
    tmp_path: Path, digests: FileDigests
) -> None:
    def digest(**files: str) -> str:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        for name, text in files.items():
            (folder / f"{name}.txt").write_text(text)
        return open_set(str(folder), digests).content_digest

    assert digest(a="x", b="y") == digest(c="x", d="y")
    assert digest(a="x", b="y") != digest(a="y", b="x")
    assert digest(a="x", b="y") != digest(a="xy")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.jsonl", '{"ids": [1]}\n{"ids": [1\n', "line 2 is not JSON"),
        ("a.jsonl", "[1, 2]\n", "line 1 is no JSON object"),
        ("a.jsonl", '{"tokens": [1]}\n', "has the columns tokens; it needs a list column"),
        ("a.jsonl", '{"text": "a"}\n{"text": 5}\n', "`text` is 5, not a string"),
        ("a.jsonl", '{"ids": [1]}\n{"text": "a"}\n', "`ids` is None, not a list"),
        ("a.parquet", "PAR1 and nothing else", "is no readable parquet file"),
        ("a.arrow", "ARROW1 and nothing else", "is no readable arrow file"),
    ],
)
def test_what_cannot_be_read_is_named(
    tmp_path: Path, digests: FileDigests, name: str, content: str, words: str
) -> None:
    (tmp_path / name).write_text(content)
    data = open_set(str(tmp_path / name), digests)
    with pytest.raises(InputError, match=words):
        records(data)


def test_a_table_cut_short_is_named(tmp_path: Path, digests: FileDigests) -> None:
    path = write_table(tmp_path / "a.arrow", ROWS * 50)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(InputError, match=r"a\.arrow: is no readable arrow file"):
        records(open_set(str(path), digests))


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_a_tables_text_that_is_not_utf8_is_named(
    tmp_path: Path, digests: FileDigests, suffix: str
) -> None:
    rows = pa.array([b"one", b"two", b"caf\xe9", b"four"]).view(pa.string())
    path, table = tmp_path / f"a{suffix}", pa.table({"text": rows})
    if suffix == ".parquet":
        pyarrow.parquet.write_table(table, path)
    else:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as out:
            out.write_table(table, max_chunksize=2)
    with pytest.raises(InputError, match=rf"a\{suffix}: row 2, .* is not UTF-8: .* 0xe9"):
        records(open_set(str(path), digests))


def test_half_a_character_is_no_text(tmp_path: Path, digests: FileDigests) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "\\ud83d\\ude00 yes, \\ud83d no"}\n')
    with pytest.raises(InputError, match=r"set a\.jsonl: .* half a character, '\\ud83d'"):
        records(open_set(str(tmp_path / "a.jsonl"), digests))


def test_the_help_texts_that_every_python_carries(digests: FileDigests) -> None:
    topics = open_set("python:topics", digests)
    assert any('The "assert" statement' in str(text) for text in records(topics))


def test_the_standard_library_less_tests_and_packages(
    tmp_path: Path, digests: FileDigests, monkeypatch: pytest.MonkeyPatch
) -> None:
    stdlib = tmp_path / "python3"
    for name in ("abc.py", "json/tool.py", "json/notes.txt", "json/tests/a.py"):
        (stdlib / name).parent.mkdir(parents=True, exist_ok=True)
        (stdlib / name).write_text(name)
    (stdlib / "site-packages").mkdir()
    (stdlib / "site-packages" / "b.py").write_text("b")
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(stdlib))
    (tmp_path / "own.py").write_text("own")
    assert records(open_set("python:stdlib", digests)) == ["abc.py", "json/tool.py"]
    assert records(open_set("python:stdlib/json", digests)) == ["json/tool.py"]


@pytest.mark.parametrize(
    "other",
    ["docs", "stdlib/no_such", "stdlib/abc.py", "stdlib/..", "stdlib//etc", "topics/a"],
)
def test_other_text_of_pythons_is_unknown(digests: FileDigests, other: str) -> None:
    with pytest.raises(InputError, match="known are python:topics, python:stdlib and its"):
        open_set(f"python:{other}", digests)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("prose@x", "if 'x' behind @ is to cap the tokens taken, write a whole number, as"),
        ("prose@5_000", "whole number, as `prose@5000`"),
        ("me@home/prose", "there is no such file, folder or match; give a .parquet"),
        (DataSpec(path="prose@50"), "whole number, as `tokens: 5000` beside the path"),
        ("", "names no path; give a .parquet"),
        ("@50", "names no path; give a .parquet"),
        ("x" * 5000, "cannot be read: File name too long"),
    ],
)
def test_what_is_not_there_is_told_with_what_to_write(
    digests: FileDigests, spec: DataSpec | str, said: str
) -> None:
    found = absence(spec)
    assert found is not None
    assert said in found
    with pytest.raises(InputError) as caught:
        open_set(spec, digests)
    assert str(caught.value) == f"data: {found}"


def test_what_is_there_is_not_absent(tmp_path: Path) -> None:
    (tmp_path / "me@home").mkdir()
    (tmp_path / "me@home" / "prose.txt").touch()
    for spec in (f"{tmp_path}/me@home", f"{tmp_path}/me@home@50", f"{tmp_path}/*/*.txt@5"):
        assert absence(spec) is None
    assert absence("python:topics@50") is None
