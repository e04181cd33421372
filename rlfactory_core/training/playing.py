"""Plays groups for the training: decides when each prompt starts and which groups each step trains."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from rlfactory_core.algo.prompts import Played, PromptSampler
from rlfactory_core.algo.stages import STAGE_METHODS
from rlfactory_core.engines.base import Engine
from rlfactory_core.engines.settings import EngineSettings
from rlfactory_core.types import Group, Sample
from rlfactory_core.utils.aio import gather_all
from rlfactory_core.utils.seeds import derive_seed

Play = Callable[..., Awaitable[Group]]
"""``play(sample, attempts=…, temperature=…, seed=…, session=…, manager=None)``, see `TaskRuntime.play`."""


@dataclass(slots=True)
class GroupInFlight:
    """A group that is being played, waits for its step, or is trained by it."""

    position: int  # of its prompt in the run
    due: int  # the last step that may train it
    task: asyncio.Task[Group]
    started: float = field(default_factory=time.perf_counter)
    ended: float = 0.0

    @property
    def group(self) -> Group:
        """Once it is complete; raises what ended its play."""
        return self.task.result()


class GroupQueue:
    """Gives groups in the order in which they finish, each in time to be trained.

    A group may be trained at most ``staleness`` versions of the weights after its first token. A step takes a finished
    group only if all older groups can still be trained before they are due; otherwise it waits for an older one. As
    many groups have to be started before each step as it takes.

    Args:
        size: groups of this process in a step.
        staleness: 0 takes the groups of one step after the other.
    """

    def __init__(self, size: int, staleness: int) -> None:
        self._size, self._staleness = size, staleness
        self._groups: list[GroupInFlight] = []
        self._news = asyncio.Event()

    @property
    def positions(self) -> list[int]:
        """Those of the groups that no step has taken."""
        return sorted(each.position for each in self._groups)

    def add(self, position: int, step: int, task: asyncio.Task[Group]) -> None:
        """Add a task that began when ``step`` was the next one to be trained."""
        added = GroupInFlight(position, step + self._staleness, task)
        self._groups.append(added)

        def ended(_task: asyncio.Task[Group]) -> None:
            added.ended = time.perf_counter()
            self._news.set()

        task.add_done_callback(ended)

    async def take(self, step: int) -> list[GroupInFlight]:
        """The groups of a step, by position.

        Raises:
            Exception: what ended the play of a group.
        """
        taken: list[GroupInFlight] = []
        while len(taken) < self._size:
            self._news.clear()
            ready = self._first_ready(step, self._size - len(taken))
            if ready is None:
                await self._news.wait()
                continue
            self._groups.remove(ready)
            ready.task.result()  # raises
            taken.append(ready)
        return sorted(taken, key=lambda each: each.position)

    async def close(self) -> None:
        """Cancel what is being played."""
        for each in self._groups:
            each.task.cancel()
        await asyncio.gather(*(each.task for each in self._groups), return_exceptions=True)

    def _first_ready(self, step: int, room: int) -> GroupInFlight | None:
        """A group that has failed, else the group that was complete first among those that may be taken."""
        done = sorted((each for each in self._groups if each.task.done()), key=lambda each: each.ended)
        for each in done:
            if each.task.cancelled() or each.task.exception() is not None:
                return each
        return next((each for each in done if self._leaves_room(each, step, room)), None)

    def _leaves_room(self, group: GroupInFlight, step: int, room: int) -> bool:
        """True if all older groups can still be trained in time after this one takes one of ``room`` places."""
        for after in range(group.due - step):  # steps of which this group is not due
            due = sum(each.due <= step + after for each in self._groups)  # groups that have to be trained by then
            if due > room - 1 + after * self._size:
                return False
        return True


class Playing:
    """This process's share of what is played for the training.

    The ``queue`` has the groups that are begun.

    Args:
        samples: for training, of all processes.
        prompts: chooses among them.
        further: what is added to the number of a step for ``prompts``.
    """

    def __init__(
        self,
        engine: Engine,
        play: Play,
        config: EngineSettings,
        samples: Sequence[Sample],
        prompts: PromptSampler,
        further: int = 0,
    ) -> None:
        self._engine, self._play, self._config = engine, play, config
        self._asks = STAGE_METHODS[config.train.method].plays  # the engine's sampler
        self.samples, self._prompts, self._further = samples, prompts, further
        self.index = {sample.id: index for index, sample in enumerate(samples)}
        self._size = config.train.prompts_per_step
        self._drawn: dict[int, int] = {}  # position -> sample, until it is trained
        self.queue = GroupQueue(len(engine.processes.share(range(self._size))), config.train.staleness)
        self._steps: Iterator[Sequence[int]] = iter(())

    def plan(self, first: int, last: int, pending: Sequence[int]) -> None:
        """Plan steps ``first`` … ``last``.

        Args:
            pending: positions of prompts that were begun before ``first`` and not trained; they come first.
        """
        positions = [*pending, *range((first - 1) * self._size + len(pending), last * self._size)]
        self._steps = (positions[start : start + self._size] for start in range(0, len(positions), self._size))
        self._ahead = 1 + self._config.train.staleness  # steps to begin at first

    def begin(self, step: int) -> None:
        """Start as many groups as a step trains; the first time more, by ``train.staleness``."""
        for positions in islice(self._steps, self._ahead):
            for drawn in sorted({each // self._size for each in positions if each not in self._drawn}):
                self._drawn |= enumerate(self._prompts.step(drawn + 1 + self._further), drawn * self._size)
            for position in self._engine.processes.share(positions):
                self.queue.add(position, step, self._start(position))
        self._ahead = 1

    async def again(self, taken: Sequence[GroupInFlight], step: int, replay: int) -> list[GroupInFlight]:
        """Play a step's groups anew, the ``replay``-th time, with other random numbers."""
        queue = GroupQueue(len(taken), 0)
        for each in taken:
            queue.add(each.position, step, self._start(each.position, replay))
        try:
            return await queue.take(step)
        finally:
            await queue.close()

    async def refill(self, taken: Sequence[GroupInFlight], teaches_nothing: Callable[[Group], bool]) -> list[Group]:
        """Play groups that replace those without a gradient."""
        train, latest, found = self._config.train, {each.position: each.group for each in taken}, list[Group]()
        for number in range(1, train.refill_factor if train.refill else 1):
            again = [position for position, group in latest.items() if teaches_nothing(group)]
            played = await gather_all(self._start(position, refill=number) for position in again)
            latest = dict(zip(again, played, strict=True))
            found += played
        return found

    def untrained(self, taken: Sequence[GroupInFlight] = ()) -> list[int]:
        """The positions that this process has started and not trained, with those of the current step."""
        return [*self.queue.positions, *(each.position for each in taken)]

    def finish(self, played: Sequence[Played], pending: Sequence[int]) -> None:
        """Report a step's groups to the sampler of prompts, and forget what was trained; of all processes."""
        self._drawn = {position: self._drawn[position] for position in pending}
        self._prompts.played(played)

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"drawn": self._drawn, "sampler": dict(self._prompts.state())}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint's state."""
        self._drawn = {int(position): sample for position, sample in state["drawn"].items()}  # JSON has texts
        self._prompts.load(state["sampler"])

    def _start(self, position: int, replay: int = 0, refill: int = 0) -> asyncio.Task[Group]:
        """Begin to play a group whose position was drawn.

        Args:
            position: of the prompt in the run, from 0.
            replay: how many times it has been played before; each time has random numbers of its own.
            refill: the number of the prompt that replaces it; 0: the prompt itself.
        """
        config = self._config
        step, index = divmod(position, self._size)
        name, attempts = f"{step + 1}/{index}", config.train.group_size
        drawn, again = self._drawn[position], ("replay", replay) if replay else ()
        if refill:
            drawn = self._prompts.replacement(step + 1 + self._further, index, refill)
            name, again = f"{name}/refill-{refill}", (*again, "refill", refill)
        if self._asks:
            self._engine.expect(f"{name}/{attempt}" for attempt in range(attempts))
        play = self._play(
            self.samples[drawn],
            attempts=attempts,
            temperature=config.rollout.temperature,
            seed=derive_seed(config.seed, "train", step + 1, *again, index),
            session=name,
        )
        return asyncio.ensure_future(play)
