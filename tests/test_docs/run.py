"""`make docs-check`: runs every block of README and docs that can run here.

    python -m tests.test_docs.run [PAGE…]

Each page has a fresh folder (`ground.py`) that is also its home; its blocks run there in
order, as one reader would type them. A block with a reason above it is listed and left out;
any other must end with 0. The exit code is 1 if one does not.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from tests.test_docs import blocks
from tests.test_docs.blocks import Block
from tests.test_docs.ground import lay_ground, make_models, save_config

LIMIT_S = 600.0
# Where the next block of a page begins: in the folder and with the variables of this one.
SHELL = """set -eo pipefail
[ -e "$STATE" ] && . "$STATE"
{text}
{{ export -p; printf 'cd %q\\n' "$PWD"; }} > "$STATE"
"""


def main(names: list[str]) -> int:
    """Runs the pages named, or all; says what ran, what did not and why."""
    known = {str(path.relative_to(blocks.ROOT)): path for path in blocks.pages()}
    unknown = [name for name in names if name not in known]
    if unknown:
        say(f"{unknown[0]}: no such page; known are {', '.join(known)}")
        return 2
    with tempfile.TemporaryDirectory(prefix="docs-check-") as root:
        models = Path(root) / "models"
        models.mkdir()
        make_models(models)
        failed = [
            block.place
            for name in names or known
            for block in run_page(known[name], Path(root) / name.replace("/", "_"), models)
        ]
    say(f"failed: {', '.join(failed)}" if failed else "every block ran or says why not")
    return 1 if failed else 0


def run_page(path: Path, folder: Path, models: Path) -> list[Block]:
    """Blocks of a page that failed, run in order in a folder of its own."""
    asked = [block for block in blocks.blocks_of(path) if block.language not in blocks.TOLD]
    if any(block.reason is None and block.language != "yaml" for block in asked):
        folder.mkdir()
        lay_ground(folder, models)
    return [block for block in asked if not passes(block, folder)]


def passes(block: Block, folder: Path) -> bool:
    """Runs a block unless it says why not, and tells how that went."""
    if block.reason is not None:
        say(f"{block.place}: not run: {block.reason}")
        return True
    if block.language == "yaml":
        if block.file_name is not None and folder.is_dir():
            save_config(folder, block)
        return True  # read by test_pages.py
    started = time.monotonic()
    done = run_block(block, folder)
    verdict = "ran" if done.returncode == 0 else f"exit code {done.returncode}"
    say(f"{block.place}: {verdict}, {time.monotonic() - started:.0f} s")
    if done.returncode:
        say(block.text + done.stdout[-4000:] + done.stderr[-4000:])
    return done.returncode == 0


def run_block(block: Block, folder: Path) -> subprocess.CompletedProcess[str]:
    """A block in its page's folder; one that takes ten minutes is killed and fails."""
    environment = environment_in(folder)
    if block.language == "python":
        command = [sys.executable, "-c", block.text]
    else:
        command = ["bash", "-c", SHELL.format(text=block.text)]
    try:
        return subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        late = f"not done after {LIMIT_S:.0f} s"
        return subprocess.CompletedProcess(command, 124, "", late)


def environment_in(folder: Path) -> Mapping[str, str]:
    """What a reader's shell has: the programs on its path, a home, no store named."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("HEAL_", "PREFECT_"))}
    return kept | {
        "PATH": f"{blocks.ROOT / '.venv/bin'}:{os.environ['PATH']}",
        "HOME": str(folder),
        "PYTHONPATH": str(blocks.ROOT),
        "STATE": str(folder / ".state"),
        "PREFECT_HOME": str(folder / ".prefect"),
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
    }


def say(text: str) -> None:
    """A line on stdout, at once."""
    print(text, flush=True)  # noqa: T201


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
