"""Four questions behind the verdict: how sure, is it the healing, which codec, what now."""

from dataclasses import dataclass

from ui.contents import CodecRow, DraftName, Report
from ui.figures import counted, fixed, percent_sign, signed, size, span
from ui.verdict import Outcome, gain_text, outcome, recovered, set_direction

RIVALS: dict[DraftName, str] = {
    "control": "the same steps on the source trunk",
    "fresh": "a new draft given the same steps",
}


@dataclass(frozen=True)
class Answer:
    """A question, its answer in a few words, and one sentence of why."""

    question: str
    short: str
    why: str


def answers(report: Report) -> tuple[Answer, ...]:
    """Those that this report can answer, in the order a reader asks."""
    found = (
        how_sure(report),
        is_it_healing(report),
        which_codec(report),
        what_next(report),
    )
    return tuple(answer for answer in found if answer is not None)


def how_sure(report: Report) -> Answer:
    """The paired gain and what it rests on; the intervals alone where nothing is paired."""
    name = "healed" if "healed" in report.measures else report.drafts[-1]
    measure = report.measures[name]
    rest = (
        f"that no training read; {counted(measure.rows, 'row')}. {_by_sets(report)}".strip()
    )
    gain = gain_text(report)
    if gain is not None and report.gain is not None:
        windows = counted(report.gain.windows, "held-out window")
        return Answer("How sure?", gain, f"95 % interval, paired over {windows} {rest}")
    interval = span(measure.interval)
    windows = "text" if measure.windows is None else counted(measure.windows, "window")
    return Answer(
        "How sure?", interval, f"95 % interval of {name}, over held-out {windows} {rest}"
    )


def _by_sets(report: Report) -> str:
    names = report.set_names
    if len(names) < 2 or not {"stale", "healed"} <= report.measures.keys():
        return ""
    gaining = [name for name in names if set_direction(report, name) > 0]
    if len(gaining) == len(names):
        return f"{'Both' if len(names) == 2 else f'All {len(names)}'} data sets gain."
    return f"{len(gaining)} of {len(names)} data sets gain clearly."


def is_it_healing(report: Report) -> Answer | None:
    """Healed against the controls and against what the change cost."""
    healed, share = report.measures.get("healed"), recovered(report)
    if healed is None:
        return None
    margins = {
        name: signed(healed.drafts_held - report.measures[name].drafts_held)
        for name in RIVALS
        if name in report.measures
    }
    told = [f"{margin} against {RIVALS[name]}" for name, margin in margins.items()]
    why = f"{'; '.join(told)}." if told else "No control was run."
    if share is not None:
        short = f"{percent_sign(share, 0)} of the drop won back"
    elif margins:
        short = ", ".join(f"{margin} against {name}" for name, margin in margins.items())
    else:
        return None
    return Answer("Is it the healing?", short, why)


def best_codec(codecs: tuple[CodecRow, ...]) -> CodecRow | None:
    """The smallest draft whose own paired standard error reaches keep; else keep."""
    fit = [
        row
        for row in codecs
        if row.codec == "keep"
        or (row.to_keep is not None and row.to_keep.value + row.to_keep.se >= 0)
    ]
    return min(fit, key=lambda row: row.draft_bytes, default=None)


def codec_to_ship(report: Report) -> CodecRow | None:
    """`best_codec`; None where codecs were not compared or the draft got worse."""
    if len(report.codecs) < 2 or outcome(report) == "worse":
        return None
    return best_codec(report.codecs)


def which_codec(report: Report) -> Answer | None:
    """The codec to ship, by size among those as good as keep."""
    best = codec_to_ship(report)
    if best is None:
        return None
    short = f"{best.codec}, {size(best.draft_bytes)}"
    keep = next((row for row in report.codecs if row.codec == "keep"), None)
    if keep is None or keep is best:
        return Answer(
            "Which codec?", short, "No smaller one comes within a standard error of it."
        )
    share = percent_sign(
        best.draft_bytes / keep.draft_bytes if keep.draft_bytes else None, 0
    )
    why = f"{share} of keep’s bytes, within one standard error of its drafts held."
    return Answer("Which codec?", short, why)


def what_next(report: Report) -> Answer:
    """Train longer, more text, ship as it is, or leave it, with the reason."""
    kind = outcome(report)
    if kind in ("empty", "measured"):
        return Answer(
            "What next?",
            "Compare",
            "Give a stale and a healed draft to tell a gain from none.",
        )
    if kind == "worse":
        return Answer(
            "What next?", "Keep the stale draft", "Then try a lower rate or more text."
        )
    training = report.training
    evaluated = (
        [row.step for row in training.rows if row.held is not None] if training else []
    )
    if training and evaluated and training.chosen_step == evaluated[-1] > 0:
        step = f"The best step, {training.chosen_step:,}, was the last one evaluated"
        return Answer(
            "What next?",
            "Train longer",
            f"{step}: it may still be rising. {_weakest(report)}",
        )
    if kind == "unclear":
        return Answer(
            "What next?", "More text or steps", "Nothing here tells the two drafts apart."
        )
    return _after_a_gain(report, kind)


def _after_a_gain(report: Report, kind: Outcome) -> Answer:
    """What to try after a clear gain; which file to ship was answered before this."""
    weakest = _weakest_set(report)
    if weakest is not None:
        name, held = weakest
        why = f"It holds least, {held} a round. What there is can ship meanwhile."
        return Answer("What next?", f"More text like {name}", why)
    if kind == "partly":
        why = "What there is can ship; part of what the change cost is still open."
        return Answer("What next?", "More text or steps", why)
    return Answer("What next?", "Ship it", "Nothing measured here asks for another heal.")


def _weakest(report: Report) -> str:
    weakest = _weakest_set(report)
    if weakest is None:
        return ""
    return f"Or try more text like {weakest[0]}: it holds least, {weakest[1]} a round."


def _weakest_set(report: Report) -> tuple[str, str] | None:
    """The data set the healed draft holds least of, and how much.

    None of one set, or where the intervals of the least and the most touch.
    """
    if "healed" not in report.measures or len(report.set_names) < 2:
        return None
    by_set = report.measures["healed"].by_set
    ordered = sorted(by_set, key=lambda name: by_set[name].drafts_held)
    least, most = by_set[ordered[0]].interval, by_set[ordered[-1]].interval
    if least is None or most is None or least[1] >= most[0]:
        return None
    return ordered[0], fixed(by_set[ordered[0]].drafts_held)
