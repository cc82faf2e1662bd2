"""What Prefect's pages show of a finished stage, found or made: tables, summary, plot."""

import base64
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from conf.machine import environment_inspector
from store.manifest import MANIFEST
from store.store import Store

Hook = Callable[[object, object, object], None]
Table = list[dict[str, Any]]  # plain JSON cells by column

ANSWER_S = 2.0
# Prefect's switch, in no signature: under a running loop it would only make a coroutine.
IN_THREAD: dict[str, Any] = {"_sync": True}


def showing(store: Store, stage: str, key: str) -> Hook:
    """A task's on_completion hook; unlike a body it is called for cached stages too."""

    def show_stage(_task: object, _run: object, _state: object) -> None:
        import httpx
        from prefect.exceptions import PrefectException
        from prefect.logging import get_run_logger

        said = "the server does not answer"
        try:
            if server_answers():
                _show(store.path(stage, key), stage, key)
                return
        except (httpx.HTTPError, PrefectException) as error:
            said = str(error)
        # The artifact is in the store; its page on the server is a courtesy.
        get_run_logger().warning("%s: not shown on the server: %s", stage, said)

    return show_stage


def server_answers() -> bool:
    """Whether the server is there: Prefect's client would try for a minute to find out."""
    import httpx
    from prefect.settings import PREFECT_API_URL

    url = PREFECT_API_URL.value()
    if url is None:
        return True
    try:
        httpx.get(f"{url}/health", timeout=ANSWER_S, trust_env=False)
    except httpx.HTTPError:
        return False
    return True


def _show(folder: Path, stage: str, key: str) -> None:
    from prefect.artifacts import create_link_artifact, create_table_artifact

    numbers = json.loads((folder / MANIFEST).read_bytes())["numbers"]
    table = hold_table(numbers) if "hold_rates" in numbers else number_table(numbers)
    if len(table) > 1 or "hold_rates" in numbers:
        named = "hold-rates" if "hold_rates" in numbers else None
        create_table_artifact(table, key=named, description=f"{stage} {key}", **IN_THREAD)
    if stage == "report":
        _show_report(folder)
    inspector = environment_inspector()
    if inspector is not None and stage == "report":
        link = f"{inspector}/heal/{key}"
        create_link_artifact(link, link_text="look inside", key="inspector", **IN_THREAD)


def _show_report(folder: Path) -> None:
    from prefect.artifacts import create_markdown_artifact, create_table_artifact

    from ui.contents import Report
    from ui.page import hero
    from ui.standing import standing_alone
    from ui.summary import summary_markdown

    report = Report.model_validate_json((folder / "report.json").read_bytes())
    plot = base64.b64encode(standing_alone(hero(report)).encode()).decode()
    image = f"![drafts held per round](data:image/svg+xml;base64,{plot})"
    text = f"{image}\n\n{summary_markdown(report)}"
    create_markdown_artifact(
        text, key="heal-summary", description=report.title, **IN_THREAD
    )
    codecs = [row.model_dump(mode="json", exclude={"to_keep"}) for row in report.codecs]
    if codecs:
        create_table_artifact(codecs, key="codecs", description=report.title, **IN_THREAD)


def hold_table(numbers: Mapping[str, Any]) -> Table:
    """A measure as rows, all data and each set: drafts held, then a rate for each step."""
    sets = {"all": numbers, **numbers.get("by_set", {})}
    return [
        {
            "data": name,
            "drafts held": _short(one["drafts_held"]),
            "95 %": " – ".join(_short(end) for end in one["interval"] or ()),
            "rows": one["rows"],
            **{f"step {r['step']}": _short(r["rate"]) for r in one["hold_rates"]},
        }
        for name, one in sets.items()
    ]


def number_table(numbers: Mapping[str, Any]) -> Table:
    """The single numbers and words among an artifact's numbers."""
    plain = {k: v for k, v in numbers.items() if isinstance(v, str | int | float)}
    return [{"what": name.replace("_", " "), "value": v} for name, v in plain.items()]


def _short(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
