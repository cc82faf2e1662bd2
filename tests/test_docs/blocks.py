"""The fenced blocks of a Markdown page, and the commands in them.

A block that cannot run where the docs are checked says why in a comment above it:

    <!-- not run: needs a card -->

and one that does in small begins with the name of the file it is: `# mine.yaml`.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Fences that hold no commands: units, results, formulas.
TOLD = ("", "ini", "json")
FENCE = re.compile(r"^```(\w*)$")
REASON = re.compile(r"^<!-- not run: (\S.*\S) -->$")
HEREDOC = re.compile(r"^cat > (\S+) <<'(\w+)'\n(.*?)^\2$", re.MULTILINE | re.DOTALL)
BETWEEN = frozenset({"&&", "||", "|", ";", "&", "(", ")"})


@dataclass(frozen=True)
class Block:
    """One fenced block: its page, the line its fence is on, its language, its text."""

    page: str
    line: int
    language: str
    text: str
    reason: str | None

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def file_name(self) -> str | None:
        """The file that a yaml or python block says it is, in its first line."""
        found = re.match(r"# ([\w./-]+\.(?:yaml|py))\b", self.text)
        return found[1] if found else None


def pages() -> list[Path]:
    """README and everything below docs."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks_of(path: Path) -> list[Block]:
    """Every fenced block of a page; ValueError for a fence that nothing closes."""
    lines = path.read_text(encoding="utf-8").splitlines()
    page = path.name if not path.is_relative_to(ROOT) else str(path.relative_to(ROOT))
    found: list[Block] = []
    number = 0
    while number < len(lines):
        opened = FENCE.match(lines[number])
        if opened:
            end = _closing(lines, number, page)
            above = next((x for x in reversed(lines[:number]) if x.strip()), "")
            said = REASON.match(above)
            text = "\n".join(lines[number + 1 : end]) + "\n"
            reason = said[1] if said else None
            found.append(Block(page, number + 1, opened[1], text, reason))
            number = end
        number += 1
    return found


def _closing(lines: list[str], opened: int, page: str) -> int:
    for number in range(opened + 1, len(lines)):
        if lines[number] == "```":
            return number
    raise ValueError(f"{page}:{opened + 1}: nothing closes this block")


def all_blocks() -> list[Block]:
    return [block for path in pages() for block in blocks_of(path)]


def prose_of(path: Path) -> str:
    """A page without its fenced blocks."""
    kept, is_inside = [], False
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            is_inside = not is_inside
        elif not is_inside:
            kept.append(line)
    return "\n".join(kept)


def commands_in(text: str) -> Iterator[list[str]]:
    """Each simple command's words, without variables set before it; no here-documents."""
    bare = HEREDOC.sub("", text).replace("\\\n", " ")
    for line in bare.splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars="&|;()<>")
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, ";"]:
            if word not in BETWEEN:
                words.append(word)
            elif words:
                yield _bare(words)
                words = []


def _bare(words: list[str]) -> list[str]:
    while words and re.match(r"[A-Z_]+=", words[0]):
        words = words[1:]
    return [words[0].removeprefix(".venv/bin/"), *words[1:]] if words else []


def files_written(text: str) -> dict[str, str]:
    """Files that a shell block writes as here-documents, by name."""
    return {name: body for name, _, body in HEREDOC.findall(text)}
