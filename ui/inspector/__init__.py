"""The inspector: every stage of every heal, read-only, over HTTP. `app.create_app(root)`.

How a page is added: one file here with a `router`, listed in `app.ROUTERS`.

    router = APIRouter()

    @router.get("/windows/{stage}/{key}", response_class=HTMLResponse)
    def windows(request: Request, depot: InDepot, stage: str, key: str) -> Response:
        artifact = depot.artifact(stage, key)  # NotHere, Damaged: clear pages, 404 and 410
        return page(request, "windows.html", title="Windows", artifact=artifact)

`InDepot`, `NotHere`: `ui.inspector.depot`. `page`, `Table`, `table_response` (CSV and JSON
under /api/…), `svg_response` (a plot with its colours written in): `ui.inspector.answer`.
Templates extend `base.html` (blocks `crumb`, `content`) and import `parts.html` (states,
keys, get-links). Classes only, never `style=`: the Content-Security-Policy forbids it.
Handlers are plain `def`: they read files, and FastAPI gives each a thread.

Paths that pages link to each other by: `/` heals, `/heal/{run}` (a run's id or a report's
key), `/stage/{stage}/{key}`, `/store`, `/compare?pick={run}&pick={run}` (or
`a=` and `b=`; one alone: before and after),
`/windows/{stage}/{key}` (a measure_draft), `/arrays/{stage}/{key}`,
`/training/{stage}/{key}` (a train_draft, which may be running).
"""
