"""Tells someone that a re-heal left models unhealed: a webhook, a command."""

import json
import subprocess
import urllib.request
from collections.abc import Callable, Sequence

from conf.nightly import OnFailure
from flows.reheal import BAD, Outcome, outcomes_text
from tasks.progress import Progress

TIMEOUT_S = 30.0


def tell_failures(
    hook: OnFailure | None, found: Sequence[Outcome], progress: Progress
) -> None:
    """Calls what is configured if a model failed; a hook that fails is said, no more."""
    failed = [one for one in found if one.state in BAD]
    if hook is None or not failed:
        return
    told = {
        "flow": "reheal",
        "failed": [{"model": str(one.model), "what": one.why} for one in failed],
        "text": outcomes_text(found),
    }
    body = json.dumps(told).encode()
    if hook.webhook is not None:
        _try(lambda: _post(str(hook.webhook), body), str(hook.webhook), progress)
    if hook.command is not None:
        command = list(hook.command)
        _try(lambda: _run(command, body), command[0], progress)


def _try(tell: Callable[[], None], name: str, progress: Progress) -> None:
    try:
        tell()
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        progress.say(f"on_failure: {name} could not be told: {error}")


def _post(url: str, body: bytes) -> None:
    request = urllib.request.Request(url, body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=TIMEOUT_S):
        pass


def _run(command: list[str], body: bytes) -> None:
    subprocess.run(command, input=body, check=True, timeout=TIMEOUT_S)
