"""Under which licence each pinned package is, by its own metadata; writes docs/licences.md.

    pip install -c constraints.txt -e '.[gguf,dask,kubernetes,ray,s3,dev]'
    python -m bench.licences

Run where everything of constraints.txt is installed, as above; what is not is refused by
name, since nobody could be asked, and so is a pin that nothing asks for.
"""

import re
import tomllib
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/licences.md"
HEAD = """# Licences

mtp-heal is under Apache-2.0 ([LICENSE](../LICENSE)). It holds no code of others: `pip`
installs beside it what is listed here, each package under its own licence. The words are
those of its metadata; where they name several, read its own files. *For* says who asks for
it: `heal` is in every installation, an extra where it is named, `dev` is for tests alone.

`python -m bench.licences` writes this page; a test holds it against `constraints.txt`.

| package | version | licence | for |
| --- | --- | --- | --- |
"""


@dataclass(frozen=True)
class Wanted:
    """A requirement as a package spells it: `ray[client]>=2.50; extra == 'ray'`."""

    name: str
    extras: frozenset[str]
    only_with: frozenset[str]


def main() -> None:
    """Writes the page."""
    PAGE.write_text(page(), encoding="utf-8")


def page() -> str:
    """The whole page, a row a pin in the order of constraints.txt.

    Raises SystemExit with the pins that are not installed, or that nothing asks for.
    """
    pinned, asked = pins(), asked_by()
    installed = {canonicalize_name(found.name) for found in metadata.distributions()}
    _refuse(pinned.keys(), installed, "not installed")
    _refuse(pinned.keys(), asked.keys(), "pinned, but nothing asks for it")
    rows = [
        f"| {name} | {version} | {licence(name)} | "
        f"{', '.join(asked[canonicalize_name(name)])} |\n"
        for name, version in pinned.items()
    ]
    return HEAD + "".join(rows)


def _refuse(names: Iterable[str], known: Container[str], why: str) -> None:
    left = [name for name in names if canonicalize_name(name) not in known]
    if left:
        raise SystemExit(f"{why}: {', '.join(left)}")


def pins() -> dict[str, str]:
    """Versions by name, as constraints.txt has them."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if line and line[0] != "#"]
    return dict(pairs)


def licence(name: str) -> str:
    """What a package's metadata say: an SPDX expression, else classifiers, else words.

    Raises PackageNotFoundError for one that is not installed, LookupError for a silent one.
    """
    told = metadata.metadata(name)
    if "License-Expression" in told:
        return told["License-Expression"]
    classes = told.get_all("Classifier") or []
    named = [c.rpartition(" :: ")[2] for c in classes if c.startswith("License ::")]
    words = told["License"].partition("\n")[0] if "License" in told else ""
    if not named and not words:
        raise LookupError(
            f"{name}: its metadata name no licence; look it up and add a case"
        )
    return " / ".join(named) or words


def asked_by() -> Mapping[str, Sequence[str]]:
    """Who reaches each package: `heal`, or the extras without which it is not installed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    plain = reached(project["dependencies"])
    found: dict[str, list[str]] = {name: ["heal"] for name in plain}
    for extra, lines in project["optional-dependencies"].items():
        for name in reached(lines) - plain:
            found.setdefault(name, []).append(extra)
    return {name: who if who == ["dev"] else _shipped(who) for name, who in found.items()}


def _shipped(who: Sequence[str]) -> list[str]:
    return sorted(name for name in who if name != "dev")


def reached(lines: Sequence[str]) -> set[str]:
    """Every installed package that these requirements lead to, themselves among them."""
    seen: set[tuple[str, frozenset[str]]] = set()
    left = [wanted(line) for line in lines]
    while left:
        one = left.pop()
        if (one.name, one.extras) not in seen:
            seen.add((one.name, one.extras))
            left += [
                w for w in _below(one.name) if not w.only_with or w.only_with & one.extras
            ]
    return {name for name, _ in seen}


def _below(name: str) -> Iterator[Wanted]:
    try:
        lines = metadata.requires(name) or []
    except metadata.PackageNotFoundError:  # of another platform
        return
    yield from map(wanted, lines)


def wanted(line: str) -> Wanted:
    """A requirement's name, the extras it asks for, and those under which it holds."""
    said = Requirement(line)
    only = re.findall(r"extra\s*==\s*['\"]([\w.-]+)['\"]", str(said.marker or ""))
    return Wanted(canonicalize_name(said.name), frozenset(said.extras), frozenset(only))


if __name__ == "__main__":
    main()
