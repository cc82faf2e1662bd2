"""A heal's cost by hand, where it stops scaling, and that the page shows just that."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.scale import (
    BEGIN,
    END,
    WORKERS,
    Scaling,
    main,
    read_sites,
    scaling,
    stops,
    tables,
    with_tables,
)
from bench.scale_model import (
    CODECS,
    COMPUTE,
    LOAD,
    STORE,
    TAIL,
    TRAIN,
    TRUNKS,
    Heal,
    HealTimes,
    Measured,
    Rates,
    TrunkSize,
    heal_times,
    pass_work,
)
from bench.scale_pass import PassTimes
from bench.scale_plot import HEIGHT, WIDTH, scale_svg

DOCS = Path(__file__).parents[2] / "docs"
SMALL = TrunkSize(hidden=8, layers=2, ffn=16, heads=2, kv_heads=1, head_dim=4, vocab=100)
ONES = Rates(
    flops=1.0,
    train_flops=1.0,
    model_each=1.0,
    model_shared=1.0,
    store_each=1.0,
    store_shared=1.0,
    hash_bytes=1.0,
    pack_tokens=1.0,
    encode_weights=1.0,
    cards_link=1.0,
    record_s=0.0,
    dispatch_s=0.0,
)


def test_a_trunk_of_14b_is_counted_by_hand() -> None:
    layer = 5120 * (2 * 6144 + 2 * 1024 + 3 * 17_408)
    assert TRUNKS["14B"].weights == 34 * layer + 2 * 248_320 * 5120 == 14_129_561_600
    assert TRUNKS["14B"].draft_weights == layer + 2 * 5120 * 5120
    assert round(TRUNKS["70B"].weights / 1e9, 1) == 70.6
    # Worked out by hand, without attention: 25.5 GF a token, 7.2 GF a row and step.
    flops = TRUNKS["14B"].token_flops(2048) - TRUNKS["14B"].attention_flops(2048)
    assert flops == pytest.approx(25.5e9, rel=0.01)
    assert TRUNKS["14B"].step_flops() == pytest.approx(7.2e9, rel=0.04)


def test_a_small_heal_is_counted_by_hand() -> None:
    heal = Heal(tokens=64, window=4, shard_windows=4, topk=2, depth=2, batch=2, codecs=3)
    assert heal.shards == 4
    layer = 8 * 8 + 8 * 4 * 2 + 8 * 8 + 3 * 8 * 16  # q, k and v, o, the MLP
    assert SMALL.weights == 2 * layer + 2 * 800
    row = 8 * 2 + 2 * 8 + 4
    token = 2 * (2 * layer + 800) + 2 * 4 * 2.5 * 8
    work = pass_work(SMALL, heal, ONES)
    assert work.compute_s == 16 * token + 16 * row
    assert work.shard_bytes == 16 * row
    assert work.load_bytes == 2 * SMALL.weights
    found = heal_times(SMALL, heal, ONES, workers=1).parts
    assert found[COMPUTE] == 64 * (token + row)
    assert found[STORE] == 64 * row
    assert found[LOAD] == 2 * SMALL.weights
    draft = 2 * 8 * 8 + layer
    assert found[TRAIN] == pytest.approx(
        0.9 * 64 * (2 * (6 * draft + 4 * 800) + row), rel=1e-12
    )
    measure = 6.4 * (2 * (2 * draft + 2 * 800) + row)
    rewrite = SMALL.weights * (2 + 1 + 2 * 0.5625)
    assert found[CODECS] == pytest.approx(3 * (rewrite + measure))
    assert heal_times(SMALL, heal, ONES, 2).parts[CODECS] == pytest.approx(
        2 * (rewrite + measure)
    )


def test_cards_that_train_together_share_the_work_and_add_their_gradients() -> None:
    heal = Heal(tokens=4096, window=4, shard_windows=4, batch=4)
    alone = heal_times(SMALL, heal, ONES, 1).parts[TRAIN]
    four = heal_times(SMALL, heal.model_copy(update={"train_cards": 4}), ONES, 1)
    steps, gradients = 0.9 * 4096 / 16, 2 * 3 / 4 * SMALL.draft_weights * 4
    assert four.parts[TRAIN] == pytest.approx(alone / 4 + steps * gradients)


def test_what_was_measured_becomes_rates() -> None:
    seen = {
        "shard_s": 2.0,
        "shard_flops": 8.0,
        "step_s": 4.0,
        "step_flops": 8.0,
        "load_s": 0.5,
        "load_bytes": 30.0,
        "write_s": 0.25,
        "write_bytes": 10.0,
        "hash_bytes": 5.0,
        "pack_tokens": 6.0,
        "encode_weights": 7.0,
        "record_s": 0.1,
        "dispatch_s": 0.2,
    }
    rates = Measured.model_validate(seen).rates()
    assert (rates.flops, rates.train_flops) == (4.0, 2.0)
    assert rates.model_each == rates.model_shared == 60.0
    assert rates.store_each == rates.store_shared == 40.0


def test_it_stops_where_twice_the_workers_gain_less_than_a_quarter() -> None:
    parts = [
        {LOAD: 1.0, COMPUTE: 8.0, STORE: 0.0, TAIL: 0.0, TRAIN: 3.0},
        {LOAD: 1.0, COMPUTE: 4.0, STORE: 0.0, TAIL: 0.0, TRAIN: 3.0},
        {LOAD: 1.0, COMPUTE: 2.0, STORE: 0.0, TAIL: 2.0, TRAIN: 3.0},
    ]
    times = [
        HealTimes({**dict.fromkeys(("locks and records",), 0.0), **one}, PassTimes())
        for one in parts
    ]
    found = Scaling((1, 2, 4), times)
    heal = stops(found, [12.0, 8.0, 8.0], whole=True)
    assert (heal.place, heal.cause) == (1, TRAIN)
    passed = stops(found, [9.0, 5.0, 5.0], whole=False)
    assert (passed.place, passed.cause) == (1, TAIL)
    assert stops(found, [8.0, 4.0, 2.0], whole=True).place == 2


def test_workers_beyond_the_shards_gain_nothing() -> None:
    heal, rates = Heal(tokens=2 * 2048 * 16), read_sites(DOCS / "scaling.json").cards
    found = scaling("14B", heal, rates)
    assert found.passes[1] == found.passes[-1]
    assert found.times[-1].parts[TAIL] == pytest.approx(found.passes[-1] * 254 / 256)


def test_the_page_has_the_tables_of_its_rates() -> None:
    text = tables(read_sites(DOCS / "scaling.json"))
    assert f"{BEGIN}\n{text}\n{END}" in (DOCS / "scaling.md").read_text(encoding="utf-8")


def test_rates_of_a_file_change_those_of_the_cards(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "scaling.json").write_text((DOCS / "scaling.json").read_text())
    (tmp_path / "scaling.md").write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    changes = tmp_path / "mine.json"
    changes.write_text(json.dumps({"flops": 1e13}))
    assert main(["--docs", str(tmp_path), "--rates", str(changes)]) == 0
    text = (tmp_path / "scaling.md").read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert tables(read_sites(DOCS / "scaling.json")) not in text
    changes.write_text(json.dumps({"flops": -1}))
    assert main(["--docs", str(tmp_path), "--rates", str(changes)]) == 2
    assert "cards.flops" in capsys.readouterr().err


def test_only_what_lies_between_the_marks_is_replaced() -> None:
    page = f"a\n{BEGIN}\nx\n{END}\nb\n"
    assert with_tables(page, "new") == f"a\n{BEGIN}\nnew\n{END}\nb\n"


def test_the_plot_is_a_file_that_a_browser_reads() -> None:
    ideal = [(n, float(n)) for n in WORKERS]
    found = ElementTree.fromstring(scale_svg({"pass": {"1 < 2 M": ideal}}))
    space = "{http://www.w3.org/2000/svg}"
    dotted, line = found.iter(f"{space}polyline")
    assert line.attrib["points"] == dotted_through(line.attrib["points"])
    assert dotted.attrib["points"] == f"0.0,{HEIGHT:.1f} {WIDTH:.1f},0.0"
    assert "1 < 2 M" in [text.text for text in found.iter(f"{space}text")]


def dotted_through(points: str) -> str:
    """The points of a line from corner to corner, a doubling an eighth of either way."""
    places = [(WIDTH * i / 8, HEIGHT * (1 - i / 8)) for i in range(points.count(" ") + 1)]
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
