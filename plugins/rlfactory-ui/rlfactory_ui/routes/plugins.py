"""What is installed, and what this machine can do."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rlfactory_ui.pages import page, site_of

DOCTOR_S = 120.0


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
    Route("/plugins", installed),
    Route("/plugins/{plugin}", about),
    Route("/doctor", doctor),
]
