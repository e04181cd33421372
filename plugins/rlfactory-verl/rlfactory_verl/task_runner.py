"""The process in which verl's trainer runs: a Ray actor on the driver's machine."""

from __future__ import annotations

import asyncio
import multiprocessing
from contextlib import suppress
from typing import Any

import ray
import transfer_queue as tq
from omegaconf import OmegaConf, open_dict
from verl.trainer.ppo.v1 import AgentLoopManagerTQ
from verl.utils.logging_utils import configure_verl_logging

from rlfactory_core.engines import EngineRun
from rlfactory_core.reporting import open_loggers
from rlfactory_core.reporting.progress import Progress
from rlfactory_core.tasks import OpenTasks, Tasks
from rlfactory_core.training import Ended, remedies
from rlfactory_verl.checkpoints import read_state
from rlfactory_verl.events import EVENTS, EventProgress, StopFile
from rlfactory_verl.nodes import open_and_close
from rlfactory_verl.pool import POOL_FIELD, Served
from rlfactory_verl.recorder import RowRecorder, verl_facts
from rlfactory_verl.rollout_request import FIELD
from rlfactory_verl.run_payload import Payload
from rlfactory_verl.trainer import watched

END_S = 30.0  # for vLLM to end


class TaskRunner:
    """Replaces verl's ``TaskRunnerV1``: the same steps, with the watched trainer."""

    def run(self, config: Any, resume_step: int | None) -> dict[str, Any]:
        """Train, or only evaluate; returns ``summary.json``.

        Raises:
            RunStopped: the user, or a part of the run, requested it.
        """
        configure_verl_logging()
        payload = Payload.from_text(str(config.data[FIELD]))
        run = payload.run()
        tasks, folder = run.tasks, run.folder
        loggers = open_loggers(run.config.loggers, folder, run.config.model_dump(mode="json"), resume_step)
        earlier = None if resume_step is None else read_state(folder.checkpoints, resume_step)
        progress = EventProgress(folder.path / EVENTS)
        scorers = tasks.scorers
        recorder = RowRecorder(
            folder,
            loggers,
            progress,
            tasks.success,
            earlier,
            scorers.weights,
            scorers.opinions,
            tasks.top_reward,
            remedies([run.config], tasks),
            facts=verl_facts(run.config),
        )
        recorder.left_out = payload.left_out
        try:
            trainer = self._train(config, run, recorder)
        finally:
            loggers.close()
        if config.trainer.val_only:
            return recorder.summary(0)
        steps = trainer.total_training_steps
        return recorder.summary(steps, trainer.ended or Ended("steps", f"did all {steps} steps"))

    def _train(self, config: Any, run: EngineRun, recorder: RowRecorder) -> Any:
        config.transfer_queue.enable = True
        OmegaConf.resolve(config)
        trainer = None
        tq.init(config.transfer_queue)
        succeeded = False
        stop = StopFile(recorder.folder.path)
        try:
            recorder.progress.stage("start the trainer and vLLM")
            trainer = watched(config.trainer.v1.trainer_mode)(config, run, recorder, stop)
            trainer.init()
            served = Served.by(trainer)
            if served is not None:
                recorder.progress.stage(f"check the model of {', '.join(run.tasks.pools)}")
                _use_pool(served, config, run.tasks, recorder.progress)
            loops = AgentLoopManagerTQ.create(
                config=config,
                llm_client=trainer.get_llm_client(),
                teacher_client=trainer.get_teacher_client(),
                reward_loop_worker_handles=trainer.get_reward_handles(),
            )
            trainer.fit(loops)
            succeeded = True
        finally:
            _end_servers(trainer)
            try:
                tracking = getattr(trainer, "logger", None)
                if tracking is not None:
                    tracking.finish(exit_code=0 if succeeded else 1)
            finally:
                tq.close()
        return trainer


def _use_pool(served: Served, config: Any, tasks: Tasks, progress: Progress) -> None:
    """Pass the pool's addresses to every agent loop, through verl's configuration.

    The check of the machines could not open the scorers that use the pool; they are opened here, before anything is
    sampled.
    """
    with open_dict(config):
        config.data[POOL_FIELD] = served.to_text()
    asyncio.run(open_and_close(OpenTasks(tasks), progress, served))


def _end_servers(trainer: Any) -> None:
    """Shut vLLM down. Ray would kill its processes and leave their shared memory, on a joined cluster for good."""
    managers = [getattr(trainer, name, None) for name in ("llm_server_manager", "standalone_server_manager")]
    managers.append(getattr(getattr(trainer, "reward_loop_manager", None), "reward_model_manager", None))
    handles = [handle for manager in managers if manager is not None for handle in manager.server_handles]
    ends = [handle.__ray_call__.remote(_end_server) for handle in handles]
    with suppress(ray.exceptions.RayError):  # for a server that is already dead
        ray.get(ends, timeout=END_S)
    for router in multiprocessing.active_children():  # verl's, before the pool of rewards; it would outlive this actor
        router.terminate()
        router.join(END_S)


def _end_server(server: Any) -> None:
    server.engine.shutdown()
