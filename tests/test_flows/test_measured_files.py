"""Each file is measured as it was written: its own draft, its own bytes (healing.md §9)."""

from pathlib import Path

from cmfio.reader import open_container
from tasks.model_file import open_model
from tests.small_heal import Ground, heal

CODECS = ("keep", "q8_row", "q4_tiled")


def test_a_measure_is_of_the_draft_in_the_file(ground: Ground, tmp_path: Path) -> None:
    paths = {codec: tmp_path / f"{codec}.cmf" for codec in CODECS}
    outputs = [{"codec": codec, "path": str(path)} for codec, path in paths.items()]
    run = heal(ground.config(outputs=outputs), ground.store)
    store = run.runtime.store
    measured = {
        event.label: store.load("measure_draft", event.key)
        for event in run.runtime.ledger.events
        if event.name == "measure_draft"
    }
    rows = {row.codec: row for row in run.files.report.codecs}
    for codec, path in paths.items():
        with open_container(path) as file:
            entries = file.entries.items()
            mine = sum(e.nbytes for n, e in entries if n.startswith("model.mtp."))
        assert rows[codec].draft_bytes == mine
        assert rows[codec].file_bytes == path.stat().st_size
        measure = measured[f"healed {codec}"]
        assert measure is not None
        written = open_model(path, run.runtime).draft.content_digest
        assert measure.manifest.inputs["draft"] == written
        assert rows[codec].drafts_held == measure.numbers["drafts_held"]
