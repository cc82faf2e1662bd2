"""The page of one array, against the values that were written and plain loops over them."""

import math
import re

import numpy as np
import pytest

from tests.test_ui.pages import read_page
from tests.test_ui.planted import (
    CHANNELS,
    GAPS,
    KEPT,
    OUTLIER,
    ROWS,
    Planted,
    planted_in,
    png_pixels,
)
from ui.inspector.array_plots import number
from ui.inspector.heat import NOT_FINITE, Scale, heat_png, scale_of


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    return planted_in(tmp_path_factory.mktemp("planted") / "store")


@pytest.mark.parametrize("window", [0, 3, 4])
def test_statistics_are_those_of_the_values_of_the_window(
    planted: Planted, window: int
) -> None:
    values = [float(v) for v in planted.hidden_WRC[window].ravel()]
    mean = math.fsum(values) / len(values)
    told = {
        row["statistic"]: row["value"]
        for row in planted.rows("statistics", f"name=hidden&w={window}")
    }
    assert told["values"] == ROWS * CHANNELS
    assert told["not_finite"] == 0
    assert told["zeros"] == values.count(0.0)
    assert told["zero_rows"] == (4 if window == 0 else 0)
    assert (told["least"], told["largest"]) == (min(values), max(values))
    assert told["mean"] == pytest.approx(mean)
    spread = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / len(values))
    assert told["deviation"] == pytest.approx(spread)


def test_rows_and_channels_are_told_by_their_squares(planted: Planted) -> None:
    values = planted.hidden_WRC[4].tolist()
    for row in planted.rows("rows", "name=hidden&w=4"):
        own = values[row["position"]]
        assert row["norm"] == pytest.approx(math.sqrt(math.fsum(v * v for v in own)))
        assert (row["least"], row["largest"]) == (min(own), max(own))
    channels = planted.rows("channels", "name=hidden&w=4")
    for row in channels:
        own = [line[row["channel"]] for line in values]
        assert row["rms"] == pytest.approx(math.sqrt(math.fsum(v * v for v in own) / ROWS))
        assert row["largest"] == max(abs(v) for v in own)
    assert len(channels) == CHANNELS


def test_the_histogram_counts_each_value_once_in_its_bin(planted: Planted) -> None:
    values = planted.hidden_WRC[2].ravel().tolist()
    bins = planted.rows("histogram", "name=hidden&w=2")
    assert (bins[0]["low"], bins[-1]["high"]) == (min(values), max(values))
    for place, one in enumerate(bins):
        is_last = place == len(bins) - 1
        inside = [v for v in values if one["low"] <= v and (v < one["high"] or is_last)]
        assert one["count"] == len(inside)
    assert sum(one["count"] for one in bins) == len(values)


def test_the_outlier_channel_is_named_and_seen(planted: Planted) -> None:
    page = planted.page("?name=hidden&w=1")
    assert re.search(rf'<th scope="row">{OUTLIER}</th>', page)
    assert f"outlier channels: {OUTLIER}" in page
    answer = planted.client.get(f"/api/arrays/{planted.here}/heat.png?name=hidden&w=1")
    assert answer.headers["content-type"] == "image/png"
    pixels = png_pixels(answer.content)
    assert pixels.shape == (ROWS, CHANNELS, 3)
    brightness = pixels.astype(float).mean(axis=(0, 2))
    assert int(brightness.argmax()) == OUTLIER
    other = planted.client.get(f"/api/arrays/{planted.here}/heat.png?name=hidden&w=2")
    assert other.content != answer.content


def test_a_picture_of_more_values_than_pixels_keeps_a_lone_channel() -> None:
    values = np.full((1100, 3000), 0.01, np.float32)
    values[:, 1501] = 5.0
    values[7, 0] = np.nan
    scale = scale_of(values)
    assert scale.top == 10.0
    assert scale.bottom < 0.01
    pixels = png_pixels(heat_png(values, scale))
    assert pixels.shape == (367, 1000, 3)
    assert tuple(pixels[100, 500]) == (239, 217, 71)  # 1,501 is the second of its three
    assert tuple(pixels[2, 0]) == NOT_FINITE
    assert len(np.unique(pixels.reshape(-1, 3), axis=0)) == 3


def test_a_row_that_towers_does_not_darken_the_rest() -> None:
    values = np.ones((64, 32), np.float32)
    values[:, 5] = 30.0
    calm = scale_of(values)
    values[0] = 1e6
    assert scale_of(values) == calm
    assert (calm.top, calm.decades) == (60.0, 3.0)


def test_padded_rows_break_the_line_and_do_not_sink_it(planted: Planted) -> None:
    answer = planted.client.get(
        f"/api/arrays/{planted.here}/plots/rows.svg?name=hidden&w=0"
    )
    (line,) = re.findall(r'<polyline class="line fine" points="([^"]+)"', answer.text)
    drawn = [float(point.split(",")[0]) for point in line.split()]
    assert drawn == pytest.approx([100 * at / (ROWS - 1) for at in range(20)], abs=0.01)


