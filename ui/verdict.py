"""The finding in words: one sentence, how sure it is, and what speaks against it.

A gain is clear only if its 95 % interval, paired over windows, leaves zero out;
without a paired difference, only if the drafts' own intervals do not touch: that asks more.
"""

from dataclasses import dataclass
from typing import Literal

from ui.contents import Difference, DraftName, Report, SetMeasure
from ui.figures import counted, fixed, percent_sign, span, with_error

Outcome = Literal["back", "partly", "worked", "unclear", "worse", "measured", "empty"]
# Within a tenth of what the change cost, the draft counts as back.
BACK_SHARE = 0.9
# Below this share of counted rows the figures speak of little of the text.
LOW_COVERAGE = 0.15
COPIED_SHARE = 0.05  # fewer widen no interval by what could be seen
# A file that holds less than this share of what keep holds is not to be shipped.
COARSE_SHARE = 0.5


@dataclass(frozen=True)
class Phrase:
    """A piece of the sentence; a figure names its draft, for the colour."""

    text: str
    draft: DraftName | None = None


@dataclass(frozen=True)
class Verdict:
    """What came of the heal, and the sentence that says so."""

    outcome: Outcome
    phrases: tuple[Phrase, ...]

    @property
    def text(self) -> str:
        """The sentence without its colours."""
        return "".join(phrase.text for phrase in self.phrases)


def direction(gain: Difference | None, before: SetMeasure, after: SetMeasure) -> int:
    """1 for a clear gain, −1 for a clear loss, 0 when the intervals leave it open."""
    if gain is not None:
        # A zero standard error (one window) is no certainty.
        clear = gain.se > 0 and abs(gain.value) > gain.half_width
        return (1 if gain.value > 0 else -1) if clear else 0
    if before.interval is None or after.interval is None:
        return 0
    if after.interval[0] > before.interval[1]:
        return 1
    return -1 if after.interval[1] < before.interval[0] else 0


def recovered(report: Report) -> float | None:
    """Share of the change's cost that was won back; None without a source or a cost."""
    measures = report.measures
    if not {"source", "stale", "healed"} <= measures.keys():
        return None
    stale = measures["stale"].drafts_held
    cost = measures["source"].drafts_held - stale
    return (measures["healed"].drafts_held - stale) / cost if cost > 0 else None


def outcome(report: Report) -> Outcome:
    """Which of the sentences is true."""
    measures = report.measures
    if all(measure.rows == 0 for measure in measures.values()):
        return "empty"
    if not {"stale", "healed"} <= measures.keys():
        return "measured"
    way = direction(report.gain, measures["stale"], measures["healed"])
    if way == 0:
        return "unclear"
    if way < 0:
        return "worse"
    share = recovered(report)
    if share is None:
        return "worked"
    return "back" if share >= BACK_SHARE else "partly"


OPENING: dict[Outcome, str] = {
    "back": "The draft is back: ",
    "partly": "The draft is partly back: ",
    "worked": "The heal worked: ",
    "unclear": "No clear gain: ",
    "worse": "The heal made the draft worse: ",
}


def verdict(report: Report) -> Verdict:
    """The one sentence that comes first."""
    kind = outcome(report)
    if kind == "empty":
        sentence = (
            "Nothing was measured: none of the held-out text is what the trunk would write."
        )
        return Verdict(kind, (Phrase(sentence),))
    if kind == "measured":
        return Verdict(kind, _measured(report))
    phrases = (
        Phrase(OPENING[kind]),
        _figure(report, "stale"),
        Phrase(" → "),
        _figure(report, "healed"),
        Phrase(" drafts held per round"),
        *_ending(report, kind),
    )
    return Verdict(kind, phrases)


def _figure(report: Report, name: DraftName) -> Phrase:
    return Phrase(fixed(report.measures[name].drafts_held), name)


def _measured(report: Report) -> tuple[Phrase, ...]:
    name = report.drafts[-1]
    return (
        Phrase(f"The {name} draft holds "),
        _figure(report, name),
        Phrase(
            f" of {report.depth} drafts per round; there is nothing to compare it with."
        ),
    )


def _ending(report: Report, kind: Outcome) -> tuple[Phrase, ...]:
    if kind == "unclear":
        return (Phrase(", a difference that chance alone can make."),)
    if kind == "worse":
        return (Phrase("; keep the stale draft."),)
    if "source" not in report.measures:
        return (Phrase("."),)
    return (Phrase("; before the change it was "), _figure(report, "source"), Phrase("."))


