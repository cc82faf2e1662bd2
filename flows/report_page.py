"""`heal report`: the page of a run, found by id or key, written where it is wanted."""

from pathlib import Path

from flows.status import report_page
from store.runs import runs
from tasks.errors import InputError

LAST = "last"


def find_page(root: Path, name: str) -> Path:
    """The page of a run's id, a report's key, the beginning of one, or `last`.

    InputError if there is none or the beginning fits several.
    """
    book = {run.record.id: run for run in runs(root)}
    pages = {run: report_page(root, one) for run, one in book.items()}
    reported = [page for page in pages.values() if page is not None]
    if name == LAST:
        if not reported:
            raise _missing(root, "no run came to a report")
        return reported[0]
    if name in pages and pages[name] is None:
        raise _missing(root, f"run {name} is {book[name].state} and has no report")
    finished = root.glob("report/*/record.json")
    keys = {path.parent.name: path.with_name("report.html") for path in finished}
    found = {page for run, page in pages.items() if run.startswith(name) and page}
    found |= {page for key, page in keys.items() if key.startswith(name)}
    if not found:
        raise _missing(root, f"no run and no report begins with {name!r}")
    if len(found) > 1:
        raise InputError(
            f"heal report {name}: {len(found)} reports begin so; give more of the run's "
            "id, which heal status lists"
        )
    return found.pop()


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


def _missing(root: Path, problem: str) -> InputError:
    return InputError(
        f"{root}: {problem}; heal status lists the runs, --store names another store"
    )
