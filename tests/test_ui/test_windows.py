"""The page that explains a draft on text, against the arrays read by zarr itself."""

import re
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pytest
from starlette.testclient import TestClient

from store.store import Store
from tests.test_ui.pages import read_page
from ui.figures import percent_sign
from ui.inspector.app import create_app
from ui.inspector.blocks import widened
from ui.inspector.spelling import Spelling, shown
from ui.inspector.window_data import Chains, Window
from ui.inspector.window_view import start_of

if TYPE_CHECKING:
    from tests.small_heal import Ground


@dataclass(frozen=True)
class Seen:
    """A healed store, its client, and its measures by the label of their run."""

    root: Path
    client: TestClient
    keys: dict[str, str]

    def array(self, label: str, name: str) -> npt.NDArray[np.generic]:
        import zarr

        path = self.root / "measure_draft" / self.keys[label] / name
        return np.asarray(zarr.open_array(path, mode="r"))


@pytest.fixture(scope="module")
def seen(finished: "Ground", tmp_path_factory: pytest.TempPathFactory) -> Seen:
    from conf.load import check
    from conf.schema import RunConfig
    from flows.runs import recorded
    from tasks.stage import Runtime
    from tests.small_heal import heal

    root = tmp_path_factory.mktemp("windows") / "store"
    ground = replace(finished, store=shutil.copytree(finished.store, root))
    raw = ground.config()
    config = check(RunConfig, raw, "small")
    with recorded(Runtime(store=Store(root)), "heal run", config) as recording:
        run = heal(raw, root, recording.runtime)
        recording.reported(run.files)
    events = recording.runtime.ledger.events
    keys = {e.label.split()[0]: e.key for e in events if e.name == "measure_draft"}
    return Seen(root, TestClient(create_app(root)), keys)


def rows_of(seen: Seen, key: str, table: str, query: str = "") -> list[dict[str, object]]:
    answer = seen.client.get(f"/api/windows/measure_draft/{key}/{table}.json{query}")
    rows: list[dict[str, object]] = answer.json()["rows"]
    return rows


def test_a_token_tells_what_each_chain_from_it_kept(seen: Seen) -> None:
    windows = seen.array("healed", "window")
    for place, window in enumerate(windows.tolist()):
        rows = rows_of(seen, seen.keys["healed"], "tokens", f"?w={window}")
        for role in ("stale", "healed"):
            hit = seen.array(role, "hit")[place]
            for at, row in enumerate(rows):
                kept = 0
                while kept < hit.shape[1] and hit[at, kept]:
                    kept += 1
                assert row[f"{role}_kept"] == kept, (window, role, at)


def test_the_pages_colours_are_the_chains_that_reach_the_tokens(seen: Seen) -> None:
    window = int(seen.array("healed", "window")[0])
    counted = seen.array("healed", "counted")[0]
    hit = seen.array("healed", "hit")[0]
    looks = set()
    for step in (1, 2):
        answer = seen.client.get(
            f"/windows/measure_draft/{seen.keys['healed']}?w={window}&c={step}"
        )
        for tag in read_page(answer.text).tags:
            found = re.search(r"[?&]at=(\d+)", tag.attrs.get("href", ""))
            if tag.name != "a" or "title" not in tag.attrs or found is None:
                continue
            start = int(found[1]) - step - 1
            said = tag.attrs["title"].partition(": ")[2]
            if start < 0:
                assert said == "no chain reaches it"
            elif not counted[start, step - 1]:
                assert said == "did not count"
            else:
                assert said == ("held" if hit[start, step - 1] else "missed")
            looks.add(said)
    assert {"held", "did not count"} <= looks


def test_the_largest_gain_and_loss_are_the_ends_of_all_windows(seen: Seen) -> None:
    windows = seen.array("healed", "window").tolist()
    means = {}
    for role in ("stale", "healed"):
        hit, counted = seen.array(role, "hit"), seen.array(role, "counted")
        means[role] = [
            float(hit[w].sum() / max(counted[w, :, 0].sum(), 1))
            for w in range(len(windows))
        ]
    gain = dict(
        zip(windows, np.subtract(means["healed"], means["stale"]).tolist(), strict=True)
    )
    told = {r["window"]: r["gain"] for r in rows_of(seen, seen.keys["stale"], "gains")}
    assert told == pytest.approx(gain)
    for by, best in (("gain", max(gain.values())), ("loss", min(gain.values()))):
        answer = seen.client.get(
            f"/windows/measure_draft/{seen.keys['healed']}?by={by}", follow_redirects=False
        )
        found = re.search(r"w=(\d+)", answer.headers["location"])
        assert found is not None
        assert gain[int(found[1])] == pytest.approx(best)


def test_a_windows_coverage_is_of_the_rows_that_have_a_next_one(seen: Seen) -> None:
    counted, length = seen.array("healed", "counted"), seen.array("healed", "length")
    for place, window in enumerate(seen.array("healed", "window").tolist()):
        page = seen.client.get(f"/windows/measure_draft/{seen.keys['healed']}?w={window}")
        share = float(counted[place, :, 0].sum()) / (int(length[place]) - 1)
        assert f"coverage {percent_sign(share)}" in page.text, window


@pytest.mark.parametrize(("is_isolated", "coverage"), [(False, 3 / 4), (True, 1.0)])
def test_records_apart_have_a_last_row_each(*, is_isolated: bool, coverage: float) -> None:
    # Rows 0, 2 and 3 count; row 1 is the last of the first record, row 4 of the window.
    counted = np.array([1, 0, 1, 1, 0, 0], bool)[:, None]
    chains = Chains(counted, counted, counted, counted)
    none = np.zeros((6, 1))
    window = Window(
        0,
        np.arange(5),
        record_starts=(0, 2),
        set_name="a",
        is_held_out=True,
        is_isolated=is_isolated,
        top_id=none,
        top_p=none,
        chains={"healed": chains},
    )
    assert window.coverage == coverage


