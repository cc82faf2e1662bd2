"""Nothing that is read may run: no pickle in the source, none in a result record."""

import ast
import json
from pathlib import Path

import pytest

from store.errors import ArtifactDamaged
from store.record import read_reference

HERE = Path(__file__).parents[2]
ROOMS = ("cmfio", "conf", "flows", "nets", "store", "tasks", "ui")
RUNS_CODE = {"pickle", "cPickle", "cloudpickle", "dill", "marshal", "shelve", "joblib"}
CALLS = {"eval", "exec", "torch.load", "yaml.unsafe_load", "yaml.full_load"}
SOURCES = [path for room in ROOMS for path in sorted((HERE / room).rglob("*.py"))]


def imported(tree: ast.AST) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.split(".")[0])
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(HERE)))
def test_no_source_reads_what_could_run(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert not imported(tree) & RUNS_CODE
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    for call in calls:
        # torch's own reader of weights alone runs nothing
        is_plain = any(
            k.arg == "weights_only" and ast.unparse(k.value) == "True"
            for k in call.keywords
        )
        assert ast.unparse(call.func) not in CALLS or is_plain, ast.unparse(call)
        for word in call.keywords:
            is_pickle = word.arg == "allow_pickle" and ast.unparse(word.value) != "False"
            assert not is_pickle, ast.unparse(call)


def test_a_record_with_a_pickle_in_it_is_damage_and_runs_nothing(tmp_path: Path) -> None:
    """`cos\\nsystem` … as Prefect's pickle serializer would have stored it."""
    mark = tmp_path / "ran"
    payload = f"cos\nsystem\n(S'touch {mark}'\ntR."
    record = tmp_path / "write_text" / ("0" * 32) / "record.json"
    record.parent.mkdir(parents=True)
    metadata = {"serializer": {"type": "pickle"}, "storage_key": str(record)}
    record.write_text(json.dumps({"metadata": metadata, "result": payload}))
    with pytest.raises(ArtifactDamaged, match="the record cannot be read"):
        read_reference(record)
    record.write_bytes(b"\x80\x04" + payload.encode())
    with pytest.raises(ArtifactDamaged, match="the record cannot be read"):
        read_reference(record)
    assert not mark.exists()
