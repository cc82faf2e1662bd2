"""Which slips of the numerics no test would see: each is made once, and the tests run.

`python -m bench.mutation [--only TEXT] [--every N]` writes nothing. A mutant lives in
memory alone: torch is imported once, and a child forked for each imports the changed
module in place of the file. A survivor is argued if `docs/mutation.md` has its line; the
exit status is 1 if one is not. Linux only, hours for all; no part of any check.
"""

import argparse
import ast
import importlib.abc
import importlib.machinery
import os
import resource
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import CodeType, ModuleType

import hypothesis
import numba  # noqa: F401 — imported once, for all children
import pytest
import torch  # noqa: F401
import transformers  # noqa: F401

from bench.mutants import Mutant, mutants

HOME = Path(__file__).resolve().parent.parent
PAGE = HOME / "docs" / "mutation.md"
OURS = ("cmfio", "conf", "nets", "tests")
MEMORY = 16 << 30  # of address space: a mutant may ask for anything
SAID_EVERY = 10  # mutants
SLOWER = 5  # than the file as it is, and it counts as hung
NETS, CMFIO = "tests/test_nets/test_", "tests/test_cmfio/test_codec"
CODEC_TESTS = (
    f"{CMFIO}s.py",
    f"{CMFIO}_edges.py",
    f"{CMFIO}_blocks.py",
    f"{CMFIO}_properties.py",
    f"{CMFIO}_refusals.py",
    "tests/test_cmfio/test_convert.py",
)
# A mutant is not seen by the programs that these start.
OTHER_PROGRAMS = ("nothing_can_be_written", "no_compiler")


@dataclass(frozen=True)
class Target:
    """A file and the tests that are to notice each slip in it.

    `first` picks those that most slips fail, to be run before all (pytest's `-k`).
    """

    path: str
    tests: Sequence[str]
    first: str = ""

    @property
    def module(self) -> str:
        """Its import name."""
        return self.path.removesuffix(".py").replace("/", ".")


# Of the codecs, `jit.py` is settings of the compiler and `table.py` a page of the docs.
CODECS = {
    "q8_kernels": "q8",
    "q8": "q8",
    "q4_kernels": "q4_block or q4_tiled",
    "q4": "q4_block or q4_tiled",
    "two_plane_kernels": "tp",
    "two_plane": "tp",
    "vbit_kernels": "vbit",
    "vbit": "vbit",
    "q1_kernels": "q1 and not q1t",
    "q1": "q1 and not q1t",
    "q1t_kernels": "q1t",
    "q1t": "q1t",
    "group_kernels": "",
    "floats": "f16 or float",
    "halves": "half or halves",
    "ladder": "ladder or q1t",
    "libm": "logarithms or ladders",
    "outliers": "q8_2f",
    "words": "vbit",
    "blocks": "",
    "rows": "",
    "base": "",
    "registry": "",
}
TARGETS = (
    Target("nets/losses.py", (f"{NETS}losses.py",)),
    Target("nets/hold.py", (f"{NETS}hold.py", f"{NETS}hold_views.py", f"{NETS}records.py")),
    Target("nets/chain.py", (f"{NETS}chain.py", f"{NETS}layouts.py", f"{NETS}records.py")),
    Target("nets/layouts.py", (f"{NETS}layouts.py", f"{NETS}records.py")),
    *(
        Target(f"cmfio/codecs/{one}.py", CODEC_TESTS, first)
        for one, first in CODECS.items()
    ),
)


@dataclass
class Tally:
    """What came of the mutants of a file."""

    tried: int = 0
    killed: int = 0
    hung: int = 0
    survivors: list[Mutant] = field(default_factory=list)


