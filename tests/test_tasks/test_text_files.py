"""Pieces of text files: nothing lost, nothing twice, borders where a reader would cut."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.digests import FileDigests
from tasks.set_records import take_texts
from tasks.sources import open_set
from tasks.text_files import Pieces


def cut(files: list[Path], piece_bytes: int) -> Pieces:
    return Pieces(files, [file.stat().st_size for file in files], piece_bytes)


def pieces_of(files: list[Path], piece_bytes: int) -> list[str]:
    pieces = cut(files, piece_bytes)
    return [pieces.read(place) for place in range(len(pieces.sizes()))]


@given(st.text(alphabet="ab\n\nö→😀"), st.integers(4, 40))
def test_the_pieces_are_the_text(
    tmp_path_factory: pytest.TempPathFactory, text: str, piece_bytes: int
) -> None:
    file = tmp_path_factory.mktemp("text") / "a.txt"
    file.write_bytes(text.encode())
    assert "".join(pieces_of([file], piece_bytes)) == text


def test_a_border_is_behind_a_blank_line_else_a_line_else_a_character(
    tmp_path: Path,
) -> None:
    texts = ["12345\n\n789\nx\n", "123456789\n12", "öööööööö", ""]
    files = [tmp_path / f"{n}.txt" for n in range(len(texts))]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text)
    assert pieces_of(files, 5) == [
        *("12345\n\n", "789\n", "x\n"),
        *("123456789\n", "", "12"),
        *("ööö", "öö", "ööö", ""),
    ]
    assert cut(files, 5).sizes() == [5, 5, 3, 5, 5, 2, 5, 5, 5, 1]


def test_a_border_that_is_one_already_stays(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("abc\n\nabc\n\nabc")
    assert pieces_of([file], 5) == ["abc\n\n", "abc\n\n", "abc"]


def test_a_small_cap_is_a_sample_of_all_files(tmp_path: Path) -> None:
    for name in "abcd":
        (tmp_path / f"{name}.txt").write_text(f"{name * 63}\n" * 1024)
    data = open_set(str(tmp_path), FileDigests(tmp_path / "digests"))
    texts = take_texts(data, 20 * 4096)
    assert len(texts) == 20
    assert {text[0] for text in texts} == set("abcd")
