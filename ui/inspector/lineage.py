"""The stages of a heal as a graph: who fed whom, from the digests in their manifests."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from markupsafe import Markup

from store.manifest import Manifest
from ui.figures import counted, duration, fixed, size
from ui.inspector.depot import Depot, Entry, NotHere, input_digests
from ui.inspector.heal_list import Heal
from ui.plots import element

NodeState = Literal["done", "cached", "running", "damaged", "gone", "failed", "interrupted"]
ALIKE = 12  # more of one stage than this stand as one box
BOX_W, BOX_H, STEP_X, STEP_Y = 146, 44, 178, 56


@dataclass(frozen=True)
class Node:
    """One stage call of a run, or many alike; `about` is its line below the name."""

    stage: str
    key: str
    state: NodeState
    about: str
    seconds: float
    count: int = 1
    entry: Entry | None = None
    was_made: bool = False  # by this run, whatever became of it since

    @property
    def name(self) -> str:
        """`"stage/key"`."""
        return f"{self.stage}/{self.key}"

    @property
    def href(self) -> str:
        """Its page; for many alike, the stage in the store."""
        if self.count > 1:
            return f"/store?stage={self.stage}"
        return f"/stage/{self.stage}/{self.key}"

    @property
    def title(self) -> str:
        """The stage, and how often."""
        return f"{self.stage} ×{self.count}" if self.count > 1 else self.stage


@dataclass(frozen=True)
class Lineage:
    """Nodes in the order of the run, edges by index, from feeder to fed."""

    nodes: tuple[Node, ...]
    edges: frozenset[tuple[int, int]]

    def plot(self) -> Markup:
        """Boxes in columns by what they wait for; every box is a link."""
        return _plot(self)

    @property
    def states(self) -> tuple[NodeState, ...]:
        """Those that occur, for the key."""
        return tuple(dict.fromkeys(node.state for node in self.nodes))


def lineage_of(heal: Heal, depot: Depot) -> Lineage:
    """The stages of the run, or of its report where the run is in no book."""
    nodes = _joined(list(_nodes(heal, depot)))
    owner = {name: i for i, (_, names) in enumerate(nodes) for name in names}
    by_digest: dict[str, list[int]] = defaultdict(list)
    for i, (node, _) in enumerate(nodes):
        if node.entry is not None and node.entry.manifest is not None and node.count == 1:
            by_digest[node.entry.manifest.content_digest].append(i)
    edges = set()
    for i, (node, _) in enumerate(nodes):
        if node.entry is None or node.entry.manifest is None:
            continue
        manifest = node.entry.manifest
        sources = {owner[part] for part in manifest.parts if part in owner}
        for digest in input_digests(manifest.inputs).values():
            sources |= {one for one in by_digest.get(digest, ()) if one < i}
        edges |= {(source, i) for source in sources if source != i}
        if node.stage == "report":
            edges |= _measured_files(input_digests(manifest.inputs), by_digest)
    return Lineage(tuple(node for node, _ in nodes), frozenset(edges))


def _measured_files(
    inputs: dict[str, str], by_digest: dict[str, list[int]]
) -> set[tuple[int, int]]:
    """A written file and the measure of it: no digest joins them, the report names both."""
    return {
        (file, measure)
        for name, digest in inputs.items()
        if name.startswith("files.")
        for file in by_digest.get(digest, ())
        for measure in by_digest.get(inputs.get(f"codecs.{name[6:]}", ""), ())
    }


def _nodes(heal: Heal, depot: Depot) -> Iterable[Node]:
    seen: set[str] = set()
    for stage, key, state, label, seconds in _calls(heal):
        if f"{stage}/{key}" in seen:
            continue
        seen.add(f"{stage}/{key}")
        try:
            entry = depot.entry(stage, key)
        except NotHere:
            yield Node(stage, key, "gone", "removed since", seconds)
            continue
        shown, about = _seen(entry, state, label, depot)
        made = state == "done"
        yield Node(stage, key, shown, about, seconds, entry=entry, was_made=made)


def _calls(heal: Heal) -> Iterable[tuple[str, str, NodeState, str, float]]:
    if heal.run is None:
        for row in heal.report.stages if heal.report else ():
            yield row.name, row.key, "done", row.label, row.seconds
        return
    for event in heal.run.record.events:
        state: NodeState = "cached" if event.state == "cached" else "done"
        yield event.name, event.key, state, event.label, event.seconds
    broken: dict[str, NodeState] = {
        "running": "running", "failed": "failed", "interrupted": "interrupted"
    }  # fmt: skip
    for one in heal.run.record.filling:
        yield one.name, one.key, broken.get(heal.run.state, "interrupted"), one.label, 0.0


def _seen(
    entry: Entry, state: NodeState, label: str, depot: Depot
) -> tuple[NodeState, str]:
    if entry.state == "damaged":
        return "damaged", "cannot be read"
    if entry.manifest is None:
        return (
            "interrupted" if state in ("done", "cached") else state
        ), label or "not finished"
    lost = depot.lost_files(entry)
    if lost:
        return "damaged", f"{lost} of {counted(len(entry.manifest.files), 'file')} gone"
    return state, label or about(entry.manifest)


def about(manifest: Manifest) -> str:
    """The one figure that tells most of an artifact."""
    numbers, codec = manifest.numbers, manifest.settings.get("codec")
    held, draft_bytes = numbers.get("drafts_held"), numbers.get("draft_bytes")
    if isinstance(held, int | float):
        return f"held {fixed(float(held), 3)}"
    if isinstance(codec, str) and isinstance(draft_bytes, int):
        return f"{codec}, {size(draft_bytes)} draft"
    counts = [_counted(numbers.get(n), n[:-1]) for n in ("steps", "windows", "layers")]
    total = sum(file.size for file in manifest.files.values())
    if not total and manifest.parts:
        counts.append(counted(len(manifest.parts), "part"))
    fallback = size(total) if total else duration(manifest.seconds)
    return next(filter(None, counts), fallback)


def _counted(value: object, noun: str) -> str:
    """`2 layers` of a number or of a list's length; nothing of anything else."""
    many = len(value) if isinstance(value, list) else value
    return counted(many, noun) if isinstance(many, int) else ""


