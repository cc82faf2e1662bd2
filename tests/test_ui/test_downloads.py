"""Every table downloads as CSV and JSON, every plot as SVG, on every page of a store."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

from store.store import Store
from tests.test_ui.pages import VOID

if TYPE_CHECKING:
    from starlette.testclient import TestClient

    from tests.inspected import Inspected

TYPES = {
    ".csv": "text/csv",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}
LINK = re.compile(r"/api/[^?]*(\.(?:csv|json|svg|png))(?:\?|$)")


BESIDE = ("figure", "details", "section", "aside", "main")  # the nearest counts


@dataclass
class Node:
    """A part of the page; `kinds` are the downloads in it that are of no part of it."""

    tag: str
    attrs: dict[str, str]
    parent: Node | None
    kinds: set[str] = field(default_factory=set)

    @property
    def around(self) -> list[Node]:
        return [self] if self.parent is None else [self.parent, *self.parent.around]

    @property
    def beside(self) -> list[Node]:
        """What has its own downloads, nearest first; the whole page last."""
        return [one for one in self.around if one.tag in BESIDE or not one.tag]

    @property
    def offered(self) -> set[str]:
        """Downloads beside it; a figure may leave them to its section's head."""
        first, *rest = self.beside
        more = rest[0].kinds if first.tag == "figure" and rest else set()
        return first.kinds | more


class Tree(HTMLParser):
    """Tables, plots and download links of a page, each with what stands around it."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.at = Node("", {}, None)
        self.nodes: list[Node] = []
        self.links: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        node = Node(tag, {name: value or "" for name, value in attrs}, self.at)
        self.nodes.append(node)
        href = node.attrs.get("href", "")
        found = LINK.match(href) if tag == "a" else None
        if found:
            self.links.append(href)
            node.beside[0].kinds.add(found[1])
        if tag not in VOID:
            self.at = node

    def handle_endtag(self, tag: str) -> None:
        assert self.at.parent is not None
        self.at = self.at.parent


def lacking(html: str) -> list[str]:
    """Tables and plots whose figure, details or section offers no download of them.

    A plot is an `svg` with `role="img"`; what only decorates has `aria-hidden`. A strip in
    a table's row is a plot too: its section's SVG holds all of them. A heat map is a PNG.
    """
    found = []
    for node in Tree(html).nodes:
        is_table = node.tag == "table" or node.attrs.get("role") == "table"
        is_plot = node.tag == "svg" and node.attrs.get("role") == "img"
        if not is_table and not is_plot:
            continue
        kinds = node.offered
        is_there = {".csv", ".json"} <= kinds if is_table else kinds & {".svg", ".png"}
        if not is_there:
            where = node.beside[0].attrs.get("id", node.beside[0].tag)
            found.append(f"{node.tag} {node.attrs.get('aria-label', '')} in {where}")
    return found


def pages(seen: Inspected) -> list[str]:
    """Every page of the store: each heal, artifact, array, measure, training and pair."""
    runs = [seen.done, seen.cached, seen.longer, seen.failed, seen.cut, seen.running]
    found = ["/", "/store?keep=1", "/compare", "/nowhere"]
    found += [f"/heal/{run}" for run in runs]
    found += [f"/compare?a={run}" for run in runs]
    found += [f"/compare?a={seen.done}&b={run}" for run in runs]
    for one in Store(seen.root).artifacts():
        found += [f"/stage/{one.name}", f"/store?stage={one.stage}"]
        if one.stage == "train_draft":
            found.append(f"/training/{one.name}")
        if one.stage == "measure_draft":
            found += [f"/windows/{one.name}?c={c}" for c in ("1", "p", "kept")]
        if one.stage in ("trunk_pass", "measure_draft"):
            found += [
                f"/arrays/{one.name}?name={name}" for name in one.manifest.arrays
            ] or [f"/arrays/{one.name}?name={name}" for name in ("hidden", "topk_p")]
    found.append(f"/training/train_draft/{'b' * 32}")
    return list(dict.fromkeys(found))


def test_every_table_and_plot_of_every_page_can_be_taken_along(
    client: TestClient, seen: Inspected
) -> None:
    bare: dict[str, list[str]] = {}
    links: dict[str, str] = {}
    for path in pages(seen):
        html = client.get(path).text
        found = lacking(html)
        if found:
            bare[path] = found
        links |= dict.fromkeys(Tree(html).links, path)
    assert bare == {}
    wrong = {}
    for link, path in links.items():
        answer = client.get(link)
        form = LINK.match(link)
        assert form is not None
        kind = answer.headers["content-type"].partition(";")[0]
        if answer.status_code != 200 or kind != TYPES[form[1]]:
            wrong[link] = (path, answer.status_code, kind)
        elif form[1] == ".svg":
            ET.fromstring(answer.text)
        elif form[1] == ".csv":
            lines = list(csv.reader(io.StringIO(answer.text)))
            assert {len(line) for line in lines} == {len(lines[0])}, link
    assert wrong == {}
    assert len(links) > 100


@pytest.mark.parametrize(
    ("html", "bare"),
    [
        ('<section><table><tr><td>1</td></tr></table></section>', 1),
        ('<section><a href="/api/a.csv">CSV</a><table></table></section>', 1),
        ('<section><a href="/api/a.csv">CSV</a><a href="/api/a.json">J</a>'
         "<table></table></section>", 0),
        ('<section><a href="/api/a.svg">SVG</a></section>'
         '<figure><svg role="img"></svg></figure>', 1),
        ('<figure><a href="/api/a.svg?w=1">SVG</a><svg role="img"></svg></figure>', 0),
        ('<figure><svg aria-hidden="true"></svg></figure>', 0),
        ('<section><figure><a href="/api/a.svg">SVG</a></figure>'
         '<figure><svg role="img"></svg></figure></section>', 1),
        ('<section><a href="/api/a.svg">SVG</a><figure><svg role="img"></svg></figure>'
         "</section>", 0),
        ('<main><svg role="img"></svg></main>', 1),
    ],
)  # fmt: skip
def test_the_walk_sees_what_lacks(html: str, bare: int) -> None:
    assert len(lacking(html)) == bare
