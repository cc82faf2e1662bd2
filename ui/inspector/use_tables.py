"""What a heal's measures say of drafts in use, and of the draft's wiring, as data."""

from ui.contents import Report
from ui.inspector.answer import Cell, Table, as_table
from ui.page import on_sets, pair

Ends = tuple[float, float] | None


def use_tables(report: Report) -> dict[str, Table]:
    """By the names of `ui.measure_tables`, and `wiring`; empty if not measured."""
    return {
        "sampling": _sampling(report),
        "sampled-chains": _chains(report),
        "first-four": _best(report),
        "places": _places(report),
        "vocabulary": _vocabulary(report),
        "wiring": _wiring(report),
    }


def _two(ends: Ends) -> tuple[Cell, Cell]:
    return (None, None) if ends is None else ends


def _bounds(*names: str) -> list[str]:
    ends = ("low", "high", "low_95", "high_95")
    return [f"{name}_{end}" for name in names for end in ends]


def _sampling(report: Report) -> Table:
    rows = [
        (title, name, at.temperature, step.step, *_two(step.sampled),
         *_two(step.sampled_interval), *_two(step.greedy), *_two(step.greedy_interval),
         step.rows)
        for title, by_draft in on_sets(report)
        for name, measure in by_draft.items()
        for at in measure.sampling
        for step in at.steps
    ]  # fmt: skip
    columns = ["data", "draft", "temperature", "step", *_bounds("drawn", "first"), "rows"]
    return as_table(columns, rows)


def _chains(report: Report) -> Table:
    rows = [
        (name, at.temperature, *_two(at.sampled), *_two(at.sampled_interval),
         *_two(at.greedy), *_two(at.greedy_interval), at.rows)
        for name in pair(report)
        for at in report.measures[name].sampled_chains
    ]  # fmt: skip
    return as_table(["draft", "temperature", *_bounds("drawn", "first"), "rows"], rows)


def _best(report: Report) -> Table:
    rows = [
        (title, name, best.step, first.rate, best.top2, best.top3, best.top4, best.rows)
        for title, by_draft in on_sets(report)
        for name, measure in by_draft.items()
        for first, best in zip(measure.hold_rates, measure.best_of, strict=False)
    ]
    columns = ("data", "draft", "step", "first", "of_2", "of_3", "of_4", "rows")
    return as_table(columns, rows)


def _places(report: Report) -> Table:
    rows = [
        (title, name, place.first, place.last, rate.step, rate.rate, rate.lo, rate.hi,
         rate.rows)
        for title, by_draft in on_sets(report)
        for name, measure in by_draft.items()
        for place in measure.by_position
        for rate in place.hold_rates
    ]  # fmt: skip
    columns = ("data", "draft", "first_row", "last_row", "step", "hold_rate", "low_95",
               "high_95", "rows")  # fmt: skip
    return as_table(columns, rows)


def _vocabulary(report: Report) -> Table:
    found = next((m.vocabulary for m in report.measures.values() if m.vocabulary), ())
    rows = [(one.size, one.tokens, one.own, one.mass, one.rows) for one in found]
    return as_table(("size", "tokens", "trunks_choice", "top_k_mass", "rows"), rows)


def _wiring(report: Report) -> Table:
    probe = report.probe
    steps = 0 if probe is None else len(probe.chance)
    columns = ["hidden", "chain", "order", *(f"step_{j}" for j in range(1, steps + 1))]
    rows: list[tuple[Cell, ...]] = []
    if probe is not None:
        rows = [
            (
                one.hidden,
                one.chain,
                one.order,
                *one.agreement,
                one.drafts,
                *_two(one.behind),
            )
            for one in probe.readings
        ]
        rows += [
            (one.name, "", "", *one.agreement, None, None, None) for one in probe.controls
        ]
        rows.append(("chance", "", "", *probe.chance, None, None, None))
    return as_table([*columns, "sum", "behind_low_99", "behind_high_99"], rows)
