"""The files that a folder or a glob means: links, loops, and what is no file."""

import glob
import os
import socket
import threading
from itertools import product
from pathlib import Path

import pytest

from store.digests import FileDigests
from tasks.data_files import matches
from tasks.errors import InputError
from tasks.sources import absence, gather, open_set, weigh


def texts(root: Path, spec: str) -> list[str]:
    data = open_set(spec, FileDigests(root / "digests"))
    found = gather(data, range(len(weigh(data, 1 << 20))), 1 << 20)
    return [str(text) for text in found]


def refusal(root: Path, spec: Path | str) -> str:
    """What is said of a data set, which must not wait for anyone to write into a pipe."""
    said: list[str] = []

    def look() -> None:
        with pytest.raises(InputError) as caught:
            open_set(str(spec), FileDigests(root / "digests"))
        said.append(str(caught.value))

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    looking.join(10)
    assert said, "it refused nothing, or waits"
    return said[0]


def write(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.txt").write_text(text)
    return folder


def ways(folder: Path) -> list[str]:
    return [str(folder), f"{folder}/**/*.txt"]


def test_an_ending_is_one_in_capitals_too(tmp_path: Path) -> None:
    folder = write(tmp_path / "d", a="a")
    (folder / "B.TXT").write_text("b")
    assert sorted(texts(tmp_path, str(folder))) == ["a", "b"]
    (tmp_path / "T.JSONL").write_text('{"text": "t"}\n')
    assert texts(tmp_path, str(tmp_path / "T.JSONL")) == ["t"]


def test_what_of_a_folder_is_left_out_is_told(tmp_path: Path) -> None:
    folder = write(tmp_path / "d", a="a")
    digests = FileDigests(tmp_path / "digests")
    (folder / ".hidden.png").write_text("")
    assert open_set(str(folder), digests).left_out() is None
    (folder / "in").mkdir()
    for name in ("x.png", "in/y.PNG", "in/Makefile"):
        (folder / name).write_text("")
    said = open_set(str(folder), digests).left_out()
    assert said == "1 files; left out by their ending: 2 .png, 1 without any"
    assert open_set(str(folder / "a.txt"), digests).left_out() is None


@pytest.mark.parametrize("name", ["p.txt", "p.jsonl"])
def test_a_pipe_is_refused_and_never_opened(tmp_path: Path, name: str) -> None:
    folder = write(tmp_path / "d", a="a")
    os.mkfifo(folder / name)
    for spec in (folder, f"{folder}/**/*", f"{folder}/*", folder / name):
        said = refusal(tmp_path, spec)
        assert said.startswith(f"data: {folder / name}: is a pipe, not a file; remove it")


def test_sockets_and_devices_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(write(tmp_path / "d", a="a"))  # a socket's path is short
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("s.txt")
        assert refusal(tmp_path, ".").startswith("data: s.txt: is a socket, not a file;")
        Path("s.txt").unlink()
    Path("z.txt").symlink_to("/dev/zero")
    assert refusal(tmp_path, ".").startswith("data: z.txt: is a device, not a file;")


def test_what_is_no_text_by_its_name_is_left_out_whatever_it_is(tmp_path: Path) -> None:
    folder = write(tmp_path / "d", a="a")
    os.mkfifo(folder / "pipe")
    (folder / "image.png").symlink_to("nowhere.png")
    (folder / ".lock").symlink_to("nowhere")
    assert texts(tmp_path, str(folder)) == ["a"]


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("b.txt", "b.txt"),
        ("b.txt", "nowhere.txt"),
        ("b.txt", "a.txt/inside"),
        ("corpus", "nowhere"),  # it may have been a folder of text
    ],
)
def test_a_link_that_leads_nowhere_is_refused(
    tmp_path: Path, name: str, target: str
) -> None:
    folder = write(tmp_path / "d", a="a")
    link = folder / name
    link.symlink_to(target)
    told = f"{link}: is a link that leads nowhere, to {target}; remove it, or point it at"
    for spec in (folder, link, f"{folder}/*"):
        assert refusal(tmp_path, spec).startswith(f"data: {told}")
    assert str(absence(str(link))).startswith(told)


