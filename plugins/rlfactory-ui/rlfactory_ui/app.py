"""The application: its routes, and how an error becomes a page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from rlfactory_core.errors import RlfactoryError
from rlfactory_core.serving import BodyError
from rlfactory_ui.access import Access, guarded
from rlfactory_ui.catalogue import Catalogue
from rlfactory_ui.commands import Commands
from rlfactory_ui.pages import STATIC, Site, environment, page, page_words
from rlfactory_ui.routes import compare, entry, play, run, runs, start, start_parts, trajectories

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp


def create_app(runs_folder: Path, access: Access, commands: Commands | None = None) -> ASGIApp:
    """The page for the runs of one folder, behind its guard.

    Args:
        runs_folder: may not exist yet.
        access: who may use it.
        commands: the caller closes them.
    """
    modules = (entry, runs, run, play, trajectories, compare, start, start_parts)
    routes = [route for module in modules for route in module.ROUTES]
    made = Starlette(
        routes=[
            Route("/static/report.css", _report_file),
            Route("/static/charts.js", _report_file),
            Mount("/static", StaticFiles(directory=STATIC)),
            *routes,
        ],
        exception_handlers={RlfactoryError: _refused, BodyError: _unread, 404: _missing},
    )
    made.state.site = Site(Catalogue(runs_folder), access, commands or Commands())
    return guarded(made, access)


async def _report_file(request: Request) -> Response:
    """A style or a script of the report."""
    name = request.url.path.rpartition("/")[2]
    kind = "text/css" if name.endswith(".css") else "text/javascript"
    return Response(environment().get_template(name).render(), media_type=kind)


async def _refused(request: Request, error: Exception) -> Response:
    """A mistake of the user, in words; a part of a page gets the words alone."""
    text = page_words(str(error))
    if request.headers.get("x-part"):
        return PlainTextResponse(text, 422)
    return page(request, "error.jinja", 422, text=text)


async def _unread(_request: Request, error: Exception) -> Response:
    assert isinstance(error, BodyError)
    return PlainTextResponse(f"{error}\n", error.status, {"Connection": "close"})


async def _missing(request: Request, _error: Exception) -> Response:
    return page(request, "error.jinja", 404, text=f"There is no page {request.url.path}.")
