"""verl's trainer classes, extended by our recorder through their hooks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from verl.trainer.ppo.v1 import get_trainer_cls
from verl.trainer.ppo.v1.trainer_base import PPOTrainer

from rlfactory_core.algo import STOPPED_BY, EvalPass
from rlfactory_core.engines import EngineRun
from rlfactory_core.training import Ended, Until, evaluation_passes
from rlfactory_verl.adapters import merge_adapters
from rlfactory_verl.aggregation import weigh_trajectories
from rlfactory_verl.anchor import BEFORE_UPDATE, OLD, anchor_to_sampler
from rlfactory_verl.checkpoints import complete_policy, policy_folder, publish
from rlfactory_verl.config import VerlConfig
from rlfactory_verl.constraints import SAPO
from rlfactory_verl.events import StopFile, stopped
from rlfactory_verl.moved import PolicyMovedProof
from rlfactory_verl.recorder import RowRecorder
from rlfactory_verl.replay import RecordingReplayBuffer

POLL_S = 0.1  # verl's own interval, 2 s, is as long as a small step
ALONE = ("gae", "reinforce_plus_plus")  # estimators that do not compare attempts


def watched(mode: str) -> type[Any]:
    """verl's trainer class of a mode, with `Watching` before it."""
    return type("WatchedTrainer", (Watching, get_trainer_cls(mode)), {})


