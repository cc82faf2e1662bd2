"""What `cmf` and `heal` say of a line that lacks something."""

from typing import Annotated, Any

import typer
from typer.core import TyperGroup


def _tell_version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version

        typer.echo(f"mtp-heal {version('mtp-heal')}")
        raise typer.Exit


VersionAsked = Annotated[
    bool,
    typer.Option(
        "--version",
        is_eager=True,
        callback=_tell_version,
        help="Say which version this is, and end.",
    ),
]


class Commands(TyperGroup):
    """Commands that refuse an empty argument, and say what a missing one is."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # typer's own types
        """Of the base; an empty path would else mean the current folder."""
        name, *given = args
        command = f"{ctx.command_path} {name}"
        if "" in given:
            raise typer.BadParameter(
                f"argument {given.index('') + 1} of `{command}` is empty, as an unset "
                f"shell variable makes it; `{command} --help` says what to give",
                ctx=ctx,
            )
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:  # typer's own types
        """Of the base."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            if error.param is not None and error.ctx is not None and not error.message:
                pieces = error.ctx.command.collect_usage_pieces(error.ctx)[1:]
                usage = " ".join(pieces).replace("{", "").replace("}", "").upper()
                about = getattr(error.param, "help", None) or ""
                error.message = f"{about} Type: {error.ctx.command_path} {usage}".strip()
            raise
