"""Models and data that aren't there: each is told with its setting and who named it."""

import os
from pathlib import Path

import pytest

from flows.inputs import load_heal
from tasks.errors import InputError


def test_all_that_is_missing_is_told_with_its_setting_and_who_named_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.cmf").touch()
    (tmp_path / "prose.txt").touch()
    (tmp_path / "my.yaml").write_text(
        "student: gone.cmf\n"
        "data: [prose.txt@50, pros.txt, {write: {prompts: {path: prose.txt@50}}}]\n"
    )
    with pytest.raises(InputError) as caught:
        load_heal("my", ["init=base.cmf", "train.lr=1e-3"])
    message = str(caught.value)
    assert message.startswith(
        "my.yaml: student: gone.cmf: there is no such file or folder; give a .cmf"
    )
    assert "; data[1]: pros.txt: there is no such file, folder or match;" in message
    assert "data[2].write.prompts: prose.txt@50: " in message
    assert "as `tokens: 5000` beside the path" in message
    assert "; --set: init: base.cmf: there is no such file or folder" in message
    assert "data[0]" not in message
    assert message.endswith(f"(relative paths begin in {os.getcwd()}, where this runs)")  # noqa: PTH109
    changed = ["student=there.cmf", "data=[prose.txt, 'p*.txt', python:topics]"]
    assert load_heal("my", changed).student == "there.cmf"
