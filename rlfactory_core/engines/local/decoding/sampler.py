"""The embedded engine's `Sampler`: takes asynchronous requests and passes them to a synchronous decoder.

All tensor work runs on one *compute thread*, so decoding and updating never use the weights at the same time, and the
event loop stays free for tools. Between two bursts of decoding the loop admits the turns that have arrived: those of
trajectories whose tool has finished, and new trajectories for free slots.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from typing import Self

from rlfactory_core.engines.local.decoding.decoder import Finished, Request, SlotDecoder
from rlfactory_core.engines.local.decoding.padded_decoder import PaddedDecoder
from rlfactory_core.types import SampledTokens, SamplingParams

BURST = 16  # the most decode steps before the event loop runs again
MIN_PREFILL = 8  # so many waiting turns justify a prefill of their own …
PATIENCE = 4  # … and fewer wait at most this many decode steps


class LocalSampler:
    """Use as ``async with LocalSampler(decoder, compute) as sampler``.

    Args:
        compute: an executor with exactly one thread.
        deterministic: sample turns in lockstep, in the order in which `expect` named the sessions. The same requests
            then give the same tokens to the last bit, however long tools take.
    """

    def __init__(self, decoder: SlotDecoder | PaddedDecoder, compute: Executor, *, deterministic: bool = False) -> None:
        self.decoder = decoder
        self.idle_s = 0.0  # in which nothing could be sampled, since all trajectories waited for something else
        self._compute = compute
        self._deterministic = deterministic
        self._waiting: dict[str, Request] = {}
        self._answers: dict[str, asyncio.Future[SampledTokens]] = {}
        self._released: list[str] = []
        self._expected: dict[str, None] = {}  # an ordered set
        self._news = asyncio.Event()
        self._patience = 0
        self._loop_task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._loop_task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._loop_task is not None
        self._loop_task.cancel()
        try:
            with suppress(asyncio.CancelledError):
                await self._loop_task
        finally:
            for answer in self._answers.values():
                answer.cancel()

    def expect(self, sessions: Iterable[str]) -> None:
        """Deterministic mode: these sessions will come, in this order; each stays expected until it is released."""
        self._expected.update(dict.fromkeys(sessions))

    async def sample(self, ids: Sequence[int], params: SamplingParams, *, session: str) -> SampledTokens:
        assert self._loop_task is not None
        if self._loop_task.done():
            self._loop_task.result()  # raises what ended the decoding loop
        answer: asyncio.Future[SampledTokens] = asyncio.get_running_loop().create_future()
        self._waiting[session] = Request(session, tuple(ids), params)
        self._answers[session] = answer
        self._news.set()
        return await answer

    async def release(self, session: str) -> None:
        self._released.append(session)
        self._expected.pop(session, None)
        self._waiting.pop(session, None)
        self._answers.pop(session, None)
        self._news.set()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while True:
                self._news.clear()
                # Before `_choose`, so that the free slots do not depend on when a release arrived.
                while self._released:
                    self.decoder.release(self._released.pop(0))
                admitted = self._choose()
                if not admitted and not self.decoder.active:
                    before = time.perf_counter()
                    await self._news.wait()
                    self.idle_s += time.perf_counter() - before
                    await asyncio.sleep(0)  # let those that arrive together be admitted together
                    continue
                finished = await loop.run_in_executor(self._compute, self._burst, admitted)
                for request, tokens in finished:
                    answer = self._answers.pop(request.session, None)
                    if answer is not None and not answer.done():
                        answer.set_result(tokens)
                await asyncio.sleep(0)
        except Exception as error:
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_exception(error)
            raise

    def _choose(self) -> list[Request]:
        """Take the turns to prefill now from the queue."""
        waiting = list(self._waiting.values())
        if self._deterministic:
            waiting = self._wave()
        elif self.decoder.active and len(waiting) < MIN_PREFILL and 4 * len(waiting) < self.decoder.active:
            self._patience += 1
            if self._patience <= PATIENCE:
                return []
        if not waiting:
            return []
        self._patience = 0
        chosen = self.decoder.admissible(waiting)
        for request in chosen:
            del self._waiting[request.session]
        return chosen

    def _wave(self) -> list[Request]:
        """Lockstep: one turn of every trajectory that has or gets a slot, or none if one of them is missing."""
        if self.decoder.active:
            return []
        live = list(self._expected)[: self.decoder.slots]
        missing = any(session not in self._waiting for session in live)
        return [] if missing else [self._waiting[session] for session in live]

    def _burst(self, admitted: list[Request]) -> Finished:
        """On the compute thread: prefill, then decode until a turn ends or a request or release arrives."""
        decoder = self.decoder
        finished = decoder.admit(admitted) if admitted else []
        for _ in range(BURST):
            news = not self._deterministic and (finished or self._news.is_set())
            if news or not decoder.active:
                break
            finished += decoder.step()
        return finished
