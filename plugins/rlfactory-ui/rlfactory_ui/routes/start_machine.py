"""The model and the engine of a new run: the engine's own keys, and the memory that the run will need."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rlfactory_core.plugins.registry import Registry
from rlfactory_ui.pages import part, site_of
from rlfactory_ui.routes.draft import described, words_of
from rlfactory_ui.routes.forms import first, posted

SECONDS = 120.0


async def engine(request: Request) -> Response:
    """The keys of an engine that have an option on the command line."""
    name = first(await posted(request), "engine")
    section = Registry().engine_sections(installed=True).get(name)
    fields = [described(f"{name}.{key}", section, key) for key in section.options] if section else []
    return part("engine.jinja", fields=fields)


async def memory(request: Request) -> Response:
    """The estimate, beside what this machine has."""
    words = list(words_of(await posted(request)))
    commands = site_of(request).commands
    outcome, doctor = await asyncio.gather(
        commands.run("memory", *words, "--json", seconds=SECONDS), commands.run("doctor", "--json", seconds=SECONDS)
    )
    return part("memory.jinja", memory=outcome.json(), outcome=outcome, checks=doctor.json()["checks"])


ROUTES = [
    Route("/new/engine", engine, methods=["POST"]),
    Route("/new/memory", memory, methods=["POST"]),
]
