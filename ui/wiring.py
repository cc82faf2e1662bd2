"""The probe of a draft's wiring, spelled: a line a reading, the controls below."""

from collections.abc import Sequence
from dataclasses import dataclass

from ui.contents import Probe, ProbeReading
from ui.figures import count, fixed, percent, span

FIRST = {"emb_hid": "embedding", "hid_emb": "hidden row"}
CONTROLS = {
    "shifted": "targets half a window further on",
    "foreign": "targets of another window",
}


@dataclass(frozen=True)
class WiringLine:
    """One reading of the draft, or what stands beside them; `rates` by chain step, in %."""

    name: str
    rates: tuple[str, ...]
    drafts: str = ""
    behind: str = ""
    is_used: bool = False


@dataclass(frozen=True)
class WiringTable:
    """Readings, best first; then what none may know, and what a guess would hold."""

    lead: str
    basis: str
    steps: tuple[int, ...]
    readings: tuple[WiringLine, ...]
    controls: tuple[WiringLine, ...]


def wiring_table(probe: Probe | None) -> WiringTable | None:
    """The table; None if nothing was probed."""
    if probe is None:
        return None
    ordered = sorted(probe.readings, key=lambda one: -one.drafts)
    controls = [
        WiringLine(CONTROLS[control.name], _rates(control.agreement))
        for control in probe.controls
    ]
    guess = WiringLine("a constant guess in each window", _rates(probe.chance))
    return WiringTable(
        _lead(probe),
        _basis(probe),
        tuple(range(1, len(probe.chance) + 1)),
        tuple(_line(one, probe) for one in ordered),
        (*controls, guess),
    )


def _lead(probe: Probe) -> str:
    read = f"Read as hidden {probe.hidden}, chain {probe.chain}"
    if probe.outcome == "clear":
        return f"{read}: it names more of the trunk’s tokens than any other reading."
    return (
        f"{read}: the readings that hold most are within 2 % of each other, and the wiring "
        "that the draft was healed for, or else that of the format, is taken if among them."
    )


def _line(one: ProbeReading, probe: Probe) -> WiringLine:
    is_best = one.behind == (0.0, 0.0)
    return WiringLine(
        name=f"{one.hidden} / {one.chain} / {FIRST[one.order]}",
        rates=_rates(one.agreement),
        drafts=fixed(one.drafts, 3),
        behind="best" if is_best else span(one.behind, 3),
        is_used=(one.hidden, one.chain) == (probe.hidden, probe.chain)
        and one.order == "emb_hid",
    )


def _rates(rates: Sequence[float]) -> tuple[str, ...]:
    return tuple(percent(rate) for rate in rates)


def _basis(probe: Probe) -> str:
    return (
        f"Shares of all {count(probe.rows[0])} rows of {count(probe.windows)} training "
        "windows at which a chain step names the trunk’s own next token, before training."
    )