class InPlace(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports `code` as `module`. numba keeps nothing of it: its code is from no file."""

    def __init__(self, module: str, code: CodeType) -> None:
        self.module, self.code = module, code

    def find_spec(
        self, fullname: str, path: object, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Of `module` alone."""
        if fullname != self.module:
            return None
        return importlib.machinery.ModuleSpec(fullname, self)

    def exec_module(self, module: ModuleType) -> None:
        """Runs the code."""
        exec(self.code, module.__dict__)


def passes(target: Target, tree: ast.Module, limit_s: int) -> bool | None:
    """Whether the target's tests pass with `tree` as its module; None: too slow."""
    code = compile(tree, "<mutant>", "exec")
    if target.first:
        soon = _outcome(target, code, limit_s, target.first)
        if not soon:
            return soon
    return _outcome(target, code, limit_s)


def _outcome(target: Target, code: CodeType, limit_s: int, only: str = "") -> bool | None:
    child = os.fork()
    if child == 0:
        _run(target, code, limit_s, only)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        return None if os.WTERMSIG(status) == signal.SIGALRM else False
    found = os.waitstatus_to_exitcode(status)
    if found > pytest.ExitCode.INTERRUPTED:
        raise SystemExit(f"{target.path}: pytest ended with {found}; look at its tests")
    return found == 0


def _run(target: Target, code: CodeType, limit_s: int, only: str) -> None:
    """In the child: never returns."""
    signal.alarm(limit_s)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    sys.meta_path.insert(0, InPlace(target.module, code))
    quiet = ["-xq", "--noconftest", "--assert=plain", "--tb=no", "-p", "no:cacheprovider"]
    words = [f"not {name}" for name in OTHER_PROGRAMS] + [f"({only})"] * bool(only)
    others = ["-k", " and ".join(words)]
    status = 70
    try:
        status = int(pytest.main([*quiet, *others, *target.tests]))
    finally:
        os._exit(status)


def tally(target: Target, every: int) -> Tally:
    """Runs each `every`-th mutant of a file, once its tests are known to read it."""
    tree = ast.parse((HOME / target.path).read_text())
    began = time.monotonic()
    if not passes(target, tree, 600):
        raise SystemExit(f"{target.path}: its tests fail as it is")
    limit_s = int(SLOWER * (time.monotonic() - began)) + 10
    if passes(target, ast.parse("raise ImportError"), 600):
        raise SystemExit(f"{target.path}: its tests pass without it")
    counts, began = Tally(), time.monotonic()
    total = sum(1 for _ in mutants(tree))
    for number, mutant in enumerate(mutants(tree)):
        if number % every:
            continue
        if counts.tried % SAID_EVERY == SAID_EVERY - 1:
            left_s = (time.monotonic() - began) * (total - number) / number
            sys.stderr.write(f"{target.path}: {number} of {total}, {left_s:.0f} s left\n")
        outcome = passes(target, tree, limit_s)
        counts.tried += 1
        counts.killed += outcome is False
        counts.hung += outcome is None
        if outcome:
            counts.survivors.append(mutant)
            sys.stderr.write(f"{target.path}:{mutant.line} {mutant.text}\n")
    return counts


def main() -> None:
    """Prints the table of the page, then each survivor that it does not argue."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", metavar="TEXT", help="paths that have TEXT")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="one in N")
    given = parser.parse_args()
    ours = [name for name in sys.modules if name.split(".")[0] in OURS]
    assert not ours, f"imported before the fork: {ours}"
    hypothesis.settings.register_profile(
        "mutation",
        database=None,
        deadline=None,
        derandomize=True,
        phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
    )
    hypothesis.settings.load_profile("mutation")
    page, left = PAGE.read_text(), []
    say = partial(print, file=sys.stdout, flush=True)
    say("| file | mutants | killed | hung | argued | left |\n|---|---|---|---|---|---|")
    for target in TARGETS:
        if given.only not in target.path:
            continue
        counts = tally(target, given.every)
        lines = [f"- `{target.path}` {mutant.text}" for mutant in counts.survivors]
        open_ = [line for line in lines if line not in page]
        left += open_
        figures = (counts.tried, counts.killed, counts.hung, len(lines) - len(open_))
        row = " | ".join(map(str, (*figures, len(open_))))
        say(f"| `{target.path}` | {row} |")
    say("\n" + "\n".join(left))
    raise SystemExit(bool(left))


if __name__ == "__main__":
    main()
