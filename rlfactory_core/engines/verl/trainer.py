"""verl's trainers, watched: the same classes, with our record keeping at their hooks."""

from __future__ import annotations

from typing import Any

from verl.trainer.ppo.v1 import get_trainer_cls
from verl.trainer.ppo.v1.trainer_base import PPOTrainer

from rlfactory_core.engines.verl.checkpoints import publish
from rlfactory_core.engines.verl.events import StopFile, stopped
from rlfactory_core.engines.verl.recorder import Recorder
from rlfactory_core.engines.verl.replay import Recording
from rlfactory_core.evaluation import EvalPass, eval_passes
from rlfactory_core.task_runtime import TaskRuntime

POLL_S = 0.1  # verl's own, 2 s, is as long as a small step
ALONE = ("gae", "reinforce_plus_plus")  # estimators that judge an attempt by itself


def watched(mode: str) -> type[Any]:
    """verl's trainer class of a mode, with `Watching` before it."""
    return type("WatchedTrainer", (Watching, get_trainer_cls(mode)), {})


class Watching(PPOTrainer):
    """Stands before the trainer of a mode (verl 0.9): overrides documented hooks, and calls them all.

    Args:
        runtime: the run's task; only asked, not opened.
        recorder: writes the run's folder.
        stop: asked once the user, or a part of the run, wants a stop after the step under way.
    """

    def __init__(self, config: Any, runtime: TaskRuntime, recorder: Recorder, stop: StopFile) -> None:
        super().__init__(config)
        self.recorder, self.stop = recorder, stop
        self._run = runtime.config
        self._controls = tuple(runtime.task.controls())
        self._saved = -1
        inner = self.replay_buffer
        inner.poll_interval = POLL_S
        needed = 1 if config.algorithm.adv_estimator in ALONE else 2
        most = self._run.train.max_skipped
        self.replay_buffer: Any = Recording(inner, recorder, stop, group_size_needed=needed, max_spoilt=most)

    @property
    def logger(self) -> Any:
        """verl logs each step here."""
        return self._logger

    @logger.setter
    def logger(self, tracking: Any) -> None:
        self._logger = StepLogger(tracking, self.recorder, self.stop)

    def on_validate_begin(self) -> None:
        super().on_validate_begin()
        when = self._when()
        self.val_dataset.passes = self._passes(when)
        if when == "before" or self.config.trainer.val_only:  # the one after training is part of verl's last step
            self.recorder.progress.stage("evaluate before" if when == "before" else "evaluate")

    def on_validate_end(self) -> None:
        super().on_validate_end()
        when = self._when()
        self.recorder.evaluated(when, self._passes(when), intervals=bool(self.config.trainer.val_only))

    def on_train_begin(self) -> None:
        self.recorder.folder.write_summary(self.recorder.summary(0))
        self.recorder.progress.stage("train", self.total_training_steps, "step")
        self.recorder.progress.advance(self.global_steps - 1)
        if self.stop.asked:
            raise stopped(f"Stopped before step {self.global_steps}.", self.stop)
        super().on_train_begin()

    def on_step_end(self) -> None:
        if self.stop.asked and self._saved != self.global_steps:
            self._save_checkpoint()
        super().on_step_end()

    def _save_checkpoint(self) -> None:
        super()._save_checkpoint()
        self._saved = self.global_steps
        folder, keep = self.recorder.folder, self._run.checkpoint.keep
        publish(folder.checkpoints, self.recorder.state(self.global_steps), keep=keep)

    def _when(self) -> str:
        if self.config.trainer.val_only:
            return "after"
        if self.global_steps == 0:
            return "before"
        return "after" if self.global_steps >= self.total_training_steps else ""

    def _passes(self, when: str) -> list[EvalPass]:
        if not when:
            return [EvalPass(f"eval-{self.global_steps}")]
        attempts = self._run.eval.attempts if self._run.eval.sampled else 0
        return eval_passes(when, attempts=attempts, controls=self._controls if when == "after" else ())


class StepLogger:
    """In the place of verl's ``Tracking``: a step's metrics go to the run's folder, then on, ours among them."""

    def __init__(self, tracking: Any, recorder: Recorder, stop: StopFile) -> None:
        self._tracking, self._recorder, self._stop = tracking, recorder, stop

    def log(self, data: dict[str, Any], step: int) -> None:
        """The last thing that verl does in a step.

        Raises:
            RunStopped: it was asked for; the step is saved.
        """
        if "training/global_step" not in data:  # the evaluation before training
            self._tracking.log(data=data, step=step)
            return
        self._tracking.log(data={**data, **self._recorder.step(step, data)}, step=step)
        if self._stop.asked:
            raise stopped(f"Stopped after step {step}, which is saved.", self._stop)

    def finish(self, exit_code: int = 0) -> None:
        self._tracking.finish(exit_code=exit_code)