def gain_text(report: Report) -> str | None:
    """`+0.96 ± 0.05`, the paired gain and half its 95 % interval, or None."""
    gain = report.gain
    return None if gain is None else with_error(gain.value, gain.half_width)


def losing_sets(report: Report) -> tuple[str, ...]:
    """Data sets whose healed draft is clearly below the stale one."""
    return tuple(name for name in report.set_names if set_direction(report, name) < 0)


def set_direction(report: Report, name: str) -> int:
    """`direction` on one data set; 0 where either draft was not measured on it."""
    stale, healed = (_on_set(report, draft, name) for draft in ("stale", "healed"))
    if stale is None or healed is None:
        return 0
    return direction(report.gain_by_set.get(name), stale, healed)


def _on_set(report: Report, draft: str, name: str) -> SetMeasure | None:
    for known in report.drafts:
        if known == draft:
            return report.measures[known].by_set.get(name)
    return None


def doubts(report: Report) -> tuple[str, ...]:
    """What to know before believing the sentence; empty when nothing speaks against it."""
    found = [
        *_start(report),
        *_rivals(report),
        *_idle_control(report),
        *_thin_ground(report),
        *_copied_ground(report),
        *_coarse_codecs(report),
    ]
    losing = losing_sets(report)
    if losing:
        found.append(f"Worse on {', '.join(losing)}, whatever the whole says.")
    if report.training is not None and report.training.skipped:
        steps = counted(report.training.skipped, "training step")
        found.append(f"Skipped, since not finite: {steps}.")
    return tuple(found)


def _start(report: Report) -> list[str]:
    """That what is called stale never was this model's draft."""
    if report.start == "fresh":
        return ["No draft was healed: stale is a new one, before its training."]
    if report.start == "init":
        return ["Stale is another model's draft, as it is on this trunk."]
    return []


def _rivals(report: Report) -> list[str]:
    """A control or fresh draft that does as well as the healed one takes its point away."""
    healed = report.measures.get("healed")
    if healed is None:
        return []
    reasons: dict[DraftName, str] = {
        "control": "the same steps on the source trunk do as well",
        "fresh": "a new draft given the same steps does as well",
    }
    return [
        f"Healed is not clearly above {name}, {fixed(report.measures[name].drafts_held)} "
        f"({span(report.measures[name].interval)}): {reason}."
        for name, reason in reasons.items()
        if name in report.measures and direction(None, report.measures[name], healed) < 1
    ]


def _idle_control(report: Report) -> list[str]:
    """A control that kept its first checkpoint is the draft it began as, which is stale."""
    control = report.measures.get("control")
    if control is None or control != report.measures.get("stale"):
        return []
    return [
        "Control is stale itself: on the source trunk no step was better than its start, "
        "so that start was kept."
    ]


def _thin_ground(report: Report) -> list[str]:
    thin = [
        f"of {name} {percent_sign(measure.coverage)}"
        for name, measure in report.measures.items()
        if measure.coverage is not None and measure.coverage < LOW_COVERAGE
    ]
    if not thin:
        return []
    return [f"Coverage is low, {', '.join(thin)}: no figure is of more of the text."]


def _copied_ground(report: Report) -> list[str]:
    """Windows that stand twice tell nothing new, but a bootstrap takes them for it."""
    windows = max(measure.windows or 0 for measure in report.measures.values())
    if report.held_out_copies <= COPIED_SHARE * windows:
        return []
    copies = f"{report.held_out_copies:,} of {counted(windows, 'held-out window')}"
    return [f"Measured more than once: {copies}; the true intervals are wider."]


def _coarse_codecs(report: Report) -> list[str]:
    """Files whose draft lost most of what it held when it was written."""
    keep = next((row for row in report.codecs if row.codec == "keep"), None)
    best = keep or max(report.codecs, key=lambda row: row.drafts_held, default=None)
    return [
        f"{row.codec} holds {fixed(row.drafts_held)} drafts where {best.codec} holds "
        f"{fixed(best.drafts_held)}: it is too coarse for this draft."
        for row in report.codecs
        if best is not None and row.drafts_held < COARSE_SHARE * best.drafts_held
    ]
