"""Each case of docs/reliability.md has a test that is named after its number."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"


def test_each_case_names_a_test_of_its_number() -> None:
    rows = list(re.finditer(r"^\| ([A-G]\d+) .*$", PAGE.read_text("utf-8"), re.MULTILINE))
    cases = [row[1] for row in rows]
    assert len(cases) == len(set(cases)) > 40
    for row in rows:
        numbers = {
            number
            for name in re.findall(r"::test_((?:[a-g]\d+_)+)", row[0])
            for number in name.upper().rstrip("_").split("_")
        }
        assert row[1] in numbers, row[0]
