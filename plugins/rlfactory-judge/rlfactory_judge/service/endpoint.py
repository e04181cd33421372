"""One server of the judge's model: its capabilities, its load, its health, and what its failures mean."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from rlfactory_core.cache import digest
from rlfactory_core.clients import OpenAIClient
from rlfactory_core.errors import BackendError, UsageError
from rlfactory_core.protocols import Request, Sampled
from rlfactory_core.tools import CircuitBreaker
from rlfactory_core.types import Message, SamplingParams
from rlfactory_core.utils.backoff import backoff_s
from rlfactory_judge.options import JudgeOptions

_log = logging.getLogger(__name__)
_CODE = {"code": 4711}  # no model answers this by itself
_SCHEMA = {
    "type": "object",
    "properties": {"code": {"type": "integer", "enum": [4711]}},
    "required": ["code"],
    "additionalProperties": False,
}
_QUESTION = (Message("user", "Is the sky blue? Answer with one word."),)
_CANARY = (
    "Continue: one, two, three,",
    "Question: What is 17 + 25? Answer: 43. Is the answer right? Give a score from 0 to 10.",
    "Name a colour, an animal and a city.",
)
_CANARY_PARAMS = SamplingParams(max_tokens=24, temperature=0.0)
_MAX_TOKENS = 512  # of the answer to `_QUESTION`, usually enough for a reasoning model
_START_TRIES = 3
_PROBE, _PROBE_PARAMS = (Message("user", "Hello"),), SamplingParams(max_tokens=1, temperature=0.0)
_ABOUT_SCHEMAS = ("response_format", "schema", "grammar", "guided", "structured")  # words in a server's refusal
_ABOUT_LENGTH = ("max_tokens", "max_model_len", "max_completion_tokens")
_BUSY = (409, 425, 429)  # statuses of a server without a fault
_ELSEWHERE = (401, 403, 404, 405, 410)  # the endpoint is wrong, not the question
_TOO_LONG = 413
Remedy = Literal["again", "elsewhere", "none"]


def remedy(error: BackendError) -> Remedy:
    """Of a failed request: repeat it, preferably on another endpoint; repeat it only on another; or nothing helps.

    An error without a status is a lost, late or invalid answer.
    """
    if error.status is None or error.status >= 500 or error.status in (408, *_BUSY):
        return "again"
    return "elsewhere" if error.status in _ELSEWHERE else "none"


def _is_to_blame(error: BackendError) -> bool:
    """Whether the endpoint is at fault, so that its breaker counts the failure."""
    return remedy(error) != "none" and error.status not in _BUSY


def response_format(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Additional fields of a request that make the server enforce a form."""
    verdict = {"name": "verdict", "schema": dict(schema), "strict": True}
    return {"response_format": {"type": "json_schema", "json_schema": verdict}}


async def enforces_schemas(client: OpenAIClient, max_tokens: int) -> bool:
    """Whether this server should enforce the form of answers; raises `BackendError` without an answer.

    Some servers accept ``response_format`` and ignore it. So the test asks for something that the form excludes. A
    server without a reasoning parser enforces the form from the first token, so that a reasoning model cannot reason.
    Such a server is not asked to enforce the form.
    """
    params = SamplingParams(max_tokens=min(max_tokens, _MAX_TOKENS), temperature=0.0)
    try:
        held = await client.answer(Request(_QUESTION, (), params), response_format(_SCHEMA))
    except BackendError as error:
        if remedy(error) == "again" and error.status not in (500, 501):
            raise
        return False
    try:
        if held is None or json.loads(held.message.content) != _CODE:
            return False
    except ValueError:
        return False
    if held.message.reasoning:
        return True  # the server lets the model reason first
    free = await client.answer(Request(_QUESTION, (), params))
    return free is not None and free.finish == "stop" and not free.message.reasoning


@dataclass(frozen=True, slots=True)
class Timing:
    """The clock and the pauses of the service, in seconds."""

    first_pause_s: float = 0.5  # the longest pause before the first retry; doubled with each further one
    longest_pause_s: float = 20.0
    health_s: float = 10.0  # for an endpoint's health check
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def back_off(self, failures: int) -> None:
        """Wait before the next try."""
        await self.sleep(backoff_s(failures, self.first_pause_s, self.longest_pause_s))


