"""Send one question until a completion arrives or all attempts fail: slots, retries, hedging."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlfactory_core.clients.base import Completion
from rlfactory_core.types import Message, SamplingParams
from rlfactory_judge.contract import RefusedError, RejectedError, UnavailableError
from rlfactory_judge.options import JudgeOptions
from rlfactory_judge.service.endpoint import Endpoint
from rlfactory_judge.service.endpoints import Endpoints
from rlfactory_judge.service.failures import Remedy, RequestError
from rlfactory_judge.service.timing import Timing

_HOPE: tuple[Remedy, ...] = ("again", "elsewhere", "none")


@dataclass(slots=True)
class Inquiry:
    """A question and the state of its requests."""

    messages: tuple[Message, ...]
    params: SamplingParams
    schema: Mapping[str, Any]
    attempts: int = 0  # requests sent
    retries: int = 0  # of these, after a failed one
    hedges: int = 0  # of these, besides a slow one
    endpoint: str = ""  # the endpoint of the completion
    failed: list[Endpoint] = field(default_factory=list)
    asked: list[Endpoint] = field(default_factory=list)  # endpoints with a running request

    def counts(self) -> dict[str, float]:
        return {"requests": self.attempts, "retries": self.retries, "hedged": self.hedges}


class Requester:
    """Sends requests, at most ``concurrency`` at once. Each event loop needs its own object."""

    def __init__(self, endpoints: Endpoints, options: JudgeOptions, timing: Timing) -> None:
        self._endpoints, self._options, self._timing = endpoints, options, timing
        self._slots = asyncio.Semaphore(options.concurrency)

    async def complete(self, inquiry: Inquiry) -> Completion:
        """The first completion.

        Raises:
            RejectedError: the endpoints reject this question.
            RefusedError: all its requests fail while others succeed.
            UnavailableError: no endpoint answered, retries included.
        """
        error: RequestError | None = None
        answered = self._endpoints.answered
        for failures in range(self._options.retries + 1):
            if error is not None and not self._endpoints.has_other(inquiry.failed):
                await self._timing.back_off(failures)  # no pause is needed before trying another endpoint
            try:
                return await self._round(inquiry)
            except RequestError as failed:
                error = failed
                if error.remedy == "none":
                    raise RejectedError(str(error)) from error
                if error.remedy == "elsewhere" and not self._endpoints.has_other(inquiry.failed):
                    raise UnavailableError(str(error)) from error
            except UnavailableError as none:
                raise UnavailableError(f"{none} The last failure: {error}" if error else str(none)) from error
        if self._endpoints.answered > answered:
            text = f"{error} Gave up after {inquiry.attempts} requests, while other questions were answered."
            raise RefusedError(text) from error
        raise UnavailableError(f"{error} Gave up after {inquiry.attempts} requests.") from error

    async def _round(self, inquiry: Inquiry) -> Completion:
        """One request, and a second one to another endpoint if the first is slow."""
        hedge_s = self._options.hedge_s
        if hedge_s is None:
            return await self._request(inquiry)
        sent: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        tasks: list[asyncio.Task[Completion]] = [asyncio.ensure_future(self._request(inquiry, sent))]
        try:
            both: set[asyncio.Future[Any]] = {sent, *tasks}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            done, _ = await asyncio.wait(tasks, timeout=hedge_s)
            if not done:
                tasks.append(asyncio.ensure_future(self._hedge(inquiry)))
            return await _first_good(tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _request(self, inquiry: Inquiry, sent: asyncio.Future[Any] | None = None) -> Completion:
        """One request in its own slot, preferably to an endpoint that has not failed this question yet."""
        while True:
            await self._endpoints.ready()
            async with self._slots:
                endpoint = self._endpoints.choose(avoid=inquiry.failed)
                if endpoint is not None:  # otherwise it became unavailable while this waited for its slot
                    if sent is not None and not sent.done():
                        sent.set_result(None)
                    return await self._send(inquiry, endpoint)

    async def _hedge(self, inquiry: Inquiry) -> Completion:
        async with self._slots:
            busy = inquiry.failed + inquiry.asked
            endpoint = self._endpoints.choose(avoid=busy)
            if endpoint is None or endpoint in busy:
                raise RequestError("No other endpoint can be asked.", "none")
            inquiry.hedges += 1
            return await self._send(inquiry, endpoint)

    async def _send(self, inquiry: Inquiry, endpoint: Endpoint) -> Completion:
        inquiry.retries += bool(inquiry.failed and not inquiry.asked)
        inquiry.attempts += 1
        inquiry.asked.append(endpoint)
        try:
            completion = await endpoint.complete(
                inquiry.messages, inquiry.params, inquiry.schema, again=endpoint in inquiry.failed
            )
        except RequestError:
            inquiry.failed.append(endpoint)
            raise
        finally:
            inquiry.asked.remove(endpoint)
        inquiry.endpoint = endpoint.url
        return completion


async def _first_good(tasks: Sequence[asyncio.Task[Completion]]) -> Completion:
    """The first result; if all fail, the failure with the best chance of a retry."""
    left: set[asyncio.Task[Completion]] = set(tasks)
    while left:
        done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            if task.exception() is None:
                return task.result()
    errors = [error for task in tasks if isinstance(error := task.exception(), RequestError)]
    if not errors:
        return tasks[0].result()  # raises any other exception
    raise min(errors, key=lambda error: _HOPE.index(error.remedy))
