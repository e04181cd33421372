"""A server's start: its stages, read from its log, until it is healthy and its model has answered a question."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from rlfactory_core.errors import BackendError
from rlfactory_judge.serving.hints import hint, relevant_line
from rlfactory_judge.serving.process import ServerProcess

if TYPE_CHECKING:
    import httpx


_POLL_S = 0.1
_LOOK_S = 10.0  # for one health check
_GLANCE_S = 1.0  # for a health check during the start: it may have ended, and another program use its port
_FIRST_S = 120.0  # at least, for the model's first answer, before which it may compile or warm up
_LINES = 300  # of a log that are searched for the cause
_SHOWN = 400  # characters of the cause
_REFUSED = 400
_NEEDS_KEY = (401, 403)  # the server requires a key, by an option of the user
_BROKEN = 500


class EndedError(BackendError):
    """The server has ended unexpectedly.

    Args:
        words: a longer end of its log than in the message, and how it ended.
    """

    def __init__(self, message: str, words: str) -> None:
        super().__init__(message)
        self.words = words


class PermanentError(BackendError):
    """The server runs but does not answer in time, or has another model. A restart would not help."""


async def wait_until_ready(process: ServerProcess, url: str, model: str, seconds: float) -> None:
    """Wait until the server of ``process`` answers questions to ``model``.

    Args:
        url: ends with /v1.
        seconds: the longest time to wait.

    Raises:
        PermanentError: the time is over, or the server at that address does not have the model.
        EndedError: the process ends.
        BackendError: the first question is not answered.
    """
    import httpx

    ends = time.monotonic() + seconds
    async with httpx.AsyncClient(trust_env=False) as client:
        while not await is_healthy(client, url, _GLANCE_S):
            _check(process)
            if time.monotonic() >= ends:
                raise PermanentError(
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
        raise PermanentError(
            f"The server at {url} does not answer questions to {model}: {refusal}\nIts log is {process.log}."
        )


async def is_healthy(client: httpx.AsyncClient, url: str, seconds: float = _LOOK_S) -> bool:
    """Whether the server at ``url`` (which ends with /v1) reports to be healthy."""
    import httpx

    try:
        response = await client.get(url.removesuffix("/v1") + "/health", timeout=seconds)
    except httpx.HTTPError:
        return False
    return response.is_success


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


def _check(process: ServerProcess) -> None:
    if process.exit_code is not None:
        raise ended(process)


def ended(process: ServerProcess) -> EndedError:
    """The error for a server that has ended unexpectedly."""
    words = f"{process.last_lines(_LINES)}\n{process.ending}"
    shown = process.last_lines()
    cause = relevant_line(words)
    parts = [f"The server has ended: {process.ending}.", hint(words)]
    if cause and cause not in shown and cause != process.ending:
        parts.append(f"It says: {cause.strip()[:_SHOWN]}\n")  # the engine's error is long before the end of the log
    log = f"Its log is {process.log}, and ends with:\n{shown}" if shown else f"Its log {process.log} is empty."
    return EndedError(" ".join([part for part in parts if part] + [log]), words)


_STAGE_POLL_S = 0.5
_STAGE_LINES = 400  # of a log that are searched for the latest stage
_STAGES = (  # from the logs of vLLM and transformers, in chronological order
    (r"downloading|fetching \d+ files", "downloads the model"),
    (r"starting to load model|loading checkpoint shards|loading safetensors|\] loading \S+@", "loads the weights"),
    (r"loading weights took|model loading took", "has loaded the weights"),
    (r"dynamo bytecode transform|torch\.compile takes", "compiles"),
    (r"kv cache size", "has taken memory for the cache"),
    (r"capturing cuda graph", "captures CUDA graphs"),
)


async def report_stages(process: ServerProcess, say: Callable[[str], None]) -> None:
    """Report each stage once, or only the latest of several, until this is cancelled."""
    reached = 0
    while process.exit_code is None:
        words = process.last_lines(_STAGE_LINES)
        found = [number for number, (pattern, _) in enumerate(_STAGES, 1) if re.search(pattern, words, re.IGNORECASE)]
        if found and found[-1] > reached:
            reached = found[-1]
            say(_STAGES[reached - 1][1])
        await asyncio.sleep(_STAGE_POLL_S)
