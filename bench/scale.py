"""Where more workers stop helping: a 14B and a 70B trunk on 1 to 256 of them.

`python -m bench.scale [--measure] [--rates FILE]` simulates the sites of
`docs/scaling.json`, writes `docs/img/scaling.svg` and the tables of `docs/scaling.md`.
`--measure` measures this machine anew first. `--rates` is a JSON object that changes rates
of the site with cards, such as the `flops` and `train_flops` of a `gpu.json`.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from bench.scale_model import (
    COMPUTE,
    TRUNKS,
    Heal,
    HealTimes,
    Measured,
    Rates,
    heal_times,
)
from bench.scale_plot import scale_svg
from bench.turns import HOME
from conf.base import Settings
from ui.figures import duration

TOKENS = {"0.4 M": 393_216, "2 M": 2_000_000, "10 M": 10_000_000, "50 M": 50_000_000}
WORKERS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
TRAIN_CARDS = 8  # that the second table's training has, a window each
STOPS_BELOW = 1.25  # twice the workers, and less than this many times as quick
BEGIN, END = "<!-- bench.scale -->", "<!-- end of bench.scale -->"


class Sites(Settings):
    """What `docs/scaling.json` holds: this kind of machine as measured, and the cards."""

    measured: Measured
    cards: Rates


@dataclass(frozen=True)
class Scaling:
    """One heal on every number of workers."""

    workers: Sequence[int]
    times: Sequence[HealTimes]

    @property
    def passes(self) -> list[float]:
        """Seconds of the trunk pass alone."""
        return [one.trunk_pass.seconds for one in self.times]

    @property
    def heals(self) -> list[float]:
        """Seconds of the whole heal."""
        return [one.seconds for one in self.times]


@dataclass(frozen=True)
class Stop:
    """From where on twice the workers gain little, and what they run into."""

    place: int
    cause: str


def scaling(trunk: str, heal: Heal, rates: Rates) -> Scaling:
    """The heal on 1 to 256 workers."""
    size = TRUNKS[trunk]
    return Scaling(WORKERS, [heal_times(size, heal, rates, n) for n in WORKERS])


def stops(found: Scaling, seconds: Sequence[float], *, whole: bool) -> Stop:
    """Where these seconds stop falling; the last place if they never do.

    The cause is what twice the workers still spend most on, the pass's own work apart: of
    the `whole` heal, or of the pass alone.
    """
    last = len(seconds) - 1
    place = next(
        (i for i in range(last) if seconds[i] < STOPS_BELOW * seconds[i + 1]), last
    )
    parts = found.times[min(place + 1, last)].parts
    names = parts if whole else found.times[0].pass_parts
    return Stop(place, max((n for n in names if n != COMPUTE), key=parts.__getitem__))


def tables(sites: Sites) -> str:
    """The tables of docs/scaling.md."""
    lines = [*_stops_table(sites.cards), ""]
    for trunk in TRUNKS:
        lines += [*_points_table(trunk, sites.cards), ""]
    lines += _processors(sites.measured)
    return "\n".join(lines)


def plot(sites: Sites) -> str:
    """The SVG: of either trunk the pass alone, the heal, the heal with more cards."""
    panels = {}
    for trunk in TRUNKS:
        one = _by_tokens(trunk, 1, sites.cards)
        many = _by_tokens(trunk, TRAIN_CARDS, sites.cards)
        panels[f"{trunk}: trunk pass"] = {n: _speeds(s.passes) for n, s in one.items()}
        panels[f"{trunk}: heal, 1 card trains"] = {
            n: _speeds(s.heals) for n, s in one.items()
        }
        panels[f"{trunk}: heal, {TRAIN_CARDS} cards train"] = {
            n: _speeds(s.heals) for n, s in many.items()
        }
    return scale_svg(panels)


def _by_tokens(trunk: str, cards: int, rates: Rates) -> dict[str, Scaling]:
    """A window a card in each batch of the training, two at least."""
    return {
        name: scaling(
            trunk, Heal(tokens=tokens, train_cards=cards, batch=max(2, cards)), rates
        )
        for name, tokens in TOKENS.items()
    }


def _speeds(seconds: Sequence[float]) -> list[tuple[int, float]]:
    return [(n, seconds[0] / s) for n, s in zip(WORKERS, seconds, strict=True)]


def _stops_table(rates: Rates) -> Iterator[str]:
    names = ("trunk", "tokens", "one worker", "pass stops at", "because of")
    yield f"| {' | '.join((*names, 'heal stops at', 'because of'))} |"
    yield "|---|---|---|---|---|---|---|"
    for trunk in TRUNKS:
        for cards in (1, TRAIN_CARDS):
            for name, found in _by_tokens(trunk, cards, rates).items():
                yield _stops_line(trunk, name, cards, found)


def _stops_line(trunk: str, name: str, cards: int, found: Scaling) -> str:
    passed = stops(found, found.passes, whole=False)
    healed = stops(found, found.heals, whole=True)
    on = "" if cards == 1 else f", {cards} cards train"
    cells = (
        trunk,
        f"{name}{on}",
        duration(found.heals[0]),
        f"{WORKERS[passed.place]}: {duration(found.passes[passed.place])}",
        passed.cause,
        f"{WORKERS[healed.place]}: {duration(found.heals[healed.place])}",
        healed.cause,
    )
    return f"| {' | '.join(cells)} |"


def _points_table(trunk: str, rates: Rates) -> Iterator[str]:
    yield f"{trunk}, a heal's time and what most of it is spent on:"
    yield ""
    yield f"| workers | {' | '.join(f'{name} tokens' for name in TOKENS)} |"
    yield f"|---{'|---' * len(TOKENS)}|"
    every = _by_tokens(trunk, 1, rates).values()
    for place, workers in enumerate(WORKERS):
        points = [one.times[place] for one in every]
        cells = [f"{duration(one.seconds)}, {one.largest}" for one in points]
        yield f"| {workers} | {' | '.join(cells)} |"


def _processors(measured: Measured) -> list[str]:
    """What the measured machine would need for the smaller trunk."""
    found = scaling("14B", Heal(tokens=TOKENS["0.4 M"]), measured.rates())
    days = [seconds / 86_400 for seconds in found.passes]
    return [
        f"On machines like the measured one, a thread each, the 14B pass of 0.4 M tokens "
        f"takes {days[0]:,.1f} days on one and {days[3]:,.1f} on {WORKERS[3]}."
    ]


def read_sites(path: Path, changes: Path | None = None) -> Sites:
    """The sites of a JSON file, rates of the cards changed as another says."""
    raw = json.loads(path.read_text())
    if changes is not None:
        raw["cards"] |= json.loads(changes.read_text())
    return Sites.model_validate(raw)


def with_tables(page: str, text: str) -> str:
    """A page with its tables between the two marks replaced."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{text}\n{END}{after}"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--measure", action="store_true", help="measure this machine first")
    parser.add_argument("--rates", type=Path, help="JSON that changes the cards' rates")
    parser.add_argument("--docs", type=Path, default=HOME / "docs")
    given = parser.parse_args(arguments)
    kept, page = given.docs / "scaling.json", given.docs / "scaling.md"
    try:
        sites = read_sites(kept, given.rates)
    except (OSError, ValueError, ValidationError) as error:
        print(f"{given.rates or kept}: {error}", file=sys.stderr)  # noqa: T201
        return 2
    if given.measure:
        from bench.scale_rates import measure_here

        sites = Sites(measured=measure_here(), cards=sites.cards)
        kept.write_text(json.dumps(sites.model_dump(), indent=1) + "\n")
    (given.docs / "img").mkdir(exist_ok=True)
    (given.docs / "img" / "scaling.svg").write_text(plot(sites))
    page.write_text(with_tables(page.read_text(), tables(sites)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
