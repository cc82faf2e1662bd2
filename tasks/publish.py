"""From the store to where a user wants a result: whole, or not at all."""

import os
import shutil
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cmfio.atomic import check_replaceable, real_path, replacing, replacing_folder
from cmfio.copying import copy_file
from cmfio.envelope import MAGIC
from cmfio.errors import BadPath, CmfError, CmfIoError, DamagedTensor
from cmfio.hf_checkpoint import open_hf
from cmfio.hf_folder import PROVENANCE, folder_files
from cmfio.hf_identity import file_digests
from cmfio.hf_patch import NEW_FILE
from cmfio.policy import FLOATS, KEEP
from cmfio.safetensors_files import INDEX
from store.space import free_bytes, size_text
from tasks.errors import InputError
from tasks.model_file import (
    Layout,
    ModelFile,
    checkpoint_tensors,
    refuse_changed_model,
)
from tasks.stage import Runtime

# What file systems take, less what stands behind a name while it is written.
NAME_BYTES = 255 - len(".partial.old")


@dataclass(frozen=True)
class Target:
    """Where an output goes, in which codec, and whether it is a file or a folder."""

    path: Path
    codec: str
    layout: Layout = "cmf"


def target_of(path: str, codec: str, student: Path) -> Target:
    """A checkpoint's folder gives folders, and a `.cmf` where the path ends like one."""
    is_folder = student.is_dir() and not path.endswith(".cmf")
    return Target(Path(path), codec, "hf" if is_folder else "cmf")


def refuse_bad_outputs(outputs: Sequence[Target], inputs: Mapping[str, Path]) -> None:
    """InputError, before anything runs, for an output that can't or mustn't be written.

    It is an input, in one or around one, or another output. For a file: a folder, a device,
    a read-only file, or one that is no `.cmf`, is there. For a folder: one with something
    in it that wasn't written here. Also through links and `..`. Or its folder takes no new
    file: that is tried, with one that has no name or loses it at once; none is made.
    """
    for place, output in enumerate(outputs):
        _refuse_long(output.path)
        for role, source in inputs.items():
            if _is_same(output.path, source):
                raise InputError(
                    f"outputs: {output.path} is the {role} {source}; inputs are never "
                    "overwritten, choose another path"
                )
        if any(_is_same(output.path, other.path) for other in outputs[:place]):
            raise InputError(
                f"outputs: {output.path} is named twice; give each a path of its own"
            )
        _refuse_shut_folder(output.path)
        if output.layout == "hf":
            _refuse_bad_folder(output, inputs)
        else:
            _refuse_odd_file(output.path)


def _refuse_long(path: Path) -> None:
    for part in path.parts:
        if len(os.fsencode(part)) > NAME_BYTES:
            raise InputError(
                f"outputs: the name {part[:20]!r}… has {len(os.fsencode(part))} bytes; "
                f"file systems take 255, and it is written under a longer name first: use "
                f"at most {NAME_BYTES}"
            )


def _refuse_odd_file(path: Path) -> None:
    try:
        check_replaceable(path)
    except BadPath as error:
        raise InputError(f"outputs: {error}") from error
    if path.is_file() and _head_of(path) not in (b"", MAGIC):  # a text, a configuration
        raise InputError(
            f"outputs: {path} is there already and is no .cmf, so it is not replaced; "
            "choose another path, or move it away"
        )


def _refuse_shut_folder(path: Path) -> None:
    """InputError unless its folder, or the first one above that is there, takes files."""
    folder = real_path(path).parent
    while not os.path.lexists(folder):
        folder = folder.parent
    try:
        with tempfile.TemporaryFile(dir=folder):
            return
    except OSError as error:
        # What /proc says of a new file.
        is_odd = isinstance(error, FileNotFoundError) and folder.is_dir()
        why = "none can be made there" if is_odd else error.strerror
        raise InputError(
            f"outputs: {path} can't be written, {folder} takes no new file ({why}): make "
            "that folder writable, or choose another path"
        ) from error


def _head_of(path: Path) -> bytes:
    try:
        with path.open("rb") as there:
            return there.read(len(MAGIC))
    except OSError as error:
        raise InputError(
            f"outputs: {path} is there already and can't be read: {error.strerror}; choose "
            "another path, or move it away"
        ) from error


