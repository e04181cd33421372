"""This process's share of the rollouts of a training step, or of an evaluation."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from rlfactory_core.algo.evaluation import EvalPass
from rlfactory_core.algo.schedule import PromptSchedule
from rlfactory_core.engines.local.decoding.sampler import LocalSampler
from rlfactory_core.engines.local.training.workers import Workers
from rlfactory_core.protocols import ToolManager
from rlfactory_core.tasks.runtime import TaskRuntime
from rlfactory_core.types import Group, Sample
from rlfactory_core.utils.seeds import derive_seed


@dataclass(slots=True)
class Rollouts:
    """Plays and scores with an open task and an open sampler."""

    runtime: TaskRuntime
    sampler: LocalSampler
    workers: Workers
    samples: Sequence[Sample]  # for training, of all processes
    eval_samples: Sequence[Sample]  # of all processes
    _schedule: PromptSchedule = field(init=False)

    def __post_init__(self) -> None:
        config = self.runtime.config
        self._schedule = PromptSchedule(len(self.samples), config.train.prompts_per_step, config.seed)

    def prompts(self, step: int) -> list[Sample]:
        """The samples of a training step, of all processes."""
        return [self.samples[index] for index in self._schedule.step(step)]

    async def train(self, step: int, replay: int = 0) -> list[Group]:
        """This process's groups of a training step.

        Args:
            replay: how many times the step has been played before; each time has random numbers of its own.
        """
        config = self.runtime.config
        how = EvalPass(str(step), "", config.rollout.temperature, config.train.group_size)
        return await self._play(self.prompts(step), how, ("train", step, *(("replay", replay) if replay else ())))

    async def evaluate(self, how: EvalPass) -> list[Group]:
        """This process's groups of an evaluation pass."""
        manager = self.runtime.control_manager(how.control) if how.control else None
        return await self._play(self.eval_samples, how, (how.name,), manager)

    async def _play(
        self,
        samples: Sequence[Sample],
        how: EvalPass,
        seeded_by: Sequence[str | int],
        manager: ToolManager | None = None,
    ) -> list[Group]:
        """In the order of the samples."""
        share = self.workers.share(list(enumerate(samples)))
        self.sampler.expect(f"{how.name}/{index}/{attempt}" for index, _ in share for attempt in range(how.attempts))
        plays = [
            self.runtime.play(
                sample,
                self.sampler,
                attempts=how.attempts,
                temperature=how.temperature,
                seed=derive_seed(self.runtime.config.seed, *seeded_by, index),
                session=f"{how.name}/{index}",
                manager=manager,
            )
            for index, sample in share
        ]
        return list(await asyncio.gather(*plays))