@pytest.mark.parametrize("window", [0, 9, 45])
def test_the_trunks_probability_is_the_row_befores(seen: Seen, window: int) -> None:
    import zarr

    rows = rows_of(seen, seen.keys["healed"], "tokens", f"?w={window}")
    (pass_,) = [a for a in Store(seen.root).artifacts() if a.stage == "trunk_pass"]
    shard, place = divmod(window, 8)
    path = seen.root / pass_.manifest.parts[shard]
    ids = np.asarray(zarr.open_array(path / "topk_id", mode="r")[place])
    p = np.asarray(zarr.open_array(path / "topk_p", mode="r")[place])
    assert rows[0]["trunk_p"] is None
    for at in range(1, len(rows)):
        kept = dict(zip(ids[at - 1].tolist(), p[at - 1].tolist(), strict=True))
        assert rows[at]["trunk_p"] == kept.get(rows[at]["id"])
    assert sum(row["trunk_p"] is not None for row in rows) > len(rows) // 2


def test_a_window_it_trained_on_has_no_chains(seen: Seen) -> None:
    held_out = set(seen.array("healed", "window").tolist())
    window = next(w for w in range(50) if w not in held_out)
    page = seen.client.get(f"/windows/measure_draft/{seen.keys['healed']}?w={window}").text
    assert "trained on" in page
    row = rows_of(seen, seen.keys["healed"], "tokens", f"?w={window}")[0]
    assert "healed_kept" not in row


@pytest.mark.parametrize("query", ["?c=p", "?c=kept&draft=stale", "?c=2&draft=difference"])
def test_every_colouring_keeps_the_policy(seen: Seen, query: str) -> None:
    text = seen.client.get(f"/windows/measure_draft/{seen.keys['healed']}{query}").text
    read_page(text.replace("<!doctype html>", ""))
    assert not re.findall(r'\sstyle="|<style|\son[a-z]+="|<script(?! src)', text)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/windows/measure_draft/{key}?w=99999", 404),
        ("/windows/measure_draft/{key}?w=-1", 400),
        ("/windows/measure_draft/{key}?c=<script>", 400),
        ("/windows/train_draft/{key}", 404),
        ("/windows/measure_draft/..%2f..%2fetc", 404),
        ("/api/windows/measure_draft/{key}/nothing.csv", 404),
        ("/windows/measure_draft/{key}?at=99999", 200),
        ("/windows/measure_draft/{key}?c=99", 404),
    ],
)
def test_what_cannot_be_shown_is_said_so(seen: Seen, path: str, status: int) -> None:
    answer = seen.client.get(path.format(key=seen.keys["healed"]))
    assert answer.status_code == status
    assert "<script>" not in answer.text


@pytest.mark.parametrize("is_gone", [True, False])
def test_a_damaged_chunk_is_a_page(seen: Seen, tmp_path: Path, *, is_gone: bool) -> None:
    root = shutil.copytree(seen.root, tmp_path / "store")
    chunk = root / "measure_draft" / seen.keys["healed"] / "hit/c/0/0/0"
    chunk.chmod(0o644)
    if is_gone:
        chunk.unlink()
    else:
        chunk.write_bytes(chunk.read_bytes()[:-1] + b"?")
    window = int(seen.array("healed", "window")[0])
    other = int(seen.array("healed", "window")[1])
    client = TestClient(create_app(root))
    here = f"/windows/measure_draft/{seen.keys['healed']}"
    assert client.get(f"{here}?w={window}").status_code == 410
    assert client.get(f"{here}?w={other}").status_code == 200  # its own chunk is whole


def test_rows_that_are_gone_are_said_to_be(seen: Seen, tmp_path: Path) -> None:
    root = shutil.copytree(seen.root, tmp_path / "store")
    shutil.rmtree(root / "trunk_pass")
    answer = TestClient(create_app(root)).get(
        f"/windows/measure_draft/{seen.keys['healed']}"
    )
    assert answer.status_code == 404
    assert "no longer in the store" in answer.text


def test_tokens_are_spelled_with_their_spaces_and_odd_bytes() -> None:
    from tokenizers import Tokenizer, decoders, models

    vocab = {"Ġthe": 0, "Ċ": 1, "âĤ": 2, "<b>": 3}
    tokenizer = Tokenizer(models.BPE(vocab, []))
    tokenizer.decoder = decoders.ByteLevel()
    spelling = Spelling(tokenizer)
    assert [spelling.text(i) for i in range(4)] == [" the", "\n", "<0xE2><0x82>", "<b>"]
    assert [spelling.alone(i) for i in range(2)] == ["␣the", "↵"]
    assert spelling.text(99) == " 99"
    assert Spelling(None).text(7) == " 7"
    assert Spelling(None).alone(7) == "7"
    assert shown("a\tb\x1b") == "a⇥b<0x1b>"


def test_bf16_bits_are_widened_by_the_formats_own_numbers() -> None:
    bits = np.array([0x3F80, 0xC000, 0x0000, 0x3E80], np.uint16)
    assert widened(bits).tolist() == [1.0, -2.0, 0.0, 0.25]


def test_a_chain_predicts_the_token_after_those_it_was_fed() -> None:
    # The reference: the chain from 666 predicts position 670 at step 3.
    assert start_of(670, "3") == (666, 3)
    assert start_of(5, "p") == (3, 1)
    assert start_of(5, "kept") == (5, 1)
