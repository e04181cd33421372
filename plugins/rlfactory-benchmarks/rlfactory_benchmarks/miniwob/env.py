"""An episode: one page in a context of its own, on which each call of a turn acts in order; and its rewards."""

from __future__ import annotations

import math
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from rlfactory_core import Message, Score, ToolContext, Trajectory
from rlfactory_core.protocols import EnvStart, EnvStep, ToolManager
from rlfactory_core.types import FaultKind, StopReason, ToolResult

if TYPE_CHECKING:
    from rlfactory_benchmarks.miniwob.browser import Page

__all__ = ["INFO", "PAGE", "UNFINISHED", "PageEnv", "PageReward", "PageSuccess"]

PAGE = "miniwob"  # in the tools' state: the episode's `Page`
INFO = "miniwob_raw"  # in the trajectory's info, once the page has ended: its reward
UNFINISHED = -1.0  # of a page whose time is over, as `core.endEpisode` gives it
RULES = (
    "You see a small web page. Do the task with the tools; they name elements by their numbers in brackets. "
    "Each action takes some of the page's time, which is limited."
)


@dataclass(slots=True)
class PageEnv:
    """Plays one page until it gives its reward.

    A turn without a call ends the attempt. A browser that dies, and a page that crashes or hangs, are infra faults.
    """

    manager: ToolManager
    context: ToolContext
    opening: AbstractAsyncContextManager[Page]  # opens the page, and closes it
    deadline_s: float = math.inf  # opening has a deadline, and each call
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def start(self) -> EnvStart:
        page = self.context.state[PAGE] = await self._stack.enter_async_context(self.opening)
        text = await page.read()
        return EnvStart((Message("user", f"{RULES}\n\nTask: {page.task}\n\n{text}"),), self.manager.specs)

    async def step(self, message: Message) -> EnvStep:
        if not message.tool_calls:
            return EnvStep(stop=StopReason.NO_TOOL_CALL)
        page: Page = self.context.state[PAGE]
        results: list[ToolResult] = []
        for call in message.tool_calls:
            results += await self.manager.invoke((call,), self.context)
            if results[-1].fault is FaultKind.INFRA:
                return EnvStep(stop=StopReason.FAULT, results=tuple(results))
            if page.done:
                return EnvStep(stop=StopReason.ENV_DONE, results=tuple(results), info={INFO: page.raw})
        return EnvStep(tuple(result.message for result in results), results=tuple(results))

    async def close(self) -> None:
        await self._stack.aclose()


class PageReward:
    """The page's reward without its decay over time (the package's ``get_raw_reward``), from -1 to 1.

    An attempt that ends before the page does, for example with a text instead of a call, gets what a page gives whose
    time is over.
    """

    inline: ClassVar[bool] = True
    bounds: ClassVar[tuple[float, float]] = (-1.0, 1.0)

    async def score(self, trajectory: Trajectory) -> Score:
        return Score(float(trajectory.info.get(INFO, UNFINISHED)))


class PageSuccess:
    """1 for the page's full reward, else 0: the package's ``get_binary_reward``, which gives 1 and -1."""

    inline: ClassVar[bool] = True

    async def score(self, trajectory: Trajectory) -> Score:
        return Score(float(trajectory.info.get(INFO, UNFINISHED) >= 1.0))
