"""The task, opened once in each rollout worker of verl's and shared by all its trajectories."""

from __future__ import annotations

import asyncio
import gc
from functools import lru_cache
from pathlib import Path
from typing import Any

from rlfactory_core.engines.verl.events import StopFile
from rlfactory_core.engines.verl.payload import Payload
from rlfactory_core.engines.verl.pool import Served
from rlfactory_core.engines.verl.sampler import ServerSampler
from rlfactory_core.engines.verl.work import Work
from rlfactory_core.rollout import derive_seed
from rlfactory_core.run_context import RunContext
from rlfactory_core.task_runtime import TaskRuntime
from rlfactory_core.types import Fault, FaultKind, StopReason, Trajectory


class WorkerRuntime:
    """Plays one attempt at a time, many at once.

    Args:
        pool: the servers that rewards ask for their model, where verl serves it.

    Raises:
        PluginError: this machine's plugins are not the driver's.
    """

    def __init__(self, payload: Payload, tokenizer: Any, pool: Served | None = None) -> None:
        self.config, registry = payload.load_plugins()
        self.runtime = TaskRuntime(self.config, registry, group=payload.folder)
        self.runtime.use_tokenizer(tokenizer)
        if pool is not None:
            self.runtime.use_pools(pool.urls, pool.model)
        folder = Path(payload.folder)
        self._run = RunContext(folder, StopFile(folder).ask)
        self._opening: asyncio.Task[None] | None = None
        # Thousands of calls in flight set off full collections, which would go through all of torch each time.
        gc.collect()
        gc.freeze()

    async def play(self, data: bytes, attempt: int, sampler: ServerSampler) -> tuple[Work, Trajectory]:
        """Roll out and score.

        The boundary at which anything that a task's own environment or tools raise spoils this trajectory and no other.
        """
        work = Work.loads(data)
        try:
            playing = self._play(work, attempt, sampler)
            return work, await asyncio.wait_for(playing, self.config.verl.trajectory_deadline_s)
        except Exception as error:  # noqa: BLE001 - the boundary that the docstring names
            late = isinstance(error, asyncio.TimeoutError) and not str(error)
            limit = f"not done within verl.trajectory_deadline_s={self.config.verl.trajectory_deadline_s:g}"
            fault = Fault(FaultKind.INFRA, "rollout", limit if late else f"{type(error).__name__}: {error}")
            return work, Trajectory(work.sample, attempt, (), StopReason.FAULT, (fault,))

    async def _play(self, work: Work, attempt: int, sampler: ServerSampler) -> Trajectory:
        if self._opening is None:
            self._opening = asyncio.create_task(self.runtime.open(run=self._run))
        await asyncio.shield(self._opening)
        control = work.how.control if work.how else ""
        return await self.runtime.play_one(
            work.sample,
            sampler,
            attempt=attempt,
            temperature=work.temperature,
            seed=derive_seed(work.seed, work.sample.id, attempt),
            session=f"{work.session}/{attempt}",
            manager=self.runtime.control_manager(control) if control else None,
        )


@lru_cache(maxsize=1)
def worker_runtime(payload: str, tokenizer: Any, pool: str | None = None) -> WorkerRuntime:
    """This process's runtime for a run, made when its first trajectory begins; verl has one tokenizer a process."""
    return WorkerRuntime(Payload.from_text(payload), tokenizer, Served.from_text(pool) if pool else None)
