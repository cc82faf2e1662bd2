"""What the pages load besides themselves, shared with the report page: colours, marks."""

from functools import cache
from importlib.resources import files

from fastapi import APIRouter, Response

router = APIRouter(include_in_schema=False)


@cache
def _sheet(name: str) -> Response:
    text = files("ui").joinpath(name).read_text(encoding="utf-8")
    return Response(text, media_type="text/css")


@router.get("/tokens.css")
def tokens() -> Response:
    """The one place where colours, type and space are chosen."""
    return _sheet("tokens.css")


@router.get("/plots.css")
def plots() -> Response:
    """How marks are drawn."""
    return _sheet("plots.css")
