from pathlib import Path

import pytest

from conf.errors import ConfigError
from conf.load import apply_override, read_yaml


def test_a_key_given_twice_is_refused_with_both_lines(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("student: a\ntrain:\n  lr: 1\n  depth: 2\n  lr: 3\n")
    with pytest.raises(ConfigError) as caught:
        read_yaml(path)
    assert str(caught.value) == (
        f"{path}: lr is given on line 3 and again on line 5; keep one of them"
    )


def test_a_key_of_another_mapping_or_of_a_merge_may_come_again(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("a: &a {lr: 1}\nb:\n  <<: *a\n  lr: 2\nc: [{lr: 3}, {lr: 4}]\n")
    assert read_yaml(path) == {
        "a": {"lr": 1},
        "b": {"lr": 2},
        "c": [{"lr": 3}, {"lr": 4}],
    }


def test_a_key_given_twice_in_an_override_is_refused() -> None:
    raw: dict[str, object] = {}
    with pytest.raises(ConfigError) as caught:
        apply_override(raw, "train={lr: 1, lr: 2}")
    assert str(caught.value) == (
        "--set train={lr: 1, lr: 2}: lr is given twice on line 1; keep one of them"
    )
    assert raw == {}
    apply_override(raw, "train={lr: 1, depth: 2}")
    assert raw == {"train": {"lr": 1, "depth": 2}}
