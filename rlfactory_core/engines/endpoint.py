"""Evaluates a model behind an OpenAI-compatible endpoint, as `Engine.evaluate` does; it has no weights."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from rlfactory_core.algo.evaluation import EvalPass
from rlfactory_core.clients import OpenAIClient
from rlfactory_core.context import RunContext
from rlfactory_core.engines.base import EngineRun
from rlfactory_core.engines.recorder import Recorder, evaluation_passes
from rlfactory_core.errors import UsageError
from rlfactory_core.reporting.trajectories import stored
from rlfactory_core.tasks.opening import OpenTasks, open_tasks
from rlfactory_core.types import Group, Sample
from rlfactory_core.utils.aio import gather_all
from rlfactory_core.utils.seeds import derive_seed


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An engine that only evaluates: the model behind a client, which is closed after that."""

    client: OpenAIClient

    def prepare(self, config: Any) -> Any:
        return config

    def train(self, run: EngineRun) -> dict[str, Any]:
        raise UsageError("A model behind an endpoint cannot be trained. Name a model folder or a hub id.")

    def evaluate(self, run: EngineRun) -> dict[str, Any]:
        """Play one pass after the other, and the samples of a pass concurrently.

        Returns:
            The flat map of the results, with confidence intervals.

        Raises:
            BackendError: the endpoint, or a service that the task's tools need, does not answer at the start.
            DataError: there are no samples.
        """
        return asyncio.run(_evaluate(self.client, run))


async def _evaluate(client: OpenAIClient, run: EngineRun) -> dict[str, Any]:
    samples = run.tasks.held_out(required=True)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(client.close)
        opening = open_tasks(run.tasks, run.progress, RunContext(run.folder.path))
        opened = await stack.enter_async_context(opening)
        opened.check(samples)
        run.progress.stage("reach the endpoint")
        await client.open(opened.only.manager.specs if len(opened.by_name) == 1 else ())
        recorder = Recorder(run.folder, run.progress, opened.success)
        for how in evaluation_passes(run, "after"):
            groups = await _play(run, opened, client, samples, how)
            recorder.evaluated("after", how, groups, stored(groups), intervals=True)
        return recorder.results["after"]


async def _play(
    run: EngineRun, opened: OpenTasks, client: OpenAIClient, samples: Sequence[Sample], how: EvalPass
) -> list[Group]:
    manager = opened.only.control_manager(how.control) if how.control else None
    run.progress.stage(how.name, len(samples), "sample")
    masked = 0

    async def play(index: int, sample: Sample) -> Group:
        nonlocal masked
        group = await opened.of(sample).play(
            sample,
            client,
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
