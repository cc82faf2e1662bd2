"""The tables of one heal as data: every figure its page spells, whole."""

from store.nearest import flat_settings
from ui.contents import Report
from ui.inspector.answer import Table, as_table
from ui.inspector.heal_list import Heal
from ui.inspector.lineage import Lineage
from ui.inspector.reasons import spell
from ui.inspector.rounds import curves, shares
from ui.inspector.use_tables import use_tables
from ui.page import on_sets


def heal_tables(heal: Heal, lineage: Lineage) -> dict[str, Table]:
    """By name; without a report only the stages."""
    found = {"stages": _stages(lineage)}
    report = heal.report
    if report is None:
        return found
    found |= {
        "drafts": _drafts(report),
        "steps": _steps(report),
        "rounds": _rounds(report),
        "depth": _depth(report),
        "codecs": _codecs(report),
        "provenance": _provenance(report),
        **use_tables(report),
    }
    return found


def _stages(lineage: Lineage) -> Table:
    rows = [(n.stage, n.key, n.state, n.about, n.seconds, n.count) for n in lineage.nodes]
    return as_table(("stage", "key", "state", "about", "seconds", "calls"), rows)


def _drafts(report: Report) -> Table:
    columns = ("data", "draft", "drafts_held", "low_95", "high_95", "by_starts", "rows",
               "windows", "coverage")  # fmt: skip
    rows = [
        (title, name, m.drafts_held, *(m.interval or (None, None)), m.drafts_held_starts,
         m.rows, m.windows, m.coverage)
        for title, by_draft in on_sets(report)
        for name, m in by_draft.items()
    ]  # fmt: skip
    return as_table(columns, rows)


def _steps(report: Report) -> Table:
    rows = [
        (title, name, rate.step, rate.rate, rate.lo, rate.hi, rate.rows)
        for title, by_draft in on_sets(report)
        for name, measure in by_draft.items()
        for rate in measure.hold_rates
    ]
    columns = ("data", "draft", "step", "hold_rate", "low_95", "high_95", "rows")
    return as_table(columns, rows)


def _rounds(report: Report) -> Table:
    rows = [
        (name, held, share)
        for name in report.drafts
        for held, share in enumerate(shares(report.measures[name]) or ())
    ]
    return as_table(("draft", "drafts_held", "share_of_rounds"), rows)


def _depth(report: Report) -> Table:
    rows = [
        (curve.draft, depth, curve.held[depth], curve.low[depth], curve.high[depth])
        for curve in curves(report)
        for depth in range(len(curve.held))
    ]
    return as_table(("draft", "depth", "drafts_held", "low_95", "high_95"), rows)


def _codecs(report: Report) -> Table:
    columns = ("codec", "draft_bytes", "file_bytes", "drafts_held", "low_95", "high_95",
               "to_keep", "to_keep_se")  # fmt: skip
    rows = [
        (row.codec, row.draft_bytes, row.file_bytes, row.drafts_held,
         *(row.interval or (None, None)),
         *((None, None) if row.to_keep is None else (row.to_keep.value, row.to_keep.se)))
        for row in report.codecs
    ]  # fmt: skip
    return as_table(columns, rows)


def _provenance(report: Report) -> Table:
    rows = [
        (name, spell(value)) for name, value in flat_settings(report.provenance).items()
    ]
    return as_table(("name", "value"), rows)
