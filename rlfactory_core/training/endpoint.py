"""Evaluates a model behind a server."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from rlfactory_core.algo.guard_start import Remedies
from rlfactory_core.clients import OpenAIClient
from rlfactory_core.context import RunContext
from rlfactory_core.engines.base import EngineRun
from rlfactory_core.errors import UsageError
from rlfactory_core.tasks.opening import open_tasks
from rlfactory_core.training.evaluation import Evaluator
from rlfactory_core.training.record import Recorder, evaluation_passes


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A `WholeEngine` that only evaluates: the model behind a client, which is closed after that."""

    client: OpenAIClient

    def prepare(self, config: Any) -> Any:
        return config

    def train(self, run: EngineRun) -> dict[str, Any]:
        raise UsageError("A model behind an endpoint cannot be trained. Name a model folder or a hub id.")

    def evaluate(self, run: EngineRun) -> dict[str, Any]:
        """Returns the flat map of the results, with confidence intervals.

        Raises:
            BackendError: the endpoint, or a service that the task's tools need, does not answer at the start.
            DataError: there are no samples.
        """
        return asyncio.run(self._evaluate(run))

    async def _evaluate(self, run: EngineRun) -> dict[str, Any]:
        samples, client = run.tasks.held_out(required=True), self.client
        async with AsyncExitStack() as stack:
            stack.push_async_callback(client.close)
            opening = open_tasks(run.tasks, run.progress, RunContext(run.folder.path))
            tasks = await stack.enter_async_context(opening)
            tasks.check(samples)
            run.progress.stage("reach the endpoint")
            await client.open(tasks.only.manager.specs if len(tasks.by_name) == 1 else ())
            evaluator = Evaluator(
                tasks,
                lambda sample, **how: tasks.of(sample).play(sample, client, **how),
                samples,
                run.config.seed,
                run.progress,
                counts_samples=True,
            )
            recorder = Recorder(run.folder, run.progress, tasks.success, remedies=[Remedies(served=True)])
            found = await evaluator.evaluate("", "after", evaluation_passes(run, "after"), recorder, intervals=True)
            recorder.advise("the evaluation")
            return found
