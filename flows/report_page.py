"""`heal report`: the page of a run, found by id or key, written where it is wanted."""

from pathlib import Path

from flows.named import Wanted, find_named
from store.runs import Run
from tasks.errors import InputError

STAGE = "report"


def _of_run(run: Run) -> list[str]:
    report = run.record.report
    return [] if report is None else [report.removeprefix(f"{STAGE}/")]


REPORT = Wanted(
    command="report",
    stage=STAGE,
    word="report",
    of_run=_of_run,
    advice="heal status lists the runs, --store names another store",
)


def find_page(root: Path, name: str) -> Path:
    """The page that `name` means to `find_named`; its InputError else."""
    return find_named(root, REPORT, name) / "report.html"


def write_page(page: Path, out: Path) -> Path:
    """Copies the page; InputError if `out` cannot be written."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_bytes(page.read_bytes())
    except OSError as error:
        raise InputError(
            f"heal report: {out} could not be written ({error.strerror}); choose another "
            "path with -o"
        ) from error
    return out


def open_page(page: Path) -> None:
    """Shows the page in the user's browser."""
    import webbrowser

    if not webbrowser.open(page.absolute().as_uri()):
        raise InputError(f"heal report: no browser could be started; open {page} yourself")
