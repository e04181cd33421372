"""The judge's server: one address, what it can do, its health, and requests until it has answered a question."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rlfactory_core.cache import digest
from rlfactory_core.clients import OpenAIClient
from rlfactory_core.errors import BackendError, UsageError
from rlfactory_core.protocols import Request, Sampled
from rlfactory_core.tools import CircuitBreaker
from rlfactory_core.types import Message, SamplingParams
from rlfactory_core.utils.backoff import backoff_s
from rlfactory_judge.contract import RefusedError, RejectedError, UnavailableError
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
_MAX_TOKENS = 512  # of the answer to `_QUESTION`, usually enough for a reasoning model
_CANARY = (
    "Continue: one, two, three,",
    "Question: What is 17 + 25? Answer: 43. Is the answer right? Give a score from 0 to 10.",
    "Name a colour, an animal and a city.",
)
_CANARY_PARAMS = SamplingParams(max_tokens=24, temperature=0.0)
_START_TRIES = 3
_PROBE, _PROBE_PARAMS = (Message("user", "Hello"),), SamplingParams(max_tokens=1, temperature=0.0)
_HEALTH_S = 10.0  # to list the models in a health check
_ABOUT_SCHEMAS = ("response_format", "schema", "grammar", "guided", "structured")  # words in a server's refusal
_ABOUT_LENGTH = ("max_tokens", "max_model_len", "max_completion_tokens")
_BUSY = (409, 425, 429)  # statuses of a server without a fault
_WRONG_ENDPOINT = (401, 403, 404, 405, 410)  # the address or the key is wrong, not the question
_TOO_LONG = 413


def _may_pass(error: BackendError) -> bool:
    """Whether a repetition may help. An error without a status is a lost, late or invalid answer."""
    return error.status is None or error.status >= 500 or error.status in (408, *_BUSY)


def _is_to_blame(error: BackendError) -> bool:
    """Whether the server is at fault, so that its breaker counts the failure."""
    return error.status not in _BUSY and (_may_pass(error) or error.status in _WRONG_ENDPOINT)


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
        if _may_pass(error) and error.status not in (500, 501):
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
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def back_off(self, failures: int) -> None:
        """Wait before the next try."""
        await self.sleep(backoff_s(failures, self.first_pause_s, self.longest_pause_s))


def request_counts(requests: int) -> dict[str, int]:
    """The counts of a question that took so many requests."""
    return {"requests": requests, "retries": max(0, requests - 1)}


class Endpoint:
    """One address, with at most ``concurrency`` requests at once; for one event loop, between `start` and `close`.

    After ``breaker_failures`` failures in a row it gets no requests for ``breaker_reset_s``, and then a health check.

    Raises:
        UsageError: the address is invalid, or its key is not set.
    """

    identity = ""  # a key of the model, once `identify` was called

    def __init__(self, url: str, model: str | None, options: JudgeOptions, timing: Timing) -> None:
        self._options, self._timing, self._named = options, timing, model
        key, at_once, limit_s = _key(url, options), options.concurrency, options.request_s
        self._client = OpenAIClient(url, model, api_key=key, concurrency=at_once, deadline_s=limit_s, retries=0)
        self._breaker = CircuitBreaker(options.breaker_failures, options.breaker_reset_s)
        self._slots = asyncio.Semaphore(at_once)
        self._checking = asyncio.Lock()  # held by the one question that has the health checked
        self._paused_until = 0.0  # on the timing's clock, as requested with Retry-After
        self._answered = 0  # requests
        self._constrained = options.output == "json"
        self._is_closed = False
        self.url = self._client.base_url

    @property
    def model(self) -> str:
        """The served model's id; after `start`."""
        return self._client.model

    async def start(self) -> None:
        """Find the model and the server's capabilities.

        Raises:
            BackendError: it does not answer or cannot be used; the message says what to start.
            UsageError: several models are served and none is named.
        """
        limit_s = 2 * self._options.request_s
        for failures in range(1, _START_TRIES + 1):
            try:
                async with asyncio.timeout(limit_s):
                    await self._client.open()
                    if self._options.output == "auto":
                        self._constrained = await enforces_schemas(self._client, self._options.max_tokens)
                return
            except BaseException as error:
                await self._client.close()
                if not isinstance(error, (TimeoutError, BackendError)):
                    raise
                if isinstance(error, TimeoutError) or failures == _START_TRIES or not _may_pass(error):
                    late = f"{self.url} gave no answer within {limit_s:g} s."
                    why = error if isinstance(error, BackendError) else late
                    raise BackendError(
                        f"The judge cannot be asked. {why} `vllm serve {self._named or 'MODEL'}` starts a server; "
                        "the judge's url is the address of one that runs."
                    ) from error
            await self._timing.back_off(failures)

    async def identify(self) -> str:
        """A key of the model: of its name, the server's description and its answers, by which a replaced one differs.

        Raises:
            BackendError: no answer.
        """
        texts = []
        try:
            async with asyncio.timeout(self._options.request_s):
                for text in _CANARY:
                    reply = await self._client.answer(Request((Message("user", text),), (), _CANARY_PARAMS))
                    texts.append("" if reply is None else reply.message.reasoning + "\n" + reply.message.content)
        except (TimeoutError, BackendError) as error:
            why = str(error) or f"no answer within {self._options.request_s:g} s"
            raise BackendError(f"The judge at {self.url} lists its models, but answers no question: {why}") from error
        self.identity = digest([self.model, json.dumps(self._client.description, sort_keys=True, default=str), *texts])
        return self.identity

    async def complete(
        self, messages: tuple[Message, ...], params: SamplingParams, schema: Mapping[str, Any]
    ) -> tuple[Sampled, int]:
        """A completion, and the number of requests for it, of which ``retries`` allow some.

        Raises:
            RejectedError: the server rejects this question.
            RefusedError: all its requests fail while others succeed.
            UnavailableError: there is no answer, retries included.
        """
        answered, error = self._answered, BackendError("")
        for failures in range(self._options.retries + 1):
            if failures:
                await self._timing.back_off(failures)
            try:
                async with self._slots:
                    await self._wait_until_ready()
                    completion = await self._request(messages, params, schema, is_repeated=failures > 0)
                return completion, failures + 1
            except UnavailableError as none:
                last = f" The last failure: {error}" if failures else ""
                raise UnavailableError(f"{none}{last}", counts=request_counts(failures)) from error
            except BackendError as failed:
                error = failed
            if not _may_pass(error):
                kind = UnavailableError if error.status in _WRONG_ENDPOINT else RejectedError
                raise kind(str(error), counts=request_counts(failures + 1)) from error
        requests = self._options.retries + 1
        text = f"{error} Gave up after {requests} requests"
        if self._answered > answered:
            others = f"{text}, while other questions were answered."
            raise RefusedError(others, counts=request_counts(requests)) from error
        raise UnavailableError(f"{text}.", counts=request_counts(requests)) from error

    async def close(self) -> None:
        """Close the connections; questions in progress get no answer."""
        self._is_closed = True
        await self._client.close()

    async def _wait_until_ready(self) -> None:
        """Wait until a request may be sent; raises `UnavailableError` if that may take longer than a request."""
        options = self._options
        while True:
            now = self._timing.clock()
            if self._is_closed:
                raise UnavailableError("The judge was closed before it answered.")
            if self._breaker.is_open(now):
                raise UnavailableError(
                    f"The judge at {self.url} does not answer; it is left alone for {options.breaker_reset_s:g} s "
                    f"after {options.breaker_failures} failures in a row."
                )
            pause = self._paused_until - now
            if self._breaker.has_tripped:
                async with self._checking:
                    if self._breaker.has_tripped and not self._breaker.is_open(self._timing.clock()):
                        await self._check_health()
            elif pause > options.request_s:
                raise UnavailableError(
                    f"The judge asks to be left alone for {pause:.0f} s (Retry-After), longer than a request may take "
                    f"(request_s={options.request_s:g})."
                )
            elif pause > 0.0:
                await self._timing.sleep(pause)
            else:
                return

    async def _check_health(self) -> None:
        """Ask a server that has failed whether it is back: it has to write a token, not only to list its models."""
        known = self.identity
        try:
            await self._client.served(_HEALTH_S)
            await self._client.answer(Request(_PROBE, (), _PROBE_PARAMS))
            if known and known != await self.identify():
                _log.warning("the judge at %s is back with other answers than before: is it the same model?", self.url)
        except BackendError:
            self._breaker.record(failed=True, now=self._timing.clock())
        else:
            self._paused_until = 0.0
            self._breaker.record(failed=False, now=self._timing.clock())

    async def _request(
        self, messages: tuple[Message, ...], params: SamplingParams, schema: Mapping[str, Any], *, is_repeated: bool
    ) -> Sampled:
        """One request, recorded. A refusal of a repeated question is due to the question, not to the server."""
        try:
            completion = await self._completion(messages, params, schema)
        except BackendError as error:
            if not (is_repeated and _is_to_blame(error) and error.status is not None):
                self._breaker.record(_is_to_blame(error), self._timing.clock())
            if error.retry_after_s and _may_pass(error):
                self._paused_until = max(self._paused_until, self._timing.clock() + error.retry_after_s)
            raise
        self._answered += 1
        self._breaker.record(failed=False, now=self._timing.clock())
        return completion

    async def _completion(
        self, messages: tuple[Message, ...], params: SamplingParams, schema: Mapping[str, Any]
    ) -> Sampled:
        extra = response_format(schema) if self._constrained else {}
        try:
            completion = await self._client.answer(Request(messages, (), params), extra)
        except BackendError as error:
            is_refused = error.status in (400, 422, 501) and any(word in str(error).lower() for word in _ABOUT_SCHEMAS)
            if extra and self._options.output == "auto" and is_refused:
                self._constrained = False  # at the start it enforced a simpler form
                return await self._completion(messages, params, schema)
            if not _is_to_blame(error) and any(word in str(error) for word in _ABOUT_LENGTH):
                error.args = (f"{error} Lower max_tokens (now {params.max_tokens}), or serve a longer context.",)
            raise
        if completion is None:
            raise BackendError(
                f"{self.url}: the question and max_tokens={params.max_tokens} are longer together than the context of "
                f"{self.model}. Lower max_tokens, shorten the rubric, or serve the model with a longer context.",
                status=_TOO_LONG,
            )
        return completion


def _key(url: str, options: JudgeOptions) -> str | None:
    """The server's key; None: the client's default. Raises `UsageError` where its variable is not set."""
    name = options.api_key_env
    if name is not None and not os.environ.get(name):
        raise UsageError(f"judge.api_key_env: the environment variable {name} is not set. Set it to the key of {url}.")
    return None if name is None else os.environ[name]
