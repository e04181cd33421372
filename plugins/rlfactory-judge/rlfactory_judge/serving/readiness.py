"""Whether a server answers: until its model has answered a first question, and its health afterwards."""

from __future__ import annotations

import asyncio
import re
import time
from typing import TYPE_CHECKING

from rlfactory_core.errors import BackendError
from rlfactory_judge.serving.process import ServerProcess

if TYPE_CHECKING:
    import httpx

_POLL_S = 0.1
_LOOK_S = 10.0  # for one health check
_GLANCE_S = 1.0  # for a health check during the start: it may have ended, and another program use its port
_FIRST_S = 120.0  # at least, for the model's first answer, before which it may compile or warm up
_LINES = 300  # of a log that are searched for an error
_SHOWN = 400  # characters of it
_ERROR = re.compile(r"(?:\b\w+(?:Error|Exception)\b|\berror): .*")
_REFUSED = 400
_NEEDS_KEY = (401, 403)  # the server requires a key, by an option of the user
_BROKEN = 500


async def wait_until_ready(process: ServerProcess, url: str, model: str, seconds: float) -> None:
    """Wait until the server of ``process`` answers questions to ``model``.

    Args:
        url: ends with /v1.
        seconds: the longest time to wait.

    Raises:
        BackendError: the process ends, the time is over, or the server at that address does not have the model.
    """
    import httpx

    ends = time.monotonic() + seconds
    async with httpx.AsyncClient(trust_env=False) as client:
        while not await is_healthy(client, url, _GLANCE_S):
            if process.exit_code is not None:
                raise ended(process)
            if time.monotonic() >= ends:
                raise _failed(process, f"The server does not answer at {url} after {seconds:g} s.")
            await asyncio.sleep(_POLL_S)
        try:
            refusal = await _ask(client, url, model, max(_FIRST_S, ends - time.monotonic()))
        except httpx.HTTPError as error:
            refusal = f"{type(error).__name__}: {error}"
    if process.exit_code is not None:
        raise ended(process)
    if refusal:
        raise _failed(process, f"The server at {url} does not answer questions to {model}: {refusal}")


async def is_healthy(client: httpx.AsyncClient, url: str, seconds: float = _LOOK_S) -> bool:
    """Whether the server at ``url`` (which ends with /v1) reports to be healthy."""
    import httpx

    try:
        response = await client.get(url.removesuffix("/v1") + "/health", timeout=seconds)
    except httpx.HTTPError:
        return False
    return response.is_success


async def wait_until_ill(process: ServerProcess, url: str, every_s: float, patience_s: float) -> BackendError:
    """Wait until the server has ended, or has not been healthy for ``patience_s``; returns what to tell the user."""
    import httpx

    well = time.monotonic()
    async with httpx.AsyncClient(trust_env=False) as client:
        while process.exit_code is None:
            await asyncio.sleep(every_s)
            if await is_healthy(client, url):
                well = time.monotonic()
            elif process.exit_code is None and time.monotonic() - well > patience_s:
                return _failed(process, f"The server at {url} has not been healthy for {patience_s:g} s.")
    return ended(process)


def ended(process: ServerProcess) -> BackendError:
    """The error for a server that has ended unexpectedly."""
    return _failed(process, f"The server has ended: {process.ending}.")


def _failed(process: ServerProcess, what: str) -> BackendError:
    """What happened, the first error in the log, which may be long before its end, and the end."""
    end = process.last_lines()
    cause = _ERROR.search(process.last_lines(_LINES))
    if cause and cause[0] not in end:
        what = f"{what} It says: {cause[0][:_SHOWN]}\n"
    return BackendError(
        f"{what} Its log is {process.log}, and ends with:\n{end}" if end else f"{what} It wrote no log."
    )


async def _ask(client: httpx.AsyncClient, url: str, model: str, seconds: float) -> str:
    """Sample one token. Returns the server's objection, or an empty text.

    This also distinguishes our server from another program on the same port.
    """
    messages = [{"role": "user", "content": "Ready?"}]
    body = {"model": model, "messages": messages, "max_tokens": 1, "temperature": 0.0}
    response = await client.post(f"{url}/chat/completions", json=body, timeout=seconds)
    # A server that fails on this one text (transformers does for invalid tool calls) still counts as ready.
    refused = _REFUSED <= response.status_code < _BROKEN and response.status_code not in _NEEDS_KEY
    return response.text[:500] if refused else ""
