"""What a user types: a command as a line to type again."""

import shlex
from collections.abc import Sequence

Option = str | int | bool | object | Sequence[str] | None


def command_line(verb: str, *words: object, **options: Option) -> str:
    """The command that does the same again, quoted for a shell.

    An option is left out if it is None, False or empty, stands alone if it is True, and is
    repeated for each item of a list. Words that look like options come last, behind `--`.
    """
    typed = [str(word) for word in words]
    parts = []
    for name, given in options.items():
        values = given if isinstance(given, list | tuple) else [given]
        for value in values:
            if value is True:
                parts.append(f"--{name}")
            elif value is not None and value is not False and value != "":
                parts += [f"--{name}", str(value)]
    is_odd = any(word.startswith("-") for word in typed)
    parts = [*parts, "--", *typed] if is_odd else [*typed, *parts]
    return shlex.join(["heal", verb, *parts])
