"""Pieces of text files: nothing lost, nothing twice, borders where a reader would cut."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.digests import FileDigests
from tasks.errors import InputError
from tasks.set_records import take_texts
from tasks.sources import open_set
from tasks.text_files import LOOKED_AT_BYTES, Pieces


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


EURO_AT_A_BLOCKS_END = b"x" * (LOOKED_AT_BYTES - 1) + "€".encode()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("ein Café".encode("latin-1"), "byte 7 is 0xe9"),
        ("日本".encode("utf-16"), "byte 0 is 0xff"),
        (b"half a surrogate \xed\xa0\x80", "byte 17 is 0xed"),
        ("cut short €".encode()[:-1], "byte 10 is 0xe2"),
        (EURO_AT_A_BLOCKS_END[:-1], "byte 8,191 is 0xe2"),
        (EURO_AT_A_BLOCKS_END + b"\xe9", "byte 8,194 is 0xe9"),
        (b"x" * (3 << 20) + b"\xe9x", "byte 3,145,728 is 0xe9"),
    ],
)
def test_text_of_another_encoding_is_refused_with_the_byte(
    tmp_path: Path, content: bytes, said: str
) -> None:
    folder = tmp_path / "d"
    folder.mkdir()
    (folder / "a.txt").write_text("Café", encoding="utf-8")
    (folder / "b.txt").write_bytes(content)
    for _ in range(2):  # and nothing is remembered of it
        with pytest.raises(InputError, match=rf"b\.txt: is not UTF-8, {said}; give UTF-8"):
            open_set(str(folder), FileDigests(tmp_path / "digests"))


def test_a_large_file_is_looked_through_once_and_again_when_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, digests = tmp_path / "a.txt", FileDigests(tmp_path / "digests")
    file.write_bytes(EURO_AT_A_BLOCKS_END * 20)
    digest = open_set(str(file), digests).content_digest
    with monkeypatch.context() as shut:
        shut.setattr("tasks.text_files._refuse_other", None)
        assert open_set(str(file), digests).content_digest == digest
    file.write_bytes(EURO_AT_A_BLOCKS_END * 20 + b"\xe9")
    with pytest.raises(InputError, match=r"is not UTF-8, byte 163,880 is 0xe9"):
        open_set(str(file), digests)


def test_a_piece_that_is_no_text_any_more_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(b"12345\n\ncaf\xe9\n")
    assert cut([file], 5).read(0) == "12345\n\n"
    with pytest.raises(InputError, match=r"a\.txt: is not UTF-8, byte 10 is 0xe9"):
        cut([file], 5).read(1)