def test_a_link_to_a_folder_above_is_not_followed(tmp_path: Path) -> None:
    folder = write(tmp_path / "all" / "d", a="a", b="b")
    write(tmp_path / "all", beside="beside")
    write(folder / "deep", c="c")
    plain = {spec: open_set(spec, FileDigests(tmp_path / "g")) for spec in ways(folder)}
    for link, target in {
        "loop": ".",
        "second": ".",  # two loops are 2**40 paths
        "up": "..",
        "deep/up": "..",
        "deep/full": str(folder),
        "deep/top": "/",
    }.items():
        (folder / link).symlink_to(target)
    for spec, before in plain.items():
        data = open_set(spec, FileDigests(tmp_path / "digests"))
        assert (data.files, data.content_digest) == (before.files, before.content_digest)
        assert texts(tmp_path, spec) == ["a", "b", "c"]
    assert texts(tmp_path, f"{folder}/*/*.txt") == ["c"]


def test_links_elsewhere_are_followed_and_each_folder_is_read_once(tmp_path: Path) -> None:
    folder = write(tmp_path / "d", m="m")
    write(folder / "z", inside="inside")
    write(tmp_path / "elsewhere" / "deep", far="far")
    (folder / "z" / "file.txt").symlink_to(tmp_path / "elsewhere" / "deep" / "far.txt")
    (folder / "a").symlink_to("z")  # the folder's own path stays the one read
    (folder / "n").symlink_to(tmp_path / "elsewhere")
    (folder / "o").symlink_to(tmp_path / "elsewhere" / "deep")
    (tmp_path / "elsewhere" / "back").symlink_to(folder)
    (tmp_path / "elsewhere" / "round").symlink_to(".")
    for spec in ways(folder):
        data = open_set(spec, FileDigests(tmp_path / "digests"))
        found = [str(file.relative_to(folder)) for file in data.files]
        assert found == ["m.txt", "n/deep/far.txt", "z/file.txt", "z/inside.txt"]
    assert texts(tmp_path, f"{folder}/*/inside.txt") == ["inside"]


def test_two_links_to_folders_one_in_the_other_lose_nothing(tmp_path: Path) -> None:
    write(tmp_path / "data" / "x", inner="inner")
    write(tmp_path / "data", outer="outer")
    folder = write(tmp_path / "d")
    (folder / "a").symlink_to(tmp_path / "data" / "x")
    (folder / "b").symlink_to(tmp_path / "data")
    for spec in ways(folder):
        assert texts(tmp_path, spec) == ["inner", "outer"]


FILES = (
    "ab.txt",
    ".z.txt",
    "a/ab.txt",
    "a/a/c.txt",
    "a/.h/c.txt",
    "x[1]/b.md",
    ".h/a/d.txt",
)
PARTS = ("**", "*", "a*", "*.txt", ".*", "?b.txt", "a", "x[[]1]", "ab.txt")


@pytest.mark.parametrize("length", [1, 2, 3])
def test_a_glob_without_links_is_pythons_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    for name in (*FILES, "b.txt/within.txt"):  # a folder may have any name
        (tmp_path / "d" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "d" / name).touch()
    monkeypatch.chdir(tmp_path / "d")
    for parts in product(PARTS, repeat=length):
        if "ab.txt/**" in "/".join(parts):
            continue  # the file to Python; nothing to us, as `*/**` is to both
        for pattern in ("/".join(parts), "/".join([str(Path.cwd()), *parts])):
            named = map(Path, glob.glob(pattern, recursive=True))  # noqa: PTH207 — the peer
            wanted = {path.resolve() for path in named if path.is_file()}
            found = [path.resolve() for path in matches(pattern)]
            assert sorted(found) == sorted(wanted), pattern
