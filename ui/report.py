"""The report page: `render` gives one self-contained HTML file, `report_json` its data."""

import base64
import hashlib
from functools import cache
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ui.answers import answers
from ui.contents import Report
from ui.evidence import (
    codec_table,
    provenance_facts,
    provenance_json,
    stage_lines,
    training_figures,
    training_lines,
)
from ui.figures import day, duration
from ui.measure_tables import measure_tables
from ui.page import draft_table, hero, pair, rate_lines, step_blocks, tokens_a_round
from ui.plots import key_mark
from ui.speed import speed_table
from ui.verdict import doubts, verdict
from ui.wiring import wiring_table

__all__ = ["Report", "render", "report_json"]


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("ui", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@cache
def style() -> str:
    """Tokens and components, as they stand inside the page's only style element."""
    room = files("ui")
    return "\n".join(
        room.joinpath(name).read_text(encoding="utf-8")
        for name in ("tokens.css", "plots.css", "report.css")
    )


def _policy(css: str) -> str:
    """Allows this style sheet and nothing else: no script, no request."""
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    allowed = f"style-src 'sha256-{digest}'; img-src data:"
    return f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"


def render(report: Report) -> str:
    """One self-contained HTML page, light and dark; a report always gives the same text."""
    css = style()
    return _environment().get_template("report.html.j2").render(
        report=report,
        css=Markup(css),  # ours, no string of the report
        policy=_policy(css),
        made=day(report.made),
        took=duration(sum(s.seconds for s in report.stages)) if report.stages else "",
        verdict=verdict(report),
        tokens=tokens_a_round(report),
        answers=answers(report),
        doubts=doubts(report),
        hero=hero(report),
        pair=pair(report),
        key_mark=key_mark,
        drafts=draft_table(report),
        steps=step_blocks(report),
        rates=rate_lines(report),
        speeds=speed_table(report),
        tables=measure_tables(report),
        figures=training_figures(report.training) if report.training else (),
        evaluations=training_lines(report.training) if report.training else (),
        wiring=wiring_table(report.probe),
        codecs=codec_table(report),
        stages=stage_lines(report),
        facts=provenance_facts(report),
        provenance=provenance_json(report),
    )  # fmt: skip


def report_json(report: Report) -> str:
    """The report as indented JSON; `Report.model_validate_json` reads it back."""
    return report.model_dump_json(indent=2) + "\n"