class Watching(PPOTrainer):
    """Mixed into the trainer of a mode (verl 0.9): overrides documented hooks, and calls each of them.

    Args:
        run: its tasks are not opened here.
        recorder: writes the run's folder.
        stop: a requested stop takes effect after the step under way, which is saved.
    """

    def __init__(self, config: Any, run: EngineRun, recorder: RowRecorder, stop: StopFile) -> None:
        super().__init__(config)
        self.recorder, self.stop = recorder, stop
        self._engine_run, self._run = run, run.config
        self._saved = -1
        train = self._run.train
        self._until = Until(train.until, train.patience, recorder.success, self._run.eval.attempts)
        if recorder.until:
            self._until.load(recorder.until)
        self.ended: Ended | None = None
        self._anchored = VerlConfig.of(self._run).mode != "sync" and train.truncate_weight is None
        self._proof = PolicyMovedProof(BEFORE_UPDATE if self._anchored else OLD)
        self._proof.over = self._run.rollout.temperature != 1.0  # vLLM scores a prompt at temperature 1 only
        inner = self.replay_buffer
        inner.poll_interval = POLL_S
        needed = 1 if config.algorithm.adv_estimator in ALONE else 2
        most = self._run.train.max_skipped
        self.replay_buffer: Any = RecordingReplayBuffer(
            inner,
            recorder,
            stop,
            group_size_needed=needed,
            max_spoilt=most,
            refill_factor=self._run.train.refill_factor,
        )

    @property
    def logger(self) -> Any:
        """verl logs each step to it."""
        return self._logger

    @logger.setter
    def logger(self, tracking: Any) -> None:
        self._logger = StepLogger(tracking, self.recorder, self.stop, self._save_step, self._has_ended)

    def on_validate_begin(self) -> None:
        super().on_validate_begin()
        when = self._when()
        self.val_dataset.passes = self._passes(when)
        if when == "before" or self.config.trainer.val_only:  # the one after training is part of the last step
            self.recorder.progress.stage("evaluate before" if when == "before" else "evaluate")

    def on_validate_end(self) -> None:
        super().on_validate_end()
        when = self._when()
        self.recorder.end_evaluation(when, self._passes(when), intervals=bool(self.config.trainer.val_only))
        if not when:
            self._check_until()

    def _check_until(self) -> None:
        """After an evaluation between steps: if it ends the training, make the last one now.

        verl's loop asks after each step whether it was the last.
        """
        self.ended = self._until.check(self.global_steps, self.recorder.latest)
        self.recorder.until = self._until.state()
        if self._saved == self.global_steps:
            self._publish()
        if self.ended is not None:
            self.recorder.progress.say(f"training ended: {self.ended.text}")
            self.total_training_steps = self.global_steps
            self.on_validate_begin()
            self._validate()
            self.on_validate_end()

    def _has_ended(self) -> bool:
        return self.ended is not None

    def on_train_begin(self) -> None:
        self.recorder.folder.write_summary(self.recorder.summary())
        self.recorder.progress.stage("train", self.total_training_steps, "step")
        self.recorder.progress.advance(self.global_steps - 1)
        if self.stop.requested:
            raise stopped(f"Stopped before step {self.global_steps}.", self.stop)
        super().on_train_begin()

    def on_step_begin(self) -> None:
        super().on_step_begin()
        if self._run.train.guard == "stop" and self.recorder.warned:  # by the step before
            self.stop.ask(f"{STOPPED_BY}{self.recorder.warned[0]}")

    def _update_actor(self, batch: Any, metrics: dict[str, Any]) -> Any:
        batch = super()._update_actor(anchor_to_sampler(batch) if self._anchored else batch, metrics)
        if not self._proof.over:
            self._proof.updated(self.actor_rollout_wg, batch, self._run.rollout.max_tokens)
        return batch

    def on_step_end(self) -> None:
        super().on_step_end()  # vLLM gets the new weights
        if not self._proof.over:
            # Of the servers that sample; its clients of the asynchronous modes leave out what is asked of a prompt.
            servers = getattr(self, "standalone_server_manager", None) or self.llm_server_manager
            self._proof.synced(servers.get_client(), self.global_steps)
            self.recorder.moved = self._proof.found
            if self._proof.found:  # now, for a run that will be stopped
                self.recorder.folder.write_summary(self.recorder.summary())

    def _save_step(self) -> None:
        """Save the step that has just ended, if verl has not."""
        if self._saved != self.global_steps:
            self.on_sample_end()  # vLLM, which may sample for the next step already, gives back the trainer's memory
            self._save_checkpoint()

    def _save_checkpoint(self) -> None:
        super()._save_checkpoint()
        policy, model = policy_folder(self.recorder.folder.checkpoints, self.global_steps), self._start_model()
        if self._run.train.lora is not None:
            merge_adapters(policy, self._run.train.lora, model)
        complete_policy(policy, self._engine_run, model)
        self._saved = self.global_steps
        self._publish()

    def _start_model(self) -> str:
        return self._run.model or str(self.config.actor_rollout_ref.model.path)

    def _publish(self) -> None:
        folder, keep = self.recorder.folder, self._run.checkpoint.keep
        publish(folder.checkpoints, self.recorder.state(self.global_steps), keep=keep)

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        batch = super()._compute_advantage(batch, metrics)
        train = self._run.train
        if train.aggregation == "token" or train.loss == SAPO:  # verl's sapo has an aggregation of its own
            return batch
        return weigh_trajectories(batch, train.aggregation, self._run.rollout.max_tokens)

    def _when(self) -> str:
        if self.config.trainer.val_only:
            return "after"
        if self.global_steps == 0:
            return "before"
        return "after" if self.global_steps >= self.total_training_steps else ""

    def _passes(self, when: str) -> list[EvalPass]:
        if when:
            return evaluation_passes(self._engine_run, when)
        return self._until.passes(self.global_steps)


class StepLogger:
    """Replaces verl's ``Tracking``: records a step's metrics, then passes them on with ours added.

    Args:
        save: saves the step, unless it is saved.
        ended: whether the training ends with this step.
    """

    def __init__(
        self,
        tracking: Any,
        recorder: RowRecorder,
        stop: StopFile,
        save: Callable[[], None],
        ended: Callable[[], bool] = lambda: False,
    ) -> None:
        self._tracking, self._recorder, self._stop, self._save, self._ended = tracking, recorder, stop, save, ended

    def log(self, data: dict[str, Any], step: int) -> None:
        """verl calls it at the very end of a step.

        Raises:
            RunStopped: it was requested; the step is saved.
        """
        if "training/global_step" not in data:  # the evaluation before training
            self._tracking.log(data=data, step=step)
            return
        stopping = self._stop.requested  # asked once: a later request takes effect after the next step
        if stopping or self._ended():
            self._save()  # what is saved includes the step's metrics, so it comes before the recorder's end of the step
        self._tracking.log(data={**data, **self._recorder.end_step(step, data)}, step=step)
        if stopping:
            raise stopped(f"Stopped after step {step}, which is saved.", self._stop)

    def finish(self, exit_code: int = 0) -> None:
        self._tracking.finish(exit_code=exit_code)
