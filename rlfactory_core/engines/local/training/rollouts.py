"""This process's share of the rollouts of a training step, or of an evaluation."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlfactory_core.algo.evaluation import EvalPass
from rlfactory_core.algo.prompts import Played, PromptSampler
from rlfactory_core.engines.local.decoding.sampler import LocalSampler
from rlfactory_core.engines.local.training.workers import Workers
from rlfactory_core.engines.settings import EngineSettings
from rlfactory_core.tasks.opening import OpenTasks
from rlfactory_core.types import Group, Sample
from rlfactory_core.utils.seeds import derive_seed


@dataclass(slots=True)
class Rollouts:
    """Plays and scores with an open task and an open sampler."""

    config: EngineSettings
    runtime: OpenTasks
    sampler: LocalSampler
    workers: Workers
    samples: Sequence[Sample]  # for training, of all processes
    eval_samples: Sequence[Sample]  # of all processes
    prompts: PromptSampler
    _drawn: dict[int, int] = field(default_factory=dict, init=False)  # position -> sample, until it is trained

    def draw(self, positions: Sequence[int]) -> None:
        """Choose the samples of a step's positions, of all processes, which do so at the same point of the loop."""
        size = self.config.train.prompts_per_step
        for step in sorted({position // size for position in positions if position not in self._drawn}):
            self._drawn |= enumerate(self.prompts.step(step + 1), step * size)

    def start(self, position: int, replay: int = 0, refill: int = 0) -> asyncio.Task[Group]:
        """Begin to play a group of the training, whose position was drawn.

        Args:
            position: of the prompt in the run, from 0.
            replay: how many times it has been played before; each time has random numbers of its own.
            refill: the number of the prompt that replaces it; 0: the prompt itself.
        """
        config = self.config
        step, index = divmod(position, config.train.prompts_per_step)
        name, attempts = f"{step + 1}/{index}", config.train.group_size
        drawn, again = self._drawn[position], ("replay", replay) if replay else ()
        if refill:
            drawn = self.prompts.replacement(step + 1, index, refill)
            name, again = f"{name}/refill-{refill}", (*again, "refill", refill)
        self.sampler.expect(f"{name}/{attempt}" for attempt in range(attempts))
        sample = self.samples[drawn]
        task = self.runtime.of(sample)
        play = task.play(
            sample,
            task.model(self.sampler),
            attempts=attempts,
            temperature=config.rollout.temperature,
            seed=derive_seed(config.seed, "train", step + 1, *again, index),
            session=name,
        )
        return asyncio.create_task(play)

    def finish(self, played: Sequence[Played], pending: Sequence[int]) -> None:
        """Tell the sampler of prompts about a step's groups, and forget what was trained; of all processes."""
        self._drawn = {position: self._drawn[position] for position in pending}
        self.prompts.played(played)

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"drawn": self._drawn, "sampler": dict(self.prompts.state())}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint's state."""
        self._drawn = dict(state["drawn"])
        self.prompts.load(state["sampler"])

    async def evaluate(self, how: EvalPass) -> list[Group]:
        """This process's groups of an evaluation pass."""
        manager = self.runtime.only.control_manager(how.control) if how.control else None
        share = self.workers.share(list(enumerate(self.eval_samples)))
        self.sampler.expect(f"{how.name}/{index}/{attempt}" for index, _ in share for attempt in range(how.attempts))
        plays = [
            self.runtime.of(sample).play(
                sample,
                self.runtime.of(sample).model(self.sampler),
                attempts=how.attempts,
                temperature=how.temperature,
                seed=derive_seed(self.config.seed, how.name, index),
                session=f"{how.name}/{index}",
                manager=manager,
            )
            for index, sample in share
        ]
        return list(await asyncio.gather(*plays))
