"""When a server counts as ready: it is healthy, and it has answered a question to the model that it should serve."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from rlfactory_core.errors import BackendError
from rlfactory_judge.serving.hints import hint, telling_line
from rlfactory_judge.serving.process import ServerProcess

if TYPE_CHECKING:
    import httpx

_POLL_S = 0.1
_LOOK_S = 10.0  # for one answer to a look at its health
_GLANCE_S = 1.0  # while it starts: it may have died meanwhile, and a stranger hold its port
_FIRST_S = 120.0  # at least for the model's first answer, before which it may compile or warm up
_LINES = 300  # of a log in which the cause is looked for
_SHOWN = 400  # characters of it
_REFUSED = 400
_NEEDS_KEY = (401, 403)  # the user gave the server a key, by its own option
_BROKEN = 500


class EndedError(BackendError):
    """The server has ended by itself.

    Args:
        words: the end of its log, longer than in the message, and how it ended.
    """

    def __init__(self, message: str, words: str) -> None:
        super().__init__(message)
        self.words = words


class HopelessError(BackendError):
    """The server lives and does not answer in time, or not to this model: another start would not mend that."""


async def wait_until_ready(process: ServerProcess, url: str, model: str, seconds: float) -> None:
    """Return once the server of ``process`` answers questions to ``model``.

    Args:
        url: ends with /v1.
        seconds: how long to wait at most.

    Raises:
        HopelessError: the time is over, or whoever answers at that address does not know the model.
        EndedError: the process ends.
        BackendError: the first question is not answered.
    """
    import httpx

    ends = time.monotonic() + seconds
    async with httpx.AsyncClient(trust_env=False) as client:
        while not await is_healthy(client, url, _GLANCE_S):
            _check(process)
            if time.monotonic() >= ends:
                raise HopelessError(
                    f"The server does not answer at {url} after {seconds:g} s. Its log is {process.log}, and ends with:"
                    f"\n{process.last_lines()}"
                )
            await asyncio.sleep(_POLL_S)
        try:
            refusal = await _ask(client, url, model, max(_FIRST_S, ends - time.monotonic()))
        except httpx.HTTPError as error:
            _check(process)
            raise BackendError(
                f"The server at {url} does not answer a first question ({type(error).__name__}: {error}). Its log is "
                f"{process.log}, and ends with:\n{process.last_lines()}"
            ) from error
    _check(process)
    if refusal:
        raise HopelessError(
            f"The server at {url} does not answer questions to {model}: {refusal}\nIts log is {process.log}."
        )


async def is_healthy(client: httpx.AsyncClient, url: str, seconds: float = _LOOK_S) -> bool:
    """Whether the server at ``url`` (which ends with /v1) says that it is well."""
    import httpx

    try:
        response = await client.get(url.removesuffix("/v1") + "/health", timeout=seconds)
    except httpx.HTTPError:
        return False
    return response.is_success


async def _ask(client: httpx.AsyncClient, url: str, model: str, seconds: float) -> str:
    """Sample one token. What the server says against it; empty where nothing.

    This also tells our server from a stranger's that listens where ours could not.
    """
    messages = [{"role": "user", "content": "Ready?"}]
    body = {"model": model, "messages": messages, "max_tokens": 1, "temperature": 0.0}
    response = await client.post(f"{url}/chat/completions", json=body, timeout=seconds)
    # A server that fails over this one text (transformers does over unreadable tool calls) is a server all the same.
    refused = _REFUSED <= response.status_code < _BROKEN and response.status_code not in _NEEDS_KEY
    return response.text[:500] if refused else ""


def _check(process: ServerProcess) -> None:
    if process.exit_code is not None:
        raise ended(process)


def ended(process: ServerProcess) -> EndedError:
    """The error over a server that has ended and should not have."""
    words = f"{process.last_lines(_LINES)}\n{process.ending}"
    shown = process.last_lines()
    cause = telling_line(words)
    parts = [f"The server has ended: {process.ending}.", hint(words)]
    if cause and cause not in shown and cause != process.ending:
        parts.append(f"It says: {cause.strip()[:_SHOWN]}\n")  # a server's engine speaks long before the server ends
    log = f"Its log is {process.log}, and ends with:\n{shown}" if shown else f"Its log {process.log} is empty."
    return EndedError(" ".join([part for part in parts if part] + [log]), words)
