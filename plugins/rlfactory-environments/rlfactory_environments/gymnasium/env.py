"""An episode of a game: each call runs in a thread, with a deadline."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

from rlfactory_core.protocols import EnvStart, EnvStep
from rlfactory_core.tools import error_line
from rlfactory_core.types import FaultKind, Message, Sample, StopReason, ToolResult
from rlfactory_core.utils.threads import BlockingPool
from rlfactory_environments.gymnasium.game import Game, IllegalActionError, Seen

_log = logging.getLogger(__name__)
SOURCE = "environment"  # of its faults
ILLEGAL = "illegal_actions"  # in the trajectory's info


class GameEnv:
    """Plays one game.

    A game that raises, is late, or gives a reward that is no number is an infra fault, which masks the trajectory. A
    text that is no action is the model's mistake: it reads why, and after some of them in a row the episode ends.

    Args:
        make: makes the game; it may block.
        deadline_s: time limit per call.
        illegal: illegal actions in a row that are answered.
        illegal_reward: the reward of an illegal action.
        system: a system message before the game's text; empty: none.
    """

    deadline_s = math.inf  # each call ends by itself

    def __init__(
        self,
        sample: Sample,
        make: Callable[[], Game],
        pool: BlockingPool,
        *,
        deadline_s: float,
        illegal: int,
        illegal_reward: float,
        system: str,
    ) -> None:
        self._sample, self._make, self._pool = sample, make, pool
        self._deadline_s, self._system = deadline_s, system
        self._illegal, self._illegal_reward = illegal, illegal_reward
        self._game: Game | None = None
        self._running: Future[Seen] | None = None
        self._failed = ""  # why there is no game
        self._mistakes = self._in_a_row = 0

    async def start(self) -> EnvStart:
        try:
            seen = await self._call(self._begin)
        except Exception as error:  # noqa: BLE001 the boundary to the game's code
            # A start has no place for a fault; the first step reports it.
            self._failed = _reason(error, self._deadline_s)
            seen = Seen(self._sample.messages[-1].content)
        system = (Message("system", self._system),) if self._system else ()
        return EnvStart((*system, Message("user", seen.text)), state=seen.state)

    async def step(self, message: Message) -> EnvStep:
        if self._failed or self._game is None:
            return _fault(self._failed)
        try:
            seen = await self._call(partial(self._game.step, message.content.strip()))
        except IllegalActionError as error:
            return self._refused(str(error))
        except Exception as error:  # noqa: BLE001 the boundary to the game's code
            self._failed = _reason(error, self._deadline_s)
            return _fault(self._failed)
        if not math.isfinite(seen.reward):
            return _fault(f"the reward {seen.reward} is no finite number")
        self._in_a_row = 0
        stop = StopReason.ENV_DONE if seen.terminated or seen.truncated else None
        info = {**seen.facts, **({"terminated": seen.terminated, "truncated": seen.truncated} if stop else {})}
        return EnvStep((Message("user", seen.text),), stop, seen.reward, info=info, state=seen.state)

    async def close(self) -> None:
        """Close the game, once its last call has ended."""
        game, self._game = self._game, None
        if self._running is not None and not self._running.done():  # cancelled or late: nobody may wait for it
            self._running.add_done_callback(partial(_close_late, game))
        elif game is not None:
            try:
                await asyncio.wait_for(self._pool.run(game.close), self._deadline_s)
            except Exception as error:  # noqa: BLE001 the boundary to the game's code
                _log.warning("an environment does not close: %s", _reason(error, self._deadline_s))

    def _begin(self) -> Seen:
        self._game = self._make()
        return self._game.reset(int(self._sample.metadata["seed"]))

    async def _call(self, work: Callable[[], Seen]) -> Seen:
        self._running = self._pool.submit(work)
        waiting: asyncio.Future[Seen] = asyncio.wrap_future(self._running)
        done, _ = await asyncio.wait((waiting,), timeout=self._deadline_s)
        if not done:
            raise TimeoutError
        return waiting.result()

    def _refused(self, problem: str) -> EnvStep:
        self._mistakes += 1
        self._in_a_row += 1
        stop = StopReason.ENV_DONE if self._in_a_row > self._illegal else None
        return EnvStep((Message("user", problem),), stop, self._illegal_reward, info={ILLEGAL: self._mistakes})


def _close_late(game: Game | None, running: Future[Seen]) -> None:
    """Close a game in the thread of its last call; it may have been made only by that call."""
    if running.cancelled() or game is None:
        return
    try:
        game.close()
    except Exception as error:  # noqa: BLE001 the boundary to the game's code
        _log.warning("an environment does not close: %s", error_line(error))


def _reason(error: BaseException, deadline_s: float) -> str:
    late = isinstance(error, TimeoutError) and not str(error)
    return f"no answer within {deadline_s:g} s (task.deadline_s)" if late else error_line(error)


def _fault(reason: str) -> EnvStep:
    result = ToolResult("", SOURCE, "", FaultKind.INFRA, attempts=1, reason=reason)
    return EnvStep(stop=StopReason.FAULT, results=(result,))
