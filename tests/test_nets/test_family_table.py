"""The pages say which models can be run, as the code does."""

from pathlib import Path

import pytest

from nets.family_table import families_table

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", ["README.md", "docs/nets.md"])
def test_the_page_has_the_table_the_code_makes(page: str) -> None:
    made = families_table()
    assert made.strip() in (ROOT / page).read_text("utf-8"), (
        f"run `python -m nets.family_table` and put its table in {page}"
    )
