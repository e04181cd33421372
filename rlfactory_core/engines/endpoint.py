"""Evaluates a model behind an OpenAI-compatible endpoint, as `protocols.Engine.evaluate` does. It owns no weights."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from rlfactory_core.clients.openai import OpenAIClient
from rlfactory_core.evaluation import EvalPass, eval_passes, summarise
from rlfactory_core.protocols import EngineRun
from rlfactory_core.rollout import derive_seed, gather_all
from rlfactory_core.run_context import RunContext
from rlfactory_core.task_runtime import TaskRuntime
from rlfactory_core.types import Group, Sample


class EndpointEvaluator:
    """Plays through one client; several passes after each other, the samples of a pass at once."""

    def __init__(self, client: OpenAIClient) -> None:
        self._client = client

    def evaluate(self, run: EngineRun) -> dict[str, Any]:
        """Returns the flat map of the results, with confidence intervals.

        Raises:
            BackendError: the endpoint, or what the task's tools need, does not answer at the start.
            DataError: there are no samples.
        """
        return asyncio.run(self._evaluate(run))

    async def _evaluate(self, run: EngineRun) -> dict[str, Any]:
        runtime = TaskRuntime(run.config, run.registry)
        samples = runtime.held_out(required=True)
        try:
            await runtime.open(run.progress, RunContext(run.folder.path))
            run.progress.stage("reach the endpoint")
            await self._client.open(runtime.manager.specs)
            settings = run.config.eval
            attempts = settings.attempts if settings.sampled else 0
            passes = eval_passes("after", attempts=attempts, controls=runtime.task.controls())
            results: dict[str, float] = {}
            for how in passes:
                groups = await self._play(run, runtime, samples, how)
                flat = summarise(groups, success=runtime.success).flat(how.prefix, intervals=True)
                results |= flat
                trajectories = (trajectory for group in groups for trajectory in group.trajectories)
                run.folder.write_trajectories(how.name, trajectories, _no_text)
            return results
        finally:
            await self._client.close()
            await runtime.close()

    async def _play(
        self, run: EngineRun, runtime: TaskRuntime, samples: Sequence[Sample], how: EvalPass
    ) -> list[Group]:
        manager = runtime.control_manager(how.control) if how.control else None
        run.progress.stage(how.name, len(samples), "sample")
        masked = 0

        async def play(index: int, sample: Sample) -> Group:
            nonlocal masked
            group = await runtime.play_chat(
                sample,
                self._client,
                attempts=how.attempts,
                temperature=how.temperature,
                seed=derive_seed(run.config.seed, how.name, index),
                session=f"{how.name}/{index}",
                manager=manager,
            )
            masked += sum(trajectory.masked for trajectory in group.trajectories)
            run.progress.advance(1, **({"masked": masked} if masked else {}))
            return group

        return await gather_all(play(index, sample) for index, sample in enumerate(samples))


def _no_text(ids: Sequence[int]) -> str:
    """These trajectories have no ids; their messages are what there is to read."""
    return ""
