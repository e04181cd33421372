"""One run: as it is now, as it goes on, and what it is told to do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from rlfactory_core.errors import UsageError
from rlfactory_core.reporting import RunFolder
from rlfactory_core.settings import dump_yaml
from rlfactory_ui import processes
from rlfactory_ui.catalogue import State
from rlfactory_ui.pages import Site, first, page, part, posted, site_of

LOOK_S = 1.0  # between two looks at the files of a run
_QUIET_S = 15.0  # after so long without news a line is sent, so that a closed connection is noticed


async def one_run(request: Request) -> Response:
    name, site = request.path_params["name"], site_of(request)
    launch = processes.launched(site.catalogue.runs, name)
    if launch is not None and not (site.catalogue.runs / name / "config.yaml").is_file():
        entry = next(entry for entry in site.catalogue.entries() if entry.name == name)
        log = processes.log_text(site.catalogue.runs, name)
        return page(request, "launch.jinja", run=entry, launch=launch, log=log)
    run = site.run(name)
    command = launch.command if launch else ""
    config = dump_yaml(dict(run.config))
    return page(request, "run.jinja", **_shown(site, name), command=command, config=config)


async def now(request: Request) -> Response:
    """The part of the page that changes while the run goes on."""
    return part("run_now.jinja", **_shown(site_of(request), request.path_params["name"]))


def _shown(site: Site, name: str) -> dict[str, Any]:
    live = site.run(name)
    entry = site.catalogue.entry(live.folder)
    going = entry.state is State.RUNNING
    return {
        "run": entry,
        "sections": live.sections(),
        "seconds_left": live.seconds_left() if going else None,
        "warnings": live.warnings(),
        "log": processes.log_text(site.catalogue.runs, name),
        "version": live.version(),
    }


async def plugin_sections(request: Request) -> Response:
    """What the plugins of the run have to show; a command asks them, so that no plugin is loaded here."""
    site = site_of(request)
    folder = site.catalogue.folder(request.path_params["name"])
    found = (await site.commands.run("report", str(folder.path), "--json")).json()
    return part("plugin_sections.jinja", sections=found)


async def events(request: Request) -> Response:
    """Server-sent events: ``change`` whenever the page would show something else."""
    site, name = site_of(request), request.path_params["name"]
    site.catalogue.folder(name)
    return StreamingResponse(_changes(request, site, name), media_type="text/event-stream")


async def _changes(request: Request, site: Site, name: str) -> AsyncIterator[str]:
    told, quiet = request.query_params.get("version", ""), 0.0
    while not await request.is_disconnected():
        try:
            live = site.run(name)
        except UsageError:  # it was deleted, or has ended before its first result
            yield "event: gone\ndata:\n\n"
            return
        state = site.catalogue.entry(live.folder).state
        version = f"{live.version()} {state}"
        if version != told:
            told, quiet = version, 0.0
            yield f"event: change\ndata: {version}\n\n"
        elif quiet >= _QUIET_S:
            quiet = 0.0
            yield ": still here\n\n"
        await asyncio.sleep(LOOK_S)
        quiet += LOOK_S


async def stop(request: Request) -> Response:
    form, site = await posted(request), site_of(request)
    folder = site.catalogue.folder(request.path_params["name"])
    await asyncio.to_thread(processes.stop, folder, now=first(form, "when") == "now")
    return RedirectResponse(f"/runs/{folder.name}", 303)


async def resume(request: Request) -> Response:
    """Go on with a run, for some more steps if it is finished.

    Raises:
        UsageError: it runs, or the number of steps is none.
    """
    form, site = await posted(request), site_of(request)
    folder = site.catalogue.folder(request.path_params["name"])
    if processes.holder(folder) is not None:
        raise UsageError(f"{folder.name} is running.")
    more = first(form, "more")
    if more and not more.isdecimal():
        raise UsageError(f"Steps to add: got '{more}', expected a whole number.")
    words = ["run", "--resume", str(folder.path)]
    if more:
        words += ["--steps", str(site.catalogue.entry(folder).steps + int(more)), *_without_end(folder)]
    launch = processes.start(site.catalogue.runs, folder.name, words)
    for _ in range(50):  # until it has the lock, or has refused
        if processes.holder(folder) is not None or not launch.alive:
            break
        await asyncio.sleep(0.1)
    return RedirectResponse(f"/runs/{folder.name}", 303)


def _without_end(folder: RunFolder) -> list[str]:
    """What keeps a run from ending again for the reason for which it has ended."""
    ended = (folder.read_summary().get("ended") or {}).get("by", "")
    return {"until": ["train.until="], "patience": ["train.patience=0"]}.get(ended, [])


ROUTES = [
    Route("/runs/{name}", one_run),
    Route("/runs/{name}/now", now),
    Route("/runs/{name}/plugins", plugin_sections),
    Route("/runs/{name}/events", events),
    Route("/runs/{name}/stop", stop, methods=["POST"]),
    Route("/runs/{name}/resume", resume, methods=["POST"]),
]
