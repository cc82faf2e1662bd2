"""docs/reliability.md names tests that exist, one at least in every row."""

import re
from pathlib import Path

HERE = Path(__file__).parent
TESTS = HERE.parent


def test_every_row_names_tests_that_exist() -> None:
    page = (HERE.parents[1] / "docs" / "reliability.md").read_text()
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    rows = [line for line in lines if not line.startswith(("| fault |", "| case |"))]
    assert len(rows) > 30
    here = {name for path in HERE.glob("test_*.py") for name in defined_in(path)}
    for row in rows:
        named = row.rsplit("|", 2)[1]
        elsewhere = re.findall(r"(test_\w+/test_\w+\.py)::(test_\w+)", named)
        for file, name in elsewhere:
            assert name in defined_in(TESTS / file), row
        own = re.findall(r"\btest_\w+(?!\.py)\b", re.sub(r"test_\w+/\S+", "", named))
        own = [name for name in own if not (HERE / f"{name}.py").exists()]
        assert own or elsewhere, row
        assert set(own) <= here, row


def defined_in(path: Path) -> set[str]:
    return set(re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE))
