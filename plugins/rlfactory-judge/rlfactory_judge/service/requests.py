"""Send one question until a completion arrives or all attempts fail: the choice of a server, retries, hedging."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from rlfactory_core.clients.base import Completion
from rlfactory_core.errors import BackendError, UsageError
from rlfactory_core.types import Message, SamplingParams
from rlfactory_judge.contract import RefusedError, RejectedError, UnavailableError
from rlfactory_judge.options import JudgeOptions
from rlfactory_judge.service.endpoint import Endpoint, Timing, remedy


@dataclass(slots=True)
class Inquiry:
    """A question and the state of its requests."""

    messages: tuple[Message, ...]
    params: SamplingParams
    schema: Mapping[str, Any]
    attempts: int = 0  # requests sent
    hedges: int = 0  # of these, besides a slow one
    endpoint: str = ""  # the endpoint of the completion
    failed: list[Endpoint] = field(default_factory=list)  # once for each failure
    asked: list[Endpoint] = field(default_factory=list)  # endpoints with a running request

    def counts(self) -> dict[str, float]:
        retries = max(0, self.attempts - 1 - self.hedges)
        return {"requests": self.attempts, "retries": retries, "hedged": self.hedges}


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

    async def identity(self) -> str:
        """See `Endpoint.identity`, of the first that answers. Raises `BackendError` if none does."""
        errors = []
        for endpoint in filter(lambda one: one.alive, self._all):
            try:
                return await endpoint.identity()
            except (BackendError, TimeoutError) as error:
                errors.append(f"{endpoint.url}: {error or 'no answer in time'}")
        raise BackendError(f"The judge lists its models, but answers no question. {' '.join(errors)}")

    async def complete(self, inquiry: Inquiry) -> Completion:
        """The first completion.

        Raises:
            RejectedError: the endpoints reject this question.
            RefusedError: all its requests fail while others succeed.
            UnavailableError: no endpoint answered, retries included.
        """
        error: BackendError | None = None
        answered = self._answered
        for failures in range(self._options.retries + 1):
            if error is not None and not self._has_other(inquiry.failed):
                await self._timing.back_off(failures)  # no pause is needed before trying another endpoint
            try:
                return await self._round(inquiry)
            except BackendError as failed:
                error = failed
                if remedy(error) == "none":
                    raise RejectedError(str(error)) from error
                if remedy(error) == "elsewhere" and not self._has_other(inquiry.failed):
                    raise UnavailableError(str(error)) from error
            except UnavailableError as none:
                raise UnavailableError(f"{none} The last failure: {error}" if error else str(none)) from error
        gave_up = f"{error} Gave up after {inquiry.attempts} requests"
        if self._answered > answered:
            raise RefusedError(f"{gave_up}, while other questions were answered.") from error
        raise UnavailableError(f"{gave_up}.") from error

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

    def _choose(self, avoid: Sequence[Endpoint]) -> Endpoint | None:
        """The endpoint with the fewest running requests, in turns among equals; None if none is available now.

        Those to ``avoid`` failed this question, once for each time that they stand there; used if there is no other.
        """
        self._revive_due()
        ready = [endpoint for endpoint in self._all if endpoint.is_ready]
        if not ready:
            return None
        chosen = min(ready, key=lambda one: (avoid.count(one), one.in_flight, one.last_used))
        chosen.last_used = next(self._turn)
        return chosen

    async def _until_ready(self) -> None:
        """Wait until an endpoint is available; raises `UnavailableError` if all are dead, or paused for too long."""
        while not any(endpoint.is_ready for endpoint in self._all):
            pauses = [one.paused_until - self._timing.clock() for one in self._all if one.alive]
            if pauses:
                if min(pauses) > self._options.request_s:
                    raise UnavailableError(
                        f"The judge asks to be left alone for {min(pauses):.0f} s (Retry-After), longer than a "
                        f"request may take (request_s={self._options.request_s:g})."
                    )
                await self._timing.sleep(min(pauses))
                continue
            self._revive_due()
            if not self._reviving:
                raise UnavailableError(
                    f"No endpoint of the judge answers ({', '.join(one.url for one in self._all)}); each is left alone "
                    f"for {self._options.breaker_reset_s:g} s after {self._options.breaker_failures} failures in a row."
                )
            await asyncio.wait(list(self._reviving.values()), return_when=asyncio.FIRST_COMPLETED)

    def _revive_due(self) -> None:
        for endpoint in self._all:
            if endpoint.is_due and endpoint not in self._reviving:
                task = self._reviving[endpoint] = asyncio.ensure_future(endpoint.revive())
                task.add_done_callback(lambda _, endpoint=endpoint: self._reviving.pop(endpoint))  # type: ignore[misc]

    async def _round(self, inquiry: Inquiry) -> Completion:
        """One request in its own slot, and a second one to another endpoint if the first is slow (`hedge_s`)."""
        while True:
            await self._until_ready()
            async with self._slots:
                endpoint = self._choose(avoid=inquiry.failed)
                if endpoint is None:  # it became unavailable while this waited for its slot
                    continue
                if self._options.hedge_s is None:
                    return await self._send(inquiry, endpoint)
                return await _first_good(
                    self._send(inquiry, endpoint), lambda: self._second(inquiry), self._options.hedge_s
                )

    async def _second(self, inquiry: Inquiry) -> Completion | None:
        async with self._slots:
            busy = inquiry.failed + inquiry.asked
            endpoint = self._choose(avoid=busy)
            if endpoint is None or endpoint in busy:
                return None
            inquiry.hedges += 1
            return await self._send(inquiry, endpoint)

    async def _send(self, inquiry: Inquiry, endpoint: Endpoint) -> Completion:
        inquiry.attempts += 1
        inquiry.asked.append(endpoint)
        again = endpoint in inquiry.failed
        try:
            completion = await endpoint.complete(inquiry.messages, inquiry.params, inquiry.schema, again=again)
        except BackendError:
            inquiry.failed.append(endpoint)
            raise
        finally:
            inquiry.asked.remove(endpoint)
        inquiry.endpoint = endpoint.url
        return completion


async def _first_good(
    first: Coroutine[Any, Any, Completion], second: Callable[[], Coroutine[Any, Any, Completion | None]], after_s: float
) -> Completion:
    """The first result of two requests, the second sent ``after_s`` later; if both fail, the more hopeful failure."""
    tasks: list[asyncio.Task[Completion | None]] = [asyncio.ensure_future(first)]
    errors = []
    try:
        done, _ = await asyncio.wait(tasks, timeout=after_s)
        if not done:
            tasks.append(asyncio.ensure_future(second()))
        for task in asyncio.as_completed(tasks):
            try:
                if (completion := await task) is not None:
                    return completion
            except BackendError as error:
                errors.append(error)
        raise min(errors, key=lambda error: ("again", "elsewhere", "none").index(remedy(error)))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
