"""Evaluations of the policy as it is: greedy, sampled, and with the task's controls."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from rlfactory_core.engines.local.sampler import LocalSampler
from rlfactory_core.engines.local.workers import Workers
from rlfactory_core.evaluation import EvalPass
from rlfactory_core.protocols import ToolManager
from rlfactory_core.rollout import derive_seed
from rlfactory_core.task_runtime import TaskRuntime
from rlfactory_core.types import Group, Sample


async def evaluate(
    samples: Sequence[Sample], how: EvalPass, runtime: TaskRuntime, sampler: LocalSampler, workers: Workers, seed: int
) -> list[Group]:
    """Every process plays its share; the share's groups come back, in the order of its samples."""
    manager: ToolManager | None = runtime.control_manager(how.control) if how.control else None
    share = workers.share(list(enumerate(samples)))
    sampler.expect(f"{how.name}/{index}/{attempt}" for index, _ in share for attempt in range(how.attempts))
    plays = [
        runtime.play(
            sample,
            sampler,
            attempts=how.attempts,
            temperature=how.temperature,
            seed=derive_seed(seed, how.name, index),
            session=f"{how.name}/{index}",
            manager=manager,
        )
        for index, sample in share
    ]
    return list(await asyncio.gather(*plays))
