"""The task in a rollout worker of verl: opened once, and shared by all trajectories of the worker."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from rlfactory_core import RunContext
from rlfactory_core.tasks import OpenTasks
from rlfactory_core.types import Fault, FaultKind, StopReason, Trajectory
from rlfactory_core.utils.garbage import collect_rarely
from rlfactory_core.utils.seeds import derive_seed
from rlfactory_verl.config import VerlConfig
from rlfactory_verl.events import StopFile
from rlfactory_verl.pool import Served
from rlfactory_verl.rollout_request import RolloutRequest
from rlfactory_verl.run_payload import Payload
from rlfactory_verl.sampler import ServerSampler
from rlfactory_verl.vision import shows_images


class WorkerRuntime:
    """Plays attempts, many of them concurrently.

    Args:
        pool: the servers of the rewards' model, if verl serves one.

    Raises:
        PluginError: this machine's plugins differ from the driver's.
    """

    def __init__(self, payload: Payload, tokenizer: Any, pool: Served | None = None) -> None:
        run = payload.run()
        self.config, self.tasks = run.config, OpenTasks(run.tasks, payload.folder)
        images = shows_images(self.config.chat, self.config.model)
        self.tasks.use_chat(run.make_chat(tokenizer, images=images))
        folder = Path(payload.folder)
        self._run, self._pool = RunContext(folder, StopFile(folder).ask), pool
        self._opening: asyncio.Task[OpenTasks] | None = None
        collect_rarely()

    async def play(self, data: bytes, attempt: int, sampler: ServerSampler) -> tuple[RolloutRequest, Trajectory]:
        """Roll out and score.

        This is the boundary for errors of a task's environment and tools: they spoil this trajectory only.
        """
        request = RolloutRequest.loads(data)
        limit_s = VerlConfig.of(self.config).trajectory_deadline_s
        try:
            playing = self._play(request, attempt, sampler)
            return request, await asyncio.wait_for(playing, limit_s)
        except Exception as error:  # noqa: BLE001 - the boundary that the docstring names
            late = isinstance(error, asyncio.TimeoutError) and not str(error)
            limit = f"not done within verl.trajectory_deadline_s={limit_s:g}"
            words = limit if late else f"{type(error).__name__}: {error}"
            fault = Fault(FaultKind.INFRA, "rollout", words, code="late" if late else "crashed")
            return request, Trajectory(request.sample, attempt, (), StopReason.FAULT, (fault,))

    async def _play(self, request: RolloutRequest, attempt: int, sampler: ServerSampler) -> Trajectory:
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
        tasks = await asyncio.shield(self._opening)
        control = request.how.control if request.how else ""
        task, manager = tasks.of(request.sample), tasks.only.control_manager(control) if control else None
        seed, session = derive_seed(request.seed, request.sample.id, attempt), f"{request.session}/{attempt}"
        episode = replace(task.episode(request.sample, request.temperature, seed, session, manager), attempt=attempt)
        return await task.rewards.score_trajectory(await task.rollout(episode, task.model(sampler)))

    async def _open(self) -> OpenTasks:
        return await self.tasks.open(run=self._run, served=self._pool)


@lru_cache(maxsize=1)
def worker_runtime(payload: str, tokenizer: Any, pool: str | None) -> WorkerRuntime:
    """This process's runtime, made for its first trajectory; verl has one tokenizer for each process."""
    return WorkerRuntime(Payload.from_text(payload), tokenizer, Served.from_text(pool) if pool else None)
