"""docs/reliability.md names tests that exist, one at least in every row."""

import re
from pathlib import Path

HERE = Path(__file__).parent


def test_every_row_names_tests_that_exist() -> None:
    page = (HERE.parents[1] / "docs" / "reliability.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 30
    defined = {
        name
        for path in HERE.glob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
    }
    for row in rows:
        named = re.findall(r"\btest_\w+(?!\.py)\b", row.rsplit("|", 2)[1])
        named = [name for name in named if not (HERE / f"{name}.py").exists()]
        assert named, row
        assert set(named) <= defined, row