def test_shares_come_to_what_a_step_keeps(planted: Planted) -> None:
    answer = planted.client.get(f"/api/arrays/{planted.lone}/rows.json?name=draft_top4_p")
    for row in answer.json()["rows"]:
        both = planted.topk_p_WRK[0, row["position"], :8].tolist()
        assert row["probability kept"] == pytest.approx(math.fsum(both) / 2)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (None, "–"), (90512.0, "90,512"), (-0.01234567, "−0.01235"),
     (100.0, "100"), (3.1e12, "3.1\u00a0×\u00a010¹²"), (-2.0, "−2")],
)  # fmt: skip
def test_a_number_has_four_digits_and_no_idle_zeros(value: float | None, text: str) -> None:
    assert number(value) == text


def test_a_scale_of_nothing_is_still_one() -> None:
    assert scale_of(np.zeros((2, 3), np.float32)) == Scale(1.0, 2.0)
    assert scale_of(np.full((2, 3), np.nan, np.float32)) == Scale(1.0, 2.0)


def test_what_is_not_finite_is_counted_and_left_out(planted: Planted) -> None:
    page = planted.page(f"?name=hidden&w={GAPS}")
    assert f"{ROWS * CHANNELS - 3:,} of {ROWS * CHANNELS:,}" in page
    assert "not finite" in page
    rows = planted.rows("rows", f"name=hidden&w={GAPS}")
    assert [r["position"] for r in rows if r["norm"] is None] == [3, 9]
    channels = planted.rows("channels", f"name=hidden&w={GAPS}")
    assert [c["channel"] for c in channels if c["rms"] is None] == [4, 5]
    assert f"outlier channels: {OUTLIER}" in page
    told = planted.rows("statistics", f"name=hidden&w={GAPS}")
    finite = planted.hidden_WRC[GAPS][np.isfinite(planted.hidden_WRC[GAPS])]
    assert {"statistic": "largest", "value": float(finite.max()), "window": GAPS} in told


def test_top_rows_are_bars_of_what_is_stored(planted: Planted) -> None:
    page = planted.page("?name=topk_p&w=4&row=2")
    bars = re.findall(r'<rect class="pt" width="([\d.]+)%"', page)
    p = planted.topk_p_WRK[4, 2:8, :8].ravel().tolist()
    assert bars == [f"{100 * one:.2f}" for one in p]
    assert f"{100 * planted.topk_p_WRK[4, 2, 8:].sum():.1f}\u00a0%" in page
    assert str(planted.topk_id_WRK[4, 2, 0]) in page
    rows = planted.rows("topk", "name=topk_id&w=4")
    assert len(rows) == ROWS * KEPT
    for row in rows:
        at = 4, row["position"], row["rank"] - 1
        assert (row["id"], row["step"]) == (planted.topk_id_WRK[at], None)
        assert row["p"] == planted.topk_p_WRK[at]


def test_rows_of_several_steps_are_told_apart(planted: Planted) -> None:
    answer = planted.client.get(f"/arrays/{planted.lone}?name=draft_top4_id&w=1&row=23")
    assert re.findall(r"<h3>([^<]+)</h3>", answer.text) == [
        "row 23, step 1",
        "row 23, step 2",
    ]
    table = planted.client.get(
        f"/api/arrays/{planted.lone}/topk.json?name=draft_top4_p&w=1"
    ).json()["rows"]
    flat = planted.topk_p_WRK[1, :, :8].reshape(ROWS, 2, 4)
    for row in table:
        assert row["p"] == flat[row["position"], row["step"] - 1, row["rank"] - 1]


@pytest.mark.parametrize(
    ("name", "has", "lacks"),
    [
        ("hit", {"heat", "rows", "histogram"}, {"topk"}),
        ("length", {"histogram"}, {"heat", "rows", "topk"}),
        ("logsumexp", {"histogram", "rows"}, {"heat", "topk"}),
        ("draft_top4_id", {"histogram", "topk"}, {"heat", "rows"}),
        ("draft_top4_p", {"histogram", "topk", "heat", "rows"}, set()),
    ],
)
def test_an_array_of_any_kind_has_what_makes_sense(
    planted: Planted, name: str, has: set[str], lacks: set[str]
) -> None:
    answer = planted.client.get(f"/arrays/{planted.lone}?name={name}&w=2")
    page = read_page(answer.text.replace("<!doctype html>", ""))
    ids = {tag.attrs.get("id") for tag in page.tags}
    assert has <= ids
    assert not lacks & ids
    assert not re.findall(r'\sstyle="|<style|\son[a-z]+="|<script(?! src)', answer.text)


def test_every_link_and_picture_of_a_page_is_there(planted: Planted) -> None:
    for query in ("", "?name=topk_id&w=5", "?name=topk_p&row=12"):
        page = read_page(planted.page(query).replace("<!doctype html>", ""))
        links = [tag.attrs["href"] for tag in page.tags if "href" in tag.attrs]
        ours = {one for one in links if "arrays/" in one}
        assert len(ours) > 5
        for link in ours:
            assert planted.client.get(link).status_code == 200, link
