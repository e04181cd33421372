"""Judge services as tests want them: quick pauses, a clock of their own, nothing kept on disk, nothing left behind."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from rlfactory_judge.contract import Question, Reply
from rlfactory_judge.forms import ScoreForm
from rlfactory_judge.options import JudgeOptions
from rlfactory_judge.service.endpoint import Timing
from rlfactory_judge.service.service import JudgeService, cost

from rlfactory_core.errors import VerifierError

T = TypeVar("T")
FORM = ScoreForm(0.0, 10.0)
AT_ONCE = Timing(first_pause_s=0.0)


class Clock:
    """Stands still but for pauses, which take no time and are written down."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.pauses: list[float] = []

    def timing(self, first_pause_s: float = 0.0) -> Timing:
        return Timing(first_pause_s=first_pause_s, clock=lambda: self.now, sleep=self._sleep)

    async def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


def question(text: str = "How good is it?") -> Question:
    return Question("You judge.", text, FORM)


def options(url: str | None, **more: Any) -> JudgeOptions:
    """For a server on the loopback; plain text and no cache unless asked for."""
    return JudgeOptions(**{"url": url, "output": "text", "cache": "off", "request_s": 30.0, **more})


class CountingService(JudgeService):
    """Adds up what its replies and failures say that they cost."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.counts: Counter[str] = Counter()

    async def ask(self, question: Question, *, sample: int = 0) -> Reply:
        try:
            reply = await super().ask(question, sample=sample)
        except VerifierError as failure:
            self.counts.update(cost([failure]))
            raise
        self.counts.update(cost([reply]))
        return reply


@asynccontextmanager
async def judging(
    url: str, timing: Timing = AT_ONCE, folder: Path | None = None, **more: Any
) -> AsyncIterator[CountingService]:
    """An open service."""
    service = CountingService(options(url, **more), timing=timing)
    await service.open(folder)
    try:
        yield service
    finally:
        await service.close()


def run_alone(work: Callable[[], Awaitable[T]]) -> T:
    """Run on an event loop of its own, which afterwards has no task, and no socket is left open."""

    async def whole() -> T:
        result = await work()
        gc.collect()  # also abandoned generators end
        for _ in range(10):
            await asyncio.sleep(0)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, left
        return result

    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        result = asyncio.run(whole())
        gc.collect()
    return result
