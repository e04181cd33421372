"""Who may use the page: a browser that came by a one-time link or with the password, and a page of its own only."""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY = 2**20  # bytes of a form
MAX_PATH = 1024  # characters
MAX_TRIES = 8  # passwords that are tried at once; a wrong one takes a second
MAX_SESSIONS = 1024  # of which the oldest ends
FILES, MAX_FILE = "/new/files", 2**30  # where data is sent to, and bytes of it
OPEN_PATHS = ("/login", "/static/")
_CHANGES = ("POST", "PUT", "PATCH", "DELETE")
# No address but our own, no code or style within the page: what a model or a tool wrote stays text.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)


@dataclass(slots=True)
class Access:
    """The secrets of one server; they end with it.

    Args:
        port: of the server. It is part of the cookie's name, since browsers send cookies to all ports of a host.
        hosts: the values of ``Host`` that are served, against DNS rebinding; empty: any, which needs a password.
        password: lets a browser in beside one-time links; None: only links do.
    """

    port: int
    hosts: frozenset[str]
    password: str | None = None
    _links: set[str] = field(default_factory=set)
    tries: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_TRIES))
    _sessions: dict[str, None] = field(default_factory=dict)  # the oldest first

    @property
    def cookie(self) -> str:
        return f"rlfactory_ui_{self.port}"

    def link(self) -> str:
        """A new token, which opens the page once."""
        token = secrets.token_urlsafe(24)
        self._links.add(token)
        return token

    def redeem(self, token: str) -> str | None:
        """A session for a token that was not used before."""
        if token not in self._links:
            return None
        self._links.remove(token)
        return self._session()

    def enter(self, password: str) -> str | None:
        """A session for the right password."""
        if self.password is None or not hmac.compare_digest(password.encode(), self.password.encode()):
            return None
        return self._session()

    def knows(self, session: str | None) -> bool:
        return session in self._sessions

    def refusal(self, scope: Scope, headers: Mapping[str, str], session: str | None) -> tuple[int, str] | None:
        """Why a request is not served: status and sentence; None if it is."""
        host = headers.get("host", "")
        if self.hosts and host not in self.hosts:
            return 421, f"This server is {sorted(self.hosts)[0]}, not {host!r}."
        if len(scope["path"]) > MAX_PATH or "\0" in scope["path"]:
            return 404, "There is no such page."
        if scope["method"] in _CHANGES and not _of_own_page(headers, host):
            return 403, "The request came from a page that is not this server's."
        if not self.knows(session) and not scope["path"].startswith(OPEN_PATHS):
            return 401, "Open the link that `rlfactory ui` has printed; each opens one browser."
        return None

    def _session(self) -> str:
        session = secrets.token_urlsafe(24)
        self._sessions[session] = None
        if len(self._sessions) > MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        return session


def _of_own_page(headers: Mapping[str, str], host: str) -> bool:
    """A browser says where a change comes from; a program, which says nothing, has no cookie to be abused."""
    origin = headers.get("origin")
    if origin is not None:
        return origin.partition("://")[2] == host
    return headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")


def _too_long(method: str, path: str, headers: Mapping[str, str]) -> tuple[int, str] | None:
    most = MAX_FILE if path == FILES else MAX_BODY
    length = headers.get("content-length", "" if method in _CHANGES else "0")
    if not length.isdecimal():
        return 411, "A form comes with its length, as browsers send it."
    too_long = len(length) > len(str(most)) or int(length) > most
    return (413, f"At most {most:,} bytes can be sent here.") if too_long else None


def guarded(app: ASGIApp, access: Access) -> ASGIApp:
    """The app behind `Access`, with bounded bodies and the headers of a page that trusts nothing it shows."""
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse, RedirectResponse

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope)
        refusal = access.refusal(scope, request.headers, request.cookies.get(access.cookie))
        refusal = refusal or _too_long(request.method, scope["path"], request.headers)

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = [pair for pair in message["headers"] if pair[0].lower() != b"cache-control"]
                message = {**message, "headers": [*given, *_HEADERS]}
            await send(message)

        if refusal is None:
            await app(scope, receive, send_guarded)
        elif refusal[0] == 401 and scope["method"] == "GET" and access.password is not None:
            await RedirectResponse("/login", 303)(scope, receive, send_guarded)
        else:
            await PlainTextResponse(refusal[1] + "\n", refusal[0])(scope, receive, send_guarded)

    return serve
