"""The way in: a one-time link, or the password."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from rlfactory_ui.pages import first, page, posted, site_of

WRONG_S = 1.0  # before a wrong password is answered


async def enter(request: Request) -> Response:
    access = site_of(request).access
    session = access.redeem(request.query_params.get("token", ""))
    if session is None:
        known = access.knows(request.cookies.get(access.cookie))
        return RedirectResponse("/", 303) if known else _asked(request, 401)
    return _entered(request, session)


async def enter_by_password(request: Request) -> Response:
    access, password = site_of(request).access, first(await posted(request), "password")
    if access.tries.locked():
        return _asked(request, 429, "Too many passwords are being tried. Wait a moment, and try again.")
    async with access.tries:
        session = access.enter(password)
        if session is None:
            await asyncio.sleep(WRONG_S)
            return _asked(request, 401, "That is not the password.")
    return _entered(request, session)


async def another_browser(request: Request) -> Response:
    """A new one-time link."""
    return page(request, "link.jinja", link=str(request.url_for("enter")) + f"?token={site_of(request).access.link()}")


def _entered(request: Request, session: str) -> Response:
    answer = RedirectResponse("/", 303)
    answer.set_cookie(site_of(request).access.cookie, session, httponly=True, samesite="strict", path="/")
    return answer


def _asked(request: Request, status: int, problem: str = "") -> Response:
    by_password = site_of(request).access.password is not None
    return page(request, "login.jinja", status, problem=problem, by_password=by_password)


ROUTES = [
    Route("/login", enter, name="enter"),
    Route("/login", enter_by_password, methods=["POST"]),
    Route("/link", another_browser, methods=["POST"]),
]