def _joined(nodes: Sequence[Node]) -> list[tuple[Node, tuple[str, ...]]]:
    """Calls of a stage with many, all in one state, become one node."""
    groups: dict[str, list[Node]] = defaultdict(list)
    for node in nodes:
        groups[node.stage].append(node)
    found: list[tuple[Node, tuple[str, ...]]] = []
    for node in nodes:
        alike = groups[node.stage]
        states = {one.state for one in alike}
        if len(alike) <= ALIKE or len(states) > 1:
            found.append((node, (node.name,)))
        elif node is alike[0]:
            took = sum(one.seconds for one in alike)
            whole = Node(node.stage, node.key, node.state, duration(took), took, len(alike),
                         node.entry, node.was_made)  # fmt: skip
            found.append((whole, tuple(one.name for one in alike)))
    return found


def _columns(lineage: Lineage) -> list[list[int]]:
    """Nodes by the longest way to them, each column in the order of its feeders' rows."""
    depth = [0] * len(lineage.nodes)
    for _ in lineage.nodes:
        for source, target in lineage.edges:
            depth[target] = max(depth[target], depth[source] + 1)
    columns: list[list[int]] = [[] for _ in range(max(depth, default=-1) + 1)]
    row: dict[int, float] = {}
    for column, held in enumerate(columns):
        held += [i for i, one in enumerate(depth) if one == column]
        feeders = {
            i: [row[s] for s, t in lineage.edges if t == i and s in row] for i in held
        }
        held.sort(key=lambda i: (sum(feeders[i]) / len(feeders[i]) if feeders[i] else i, i))
        row |= {i: place - len(held) / 2 for place, i in enumerate(held)}
    return columns


def _plot(lineage: Lineage) -> Markup:
    columns = _columns(lineage)
    tallest = max((len(column) for column in columns), default=1)
    height = tallest * STEP_Y + 2
    width = (len(columns) - 1) * STEP_X + BOX_W + 4
    place = {
        i: (x * STEP_X + 2, (height - len(column) * STEP_Y) / 2 + y * STEP_Y + 6)
        for x, column in enumerate(columns)
        for y, i in enumerate(column)
    }
    parts = [_edge(place[s], place[t]) for s, t in sorted(_direct(lineage.edges))]
    parts += [_box(node, place[i]) for i, node in enumerate(lineage.nodes)]
    return element("svg", *parts, class_="graph", width=width, height=height, role="group",
                   aria_label="Stages of this heal and what feeds what; "
                   "the list below has the same content")  # fmt: skip


def _direct(edges: frozenset[tuple[int, int]]) -> set[tuple[int, int]]:
    """Edges that no longer way between the same two makes needless to draw."""
    after: dict[int, set[int]] = defaultdict(set)
    for source, target in edges:
        after[source].add(target)

    def reached(start: int) -> set[int]:
        found: set[int] = set()
        todo = list(after[start])
        while todo:
            one = todo.pop()
            if one not in found:
                found.add(one)
                todo += after[one]
        return found

    beyond = {node: reached(node) for node in list(after)}
    return {
        (source, target)
        for source, target in edges
        if not any(target in beyond.get(way, set()) for way in after[source] - {target})
    }


def _edge(source: tuple[float, float], target: tuple[float, float]) -> Markup:
    x1, y1 = source[0] + BOX_W, source[1] + BOX_H / 2
    x2, y2 = target[0], target[1] + BOX_H / 2
    bend = min((x2 - x1) / 2, 17)
    path = f"M{x1:g} {y1:g}C{x1 + bend:g} {y1:g} {x2 - bend:g} {y2:g} {x2:g} {y2:g}"
    return element("path", class_="edge", d=path)


def _box(node: Node, place: tuple[float, float]) -> Markup:
    x, y = place
    return element(
        "a",
        element("rect", x=x, y=y, width=BOX_W, height=BOX_H, rx=4),
        element("use", href=f"#i-{node.state}", x=x + 8, y=y + 7, width=14, height=14),
        element("text", _cut(node.title, 15), class_="mono", x=x + 27, y=y + 18),
        element("text", _cut(node.about, 19), x=x + 27, y=y + 34),
        class_=f"node s-{node.state}", href=node.href, data_row="",
        aria_label=f"{node.title}, {node.about}: {node.state}",
    )  # fmt: skip


def _cut(text: str, characters: int) -> str:
    return text if len(text) <= characters else f"{text[: characters - 1]}…"