def _refuse_bad_folder(output: Target, inputs: Mapping[str, Path]) -> None:
    path = output.path
    if output.codec not in (KEEP, *FLOATS):
        raise InputError(
            f"outputs: {path} will be a Hugging Face folder, which holds {KEEP}, "
            f"{', '.join(FLOATS)}; for {output.codec} give a path that ends in .cmf"
        )
    if path.exists() and not path.is_dir():
        raise InputError(
            f"outputs: {path} is a file; the student is a folder, so give the path of a "
            "folder, or of a .cmf"
        )
    for role, source in inputs.items():
        one, other = path.resolve(), source.resolve()
        if one != other and (one.is_relative_to(other) or other.is_relative_to(one)):
            raise InputError(
                f"outputs: {path} and the {role} {source} lie in one another; choose "
                "another path"
            )
    if path.is_dir() and any(path.iterdir()) and not (path / PROVENANCE).is_file():
        raise InputError(
            f"outputs: {path} has files in it that weren't written here (there is no "
            f"{PROVENANCE}); give a new or an empty folder"
        )
    student = inputs.get("student")
    if student is not None:
        own = {file.name for file in folder_files(student)}
        _refuse_foreign(path, own | {INDEX, NEW_FILE, PROVENANCE})


def _is_same(path: Path, other: Path) -> bool:
    if path.resolve() == other.resolve():
        return True
    return path.exists() and other.exists() and path.samefile(other)


def publish(model: Path, target: Path) -> None:
    """Copies a result to the path a user asked for, whole or not at all.

    Waits for another run that is writing there. InputError if it cannot be written.
    """
    _refuse_no_room(model.stat().st_size, target, model)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with model.open("rb") as source, replacing(target, waits=True) as copy:
            shutil.copyfileobj(source, copy, 1 << 24)
    except (OSError, CmfIoError) as error:
        raise _unwritable(target, error, model) from error


def publish_checkpoint(healed: ModelFile, target: Path, runtime: Runtime) -> None:
    """Copies a student's folder with the files of its patch in their place, and audits it.

    Every file is a copy of its own, so nothing done to it reaches the student. Sub-folders
    and hidden files are no part of it. Waits for another run that is writing there.
    InputError if it cannot be written, would replace files of other making, or the student
    isn't what it was; DamagedTensor if the copy isn't as it should be.
    """
    assert healed.patch is not None
    refuse_changed_model(healed)
    files = {path.name: path for path in folder_files(healed.path)}
    files |= {path.name: path for path in folder_files(healed.patch)}
    _refuse_foreign(target, files)
    _refuse_no_room(sum(p.stat().st_size for p in files.values()), target, healed.patch)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing_folder(target, waits=True, replaces=True) as made:
            with runtime.progress.task(
                f"writing {target.name}", total=len(files), unit="files"
            ) as bar:
                for name, path in files.items():
                    copy_file(path, made / name)
                    bar.advance(1)
            refuse_changed_model(healed)
            _audit(healed, made, runtime)
    except (OSError, CmfIoError) as error:
        raise _unwritable(target, error, healed.patch) from error


def _audit(healed: ModelFile, made: Path, runtime: Runtime) -> None:
    """DamagedTensor unless every tensor of the copy is the one that was to be written."""
    with open_hf(healed.path, healed.patch) as wanted, open_hf(made) as copy:
        expected = checkpoint_tensors(wanted, runtime)
        if copy.tensors.keys() != wanted.tensors.keys():
            raise DamagedTensor(f"{made}: has other tensors than were copied; run again")
        total = sum(copy.bytes_in(path) for path in copy.weight_files)
        with runtime.progress.task(
            f"checking {made.name}", total=total, unit="bytes"
        ) as bar:
            for path in copy.weight_files:
                for name, sha in file_digests(copy, path, bar.advance).items():
                    one, other = copy.tensors[name], wanted.tensors[name]
                    is_same = (one.dtype, one.shape) == (other.dtype, other.shape)
                    if not is_same or sha != expected[name]:
                        raise DamagedTensor(
                            f"{path}: tensor {name!r} isn't as it was written; the disk "
                            "or the input is damaged, run again"
                        )


def _refuse_foreign(target: Path, names: Collection[str]) -> None:
    """InputError if a folder to be replaced has more in it than a checkpoint's files."""
    found = sorted(p.name for p in target.iterdir()) if target.is_dir() else []
    foreign = [name for name in found if name not in names]
    if foreign:
        raise InputError(
            f"outputs: {target} also has {foreign[0]}, which isn't of the checkpoint and "
            "would be lost; move it, or choose another path"
        )


def _refuse_no_room(need: int, target: Path, kept: Path) -> None:
    free = free_bytes(target.parent)
    if need > free:
        why = f"it takes {size_text(need)}, {size_text(free)} are free there"
        raise _unwritable(target, CmfError(why), kept)


def _unwritable(target: Path, error: Exception, kept: Path) -> InputError:
    system = error if isinstance(error, OSError) else error.__cause__
    why = getattr(system, "strerror", None) or str(error)
    return InputError(
        f"outputs: {target} could not be written ({why}); the result is kept in the store "
        f"as {kept}: make room or choose another path, and run again"
    )
