"""The application: routers, headers, and a clear page for whatever cannot be shown."""

from collections.abc import Awaitable, Callable, Sequence
from importlib import import_module
from importlib.resources import files
from pathlib import Path

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from cmfio.errors import CmfError
from store.errors import ArtifactDamaged, ArtifactError
from ui.inspector.answer import POLICY, page
from ui.inspector.depot import Damaged, Depot, NotHere

# Modules with a `router`, in the order in which their paths are tried.
ROUTERS = ("home", "heals", "heal", "stages", "store_page", "windows", "arrays", "training",
           "compare")  # fmt: skip

HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
}


def create_app(root: Path, *, hosts: Sequence[str] = ("*",)) -> FastAPI:
    """The inspector of the store at `root`, which need not exist yet.

    Requests for a name that is not one of `hosts` get 400: a page elsewhere whose name was
    pointed at this machine must not read the store through a visitor's browser.
    """
    app = FastAPI(
        title="mtp-heal inspector",
        description="Read-only: every table of the inspector as CSV and JSON.",
        docs_url=None,  # FastAPI's own pages load scripts from elsewhere
        redoc_url=None,
        openapi_url="/api/openapi.json",
    )
    app.state.depot = Depot(root)
    app.middleware("http")(_with_headers)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(hosts))
    app.add_middleware(_HeadAsGet)
    static = str(files("ui.inspector").joinpath("static"))
    app.mount("/static", StaticFiles(directory=static), name="static")
    for name in ROUTERS:
        app.include_router(_router(name))
    _say_errors(app)
    return app


class _HeadAsGet:
    """HEAD, as `curl -I` asks, answers what GET does; the server sends no body."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_head = scope["type"] == "http" and scope["method"] == "HEAD"
        await self.app({**scope, "method": "GET"} if is_head else scope, receive, send)


def _router(name: str) -> APIRouter:
    router = import_module(f"ui.inspector.{name}").router
    assert isinstance(router, APIRouter), name
    return router


async def _with_headers(
    request: Request, call_next: Callable[[Request], Awaitable[Response]]
) -> Response:
    response = await call_next(request)
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    if not request.url.path.startswith("/static/"):
        response.headers.setdefault("cache-control", "no-store")
    return response


def _say_errors(app: FastAPI) -> None:
    """Every expected failure as a page, or as JSON under /api."""

    def gone(request: Request, error: Exception) -> Response:
        return _problem(request, 404, "Not here", str(error))

    def damaged(request: Request, error: Exception) -> Response:
        return _problem(request, 410, "Damaged", str(error))

    def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        said = "There is no such page." if error.status_code == 404 else str(error.detail)
        return _problem(request, error.status_code, "Not here", said)

    def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:])
        return _problem(request, 400, "Not understood", f"{where}: {first['msg']}.")

    app.add_exception_handler(NotHere, gone)
    for kind in (Damaged, ArtifactDamaged, ArtifactError, CmfError):
        app.add_exception_handler(kind, damaged)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(RequestValidationError, invalid)


def _problem(request: Request, status: int, title: str, said: str) -> Response:
    if request.url.path.startswith("/api/"):
        return JSONResponse({"error": said}, status_code=status)
    response = page(request, "problem.html", title=title, said=said)
    response.status_code = status
    return response
