"""The list of all runs, what is done with one as a whole, what is installed, and what this machine can do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from rlfactory_core.errors import UsageError
from rlfactory_ui.catalogue import RunEntry
from rlfactory_ui.pages import first, page, posted, site_of

DOCTOR_S = 120.0
SORTS: dict[str, Callable[[RunEntry], Any]] = {
    "started": lambda run: -run.started,
    "name": lambda run: run.name,
    "plugin": lambda run: (run.plugin, run.name),
    "result": lambda run: -(run.after if run.after is not None else -1.0),
    "state": lambda run: (run.state, run.name),
}


async def all_runs(request: Request) -> Response:
    catalogue = site_of(request).catalogue
    asked, sort = request.query_params.get("q", ""), request.query_params.get("sort", "started")
    entries = catalogue.entries()
    shown = sorted(_found(entries, asked), key=SORTS.get(sort, SORTS["started"]))
    return page(
        request, "runs.jinja", runs=shown, total=len(entries), asked=asked, sort=sort, sorts=SORTS, place=catalogue.runs
    )


def _found(runs: Sequence[RunEntry], asked: str) -> list[RunEntry]:
    """Those in which each word occurs: in a name, plugin, model, state, tag or note."""
    words = asked.lower().split()
    texts = (" ".join([run.name, run.plugin, run.model, run.engine, run.state, *run.tags, run.note]) for run in runs)
    return [run for run, text in zip(runs, texts, strict=True) if all(word in text.lower() for word in words)]


async def annotate(request: Request) -> Response:
    form, name = await posted(request), request.path_params["name"]
    tags = [tag for tag in first(form, "tags").replace(",", " ").split() if tag]
    site_of(request).catalogue.annotate(name, tags, first(form, "note"))
    return RedirectResponse(f"/runs/{name}", 303)


async def delete(request: Request) -> Response:
    """
    Raises:
        UsageError: the user did not repeat the run's name, or it cannot be deleted.
    """
    form, name, site = await posted(request), request.path_params["name"], site_of(request)
    if first(form, "confirm") != name:
        raise UsageError(f"Nothing was deleted. To delete the run with all its files, write its name, {name}.")
    site.catalogue.delete(name)
    site.live.pop(name, None)
    return RedirectResponse("/", 303)


async def installed(request: Request) -> Response:
    found = (await site_of(request).commands.run("plugins", "list", "--json")).json()
    return page(request, "plugins.jinja", plugins=found)


async def about(request: Request) -> Response:
    found = (await site_of(request).commands.run("plugins", "info", request.path_params["plugin"], "--json")).json()
    return page(request, "plugin.jinja", plugin=found)


async def doctor(request: Request) -> Response:
    outcome = await site_of(request).commands.run("doctor", seconds=DOCTOR_S)
    return page(request, "doctor.jinja", outcome=outcome)


ROUTES = [
    Route("/", all_runs),
    Route("/runs/{name}/notes", annotate, methods=["POST"]),
    Route("/runs/{name}/delete", delete, methods=["POST"]),
    Route("/plugins", installed),
    Route("/plugins/{plugin}", about),
    Route("/doctor", doctor),
]
