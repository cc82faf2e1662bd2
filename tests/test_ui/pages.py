"""A strict reader of pages on the standard library's parser, and of tables; not of ui."""

from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

from starlette.testclient import TestClient

VOID = {"meta", "link", "br", "hr", "img", "input"}


@dataclass
class Tag:
    name: str
    attrs: dict[str, str]
    parents: tuple[str, ...]


@dataclass
class Page(HTMLParser):
    """All tags with their ancestors, and the text but the style; unbalanced tags raise."""

    tags: list[Tag] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    css: str = ""
    open: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        if len(names) != len(set(names)):
            raise AssertionError(f"<{tag}> repeats an attribute: {names}")
        self.tags.append(
            Tag(tag, {name: value or "" for name, value in attrs}, tuple(self.open))
        )
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open[-1] != tag:
            raise AssertionError(f"</{tag}> closes {self.open[-3:]} at {self.getpos()}")
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "style":
            self.css += data
        else:
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).replace("\u00a0", " ").split())


def read_page(html: str) -> Page:
    page = Page()
    page.feed(html)
    page.close()
    if page.open:
        raise AssertionError(f"never closed: {page.open}")
    return page


def compared_rows(client: TestClient, table: str, query: str) -> list[dict[str, Any]]:
    """A table of the comparison that a query asks for."""
    answer = client.get(f"/api/compare/{table}.json?{query}")
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["rows"]
    return found
