"""Each case of docs/reliability.md has a test that is named after its number."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"


def test_each_case_names_a_test_of_its_number() -> None:
    rows = re.findall(r"^\| ([A-G]\d+) .*$", PAGE.read_text("utf-8"), re.MULTILINE)
    assert len(rows) == len(set(rows)) > 40
    for row in re.finditer(r"^\| ([A-G]\d+) .*$", PAGE.read_text("utf-8"), re.MULTILINE):
        numbers = {
            number
            for name in re.findall(r"::test_((?:[a-g]\d+_)+)", row[0])
            for number in name.upper().rstrip("_").split("_")
        }
        assert row[1] in numbers, row[0]
