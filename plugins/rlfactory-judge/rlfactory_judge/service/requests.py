"""Send one question until a completion arrives or all attempts fail: the choice of a server, and retries."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

from rlfactory_core.cache import digest
from rlfactory_core.errors import BackendError, UsageError, VerifierError
from rlfactory_core.protocols import Sampled
from rlfactory_core.types import Message, SamplingParams
from rlfactory_judge.contract import RefusedError, RejectedError, UnavailableError
from rlfactory_judge.options import JudgeOptions
from rlfactory_judge.service.endpoint import Endpoint, Timing, remedy

_log = logging.getLogger(__name__)


class Answered(NamedTuple):
    """A completion, where it came from, and the number of requests for it."""

    completion: Sampled
    endpoint: str
    requests: int


def request_counts(requests: int) -> dict[str, int]:
    """The counts of a question that took so many requests."""
    return {"requests": requests, "retries": max(0, requests - 1)}


class Endpoints:
    """One or many addresses of one model, with at most ``concurrency`` requests at once; for one event loop."""

    def __init__(self, urls: Sequence[str], model: str | None, options: JudgeOptions, timing: Timing) -> None:
        self._options, self._timing, self._model = options, timing, model
        self._all = [Endpoint(url, model, options, timing) for url in dict.fromkeys(urls)]
        self._slots = asyncio.Semaphore(options.concurrency)
        self._reviving: dict[Endpoint, asyncio.Task[None]] = {}
        self._turn = count()

    def describe(self) -> str:
        """Their addresses, for messages."""
        dead = [endpoint.url for endpoint in self._all if not endpoint.alive]
        without = f", without an answer from {', '.join(dead)}" if dead else ""
        return ", ".join(endpoint.url for endpoint in self._all) + without

    async def start(self, say: Callable[[str], None]) -> str:
        """Start all of them concurrently; returns the model's id.

        Raises:
            BackendError: none of them can be used.
            UsageError: they serve different models, or several each.
        """
        ends = await asyncio.gather(*(endpoint.start() for endpoint in self._all), return_exceptions=True)
        for end in ends:
            if isinstance(end, BaseException) and not isinstance(end, BackendError):
                raise end
        errors = [str(end) for end in ends if end is not None]
        models = sorted({endpoint.model for endpoint in self._all if endpoint.alive})
        if not models:
            raise BackendError(
                f"No judge can be asked. {' '.join(errors)} `rlfactory judge serve --model "
                f"{self._model or 'MODEL'}` starts servers; the judge's url is the address of one that runs."
            )
        if len(models) > 1:
            raise UsageError(
                f"The judge's endpoints serve different models: {', '.join(models)}. Choose one with judge.model."
            )
        for endpoint in self._all:
            endpoint.expected = models[0]
        for error in errors:
            say(f"warning: {error} The judge goes on without it and asks for its health in the meantime.")
        return models[0]

    @property
    def identity(self) -> str:
        """A key of the models that `identify` found, by which a replaced one differs; empty before."""
        found = sorted({endpoint.known for endpoint in self._all if endpoint.known})
        return digest(found) if found else ""

    async def identify(self) -> str:
        """`identity`, for which each endpoint that answers is asked once. Raises `BackendError` if none says it."""
        asked = [endpoint for endpoint in self._all if endpoint.alive and not endpoint.known]
        ends = await asyncio.gather(*(endpoint.identity() for endpoint in asked), return_exceptions=True)
        if not self.identity:
            said = [f"{one.url}: {end or 'no answer in time'}" for one, end in zip(asked, ends, strict=True)]
            raise BackendError(f"The judge lists its models, but answers no question. {' '.join(said)}")
        if len({endpoint.known for endpoint in self._all} - {""}) > 1:
            _log.warning("the judge's endpoints answer the same questions differently: %s", self.describe())
        return self.identity

    async def complete(
        self, messages: tuple[Message, ...], params: SamplingParams, schema: Mapping[str, Any]
    ) -> Answered:
        """The first completion.

        Raises:
            RejectedError: the endpoints reject this question.
            RefusedError: all its requests fail while others succeed.
            UnavailableError: no endpoint answered, retries included.
        """
        error: BackendError | None = None
        failed: list[Endpoint] = []  # once for each request
        answered = self._answered

        def gave_up(kind: type[VerifierError], text: str) -> VerifierError:
            return kind(text, counts=request_counts(len(failed)))

        for failures in range(self._options.retries + 1):
            if error is not None and not self._has_other(failed):
                await self._timing.back_off(failures)  # no pause is needed before trying another endpoint
            try:
                async with self._slots:
                    endpoint = await self._choose(avoid=failed)
                    completion = await endpoint.complete(messages, params, schema, again=endpoint in failed)
                return Answered(completion, endpoint.url, len(failed) + 1)
            except BackendError as refused:
                error = refused
                failed.append(endpoint)
                if remedy(error) == "none":
                    raise gave_up(RejectedError, str(error)) from error
                if remedy(error) == "elsewhere" and not self._has_other(failed):
                    raise gave_up(UnavailableError, str(error)) from error
            except UnavailableError as none:
                raise gave_up(UnavailableError, f"{none} The last failure: {error}" if error else str(none)) from error
        text = f"{error} Gave up after {len(failed)} requests"
        if self._answered > answered:
            raise gave_up(RefusedError, f"{text}, while other questions were answered.") from error
        raise gave_up(UnavailableError, f"{text}.") from error

    async def close(self) -> None:
        tasks = list(self._reviving.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for endpoint in self._all:
            await endpoint.close()

    @property
    def _answered(self) -> int:
        return sum(endpoint.answered for endpoint in self._all)

    def _has_other(self, tried: Sequence[Endpoint]) -> bool:
        return any(one.is_ready and one not in tried for one in self._all)

    async def _choose(self, avoid: Sequence[Endpoint]) -> Endpoint:
        """The endpoint with the fewest running requests, in turns among equals, as soon as one is available.

        Those to ``avoid`` failed this question, once for each time that they stand there; used if there is no other.

        Raises:
            UnavailableError: all are dead, or paused for too long.
        """
        while True:
            self._revive_due()
            if ready := [endpoint for endpoint in self._all if endpoint.is_ready]:
                chosen = min(ready, key=lambda one: (avoid.count(one), one.in_flight, one.last_used))
                chosen.last_used = next(self._turn)
                return chosen
            pauses = [one.paused_until - self._timing.clock() for one in self._all if one.alive]
            if pauses and min(pauses) > self._options.request_s:
                raise UnavailableError(
                    f"The judge asks to be left alone for {min(pauses):.0f} s (Retry-After), longer than a "
                    f"request may take (request_s={self._options.request_s:g})."
                )
            if pauses:
                await self._timing.sleep(min(pauses))
            elif self._reviving:
                await asyncio.wait(list(self._reviving.values()), return_when=asyncio.FIRST_COMPLETED)
            else:
                raise UnavailableError(
                    f"No endpoint of the judge answers ({', '.join(one.url for one in self._all)}); each is left alone "
                    f"for {self._options.breaker_reset_s:g} s after {self._options.breaker_failures} failures in a row."
                )

    def _revive_due(self) -> None:
        for endpoint in self._all:
            if endpoint.is_due and endpoint not in self._reviving:
                task = self._reviving[endpoint] = asyncio.ensure_future(endpoint.revive())
                task.add_done_callback(lambda _, endpoint=endpoint: self._reviving.pop(endpoint))  # type: ignore[misc]