class Endpoint:
    """One address. It is alive after `start`, and dead after ``breaker_failures`` failures in a row until `revive`.

    Raises:
        UsageError: the address is invalid, or its key is not set.
    """

    known = ""  # its identity, once `identity` was asked for
    expected: str | None = None  # a server with another model is not the judge
    alive = False
    in_flight = 0
    answered = 0  # requests so far
    last_used = -1  # of all endpoints' requests, the number of its last one
    paused_until = 0.0  # on the timing's clock, as requested with Retry-After
    _started = False
    _constrained = False

    def __init__(self, url: str, model: str | None, options: JudgeOptions, timing: Timing) -> None:
        self._options, self._timing = options, timing
        key, at_once, limit_s = _key(url, options), options.concurrency, options.request_s
        # The service itself retries, so that retries go to another endpoint.
        self._client = OpenAIClient(url, model, api_key=key, concurrency=at_once, deadline_s=limit_s, retries=0)
        self._breaker = CircuitBreaker(options.breaker_failures, options.breaker_reset_s)
        self.url = self._client.base_url

    @property
    def model(self) -> str:
        return self._client.model

    @property
    def is_ready(self) -> bool:
        """Whether it may be asked now."""
        return self.alive and self.paused_until <= self._timing.clock()

    @property
    def is_due(self) -> bool:
        """Whether it is dead and its health may be checked now."""
        return not self.alive and not self._breaker.is_open(self._timing.clock())

    async def start(self) -> None:
        """Find the model and the server's capabilities.

        Raises:
            BackendError: it does not answer or cannot be used; the endpoint stays dead until `revive`.
            UsageError: several models are served and none is named.
        """
        for failures in range(1, _START_TRIES + 1):
            try:
                await self._start()
                break
            except BackendError as error:
                if failures == _START_TRIES or remedy(error) != "again" or isinstance(error.__cause__, TimeoutError):
                    self._mark_dead()
                    raise
                await self._timing.back_off(failures)
        self._record(failed=False)

    async def identity(self) -> str:
        """A key of the model: of its name, the server's description and its answers, by which a replaced one differs.

        Raises:
            BackendError, TimeoutError: no answer.
        """
        texts = []
        async with asyncio.timeout(self._options.request_s):
            for text in _CANARY:
                said = await self._client.answer(Request((Message("user", text),), (), _CANARY_PARAMS))
                texts.append("" if said is None else said.message.reasoning + "\n" + said.message.content)
        self.known = digest([self.model, json.dumps(self._client.description, sort_keys=True, default=str), *texts])
        return self.known

    async def revive(self) -> None:
        """Check the health of a dead endpoint if it is due: it has to write a token, not only to list its models."""
        if self.alive or not self._breaker.admit(self._timing.clock()):
            return
        try:
            if self._started:
                await self._client.served(self._timing.health_s)
                await asyncio.wait_for(self._client.answer(Request(_PROBE, (), _PROBE_PARAMS)), self._options.request_s)
                if self.known and self.known != await self.identity():
                    _log.warning(
                        "the judge at %s is back with other answers than before: is it the same model?", self.url
                    )
            else:
                await self._start()
        except (TimeoutError, BackendError, ValueError):
            self._mark_dead()
        else:
            self.paused_until = 0.0
            self._record(failed=False)

    async def complete(
        self, messages: tuple[Message, ...], params: SamplingParams, schema: Mapping[str, Any], *, again: bool = False
    ) -> Sampled:
        """One request. ``again``: it has failed here before, so a refusal is due to the question, not to the endpoint.

        Raises:
            BackendError: the request failed; see `remedy`.
        """
        self.in_flight += 1
        try:
            completion = await self._complete(messages, params, schema)
        except BackendError as error:
            if not (again and _is_to_blame(error) and error.status is not None):
                self._record(_is_to_blame(error))
            if error.retry_after_s and remedy(error) == "again":
                self.paused_until = max(self.paused_until, self._timing.clock() + error.retry_after_s)
            raise
        finally:
            self.in_flight -= 1
        self.answered += 1
        self._record(failed=False)
        return completion

    async def close(self) -> None:
        self.alive = False
        await self._client.close()

    async def _complete(
        self, messages: tuple[Message, ...], params: SamplingParams, schema: Mapping[str, Any]
    ) -> Sampled:
        extra = response_format(schema) if self._constrained else {}
        try:
            completion = await self._client.answer(Request(messages, (), params), extra)
        except BackendError as error:
            is_refused = error.status in (400, 422, 501) and any(word in str(error).lower() for word in _ABOUT_SCHEMAS)
            if extra and self._options.output == "auto" and is_refused:
                self._constrained = False  # at the start it enforced a simpler form
                return await self._complete(messages, params, schema)
            if remedy(error) == "none" and any(word in str(error) for word in _ABOUT_LENGTH):
                error.args = (f"{error} Lower max_tokens (now {params.max_tokens}), or serve a longer context.",)
            raise
        if completion is None:
            raise BackendError(
                f"{self.url}: the question and max_tokens={params.max_tokens} are longer together than the context of "
                f"{self.model}. Lower max_tokens, shorten the rubric, or serve the model with a longer context.",
                status=_TOO_LONG,
            )
        return completion

    async def _start(self) -> None:
        limit_s = 2 * self._options.request_s
        try:
            async with asyncio.timeout(limit_s):
                await self._client.open()
                if self.expected not in (None, self.model):
                    raise BackendError(f"{self.url} serves {self.model}, and the judge is {self.expected}.")
                self._constrained = self._options.output == "json"
                if self._options.output == "auto":
                    self._constrained = await enforces_schemas(self._client, self._options.max_tokens)
        except BaseException as error:
            await self._client.close()
            if isinstance(error, TimeoutError):
                raise BackendError(f"{self.url} gave no answer within {limit_s:g} s.") from error
            raise
        self._started = True

    def _record(self, failed: bool) -> None:
        now = self._timing.clock()
        self._breaker.record(failed, now)
        self.alive = not self._breaker.is_open(now)

    def _mark_dead(self) -> None:
        for _ in range(self._options.breaker_failures):
            self._record(failed=True)


def _key(url: str, options: JudgeOptions) -> str | None:
    """The key for an address; None: the client's default. Raises `UsageError` where its variable is not set."""
    name = options.api_key_env
    if isinstance(name, tuple):
        name = dict(zip(options.urls, name, strict=True)).get(url)
    if name is None:
        return None
    if not os.environ.get(name):
        raise UsageError(f"judge.api_key_env: the environment variable {name} is not set. Set it to the key of {url}.")
    return os.environ[name]
