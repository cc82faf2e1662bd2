"""What the pages load besides themselves: the colours, shared with the report page."""

from functools import cache
from importlib.resources import files

from fastapi import APIRouter, Response

router = APIRouter(include_in_schema=False)


@cache
def _tokens() -> str:
    return files("ui").joinpath("tokens.css").read_text(encoding="utf-8")


@router.get("/tokens.css")
def tokens() -> Response:
    """The one place where colours, type and space are chosen."""
    return Response(_tokens(), media_type="text/css")
