"""docs/codecs.md says what the code does."""

from pathlib import Path

from cmfio.codecs.table import codec_table, profile_table

PAGE = Path(__file__).parents[2] / "docs" / "codecs.md"


def test_the_page_has_the_tables_the_code_makes() -> None:
    rows = [row for row in PAGE.read_text("utf-8").splitlines() if row.startswith("|")]
    made = [*codec_table().splitlines(), *profile_table().splitlines()]
    assert rows == made, "run `python -m cmfio.codecs.table` and put its tables in the page"
