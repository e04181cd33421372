"""Logs metrics: always to ``metrics.jsonl``, and on request to TensorBoard, Weights & Biases or trackio.

The trackers are optional packages, imported when a run names them; `check_loggers` refuses a missing one before the run
starts. Each keeps its files in the run's folder or uses the folder's name as the run's, so that a resumed run goes on
in the same place.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol

from rlfactory_core.errors import MissingExtraError, UsageError, nearest
from rlfactory_core.reporting.folder import RunFolder
from rlfactory_core.reporting.progress import count_text

PROJECT = "rlfactory"  # the project's name in trackers that have projects


class Tracker(Protocol):
    """Gets each step's finite metrics."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


class TensorBoardLogger:
    """Event files in the run's ``tensorboard/``, written with TensorBoard's own writer, which needs no torch."""

    def __init__(self, folder: RunFolder, resume_step: int | None) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._event, self._summary = event_pb2.Event, summary_pb2.Summary
        self._writer = EventFileWriter(str(folder.path / "tensorboard"))
        if resume_step is not None:  # tells TensorBoard to drop later steps of the interrupted run
            start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
            self._writer.add_event(self._event(step=resume_step + 1, session_log=start))

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        values = [self._summary.Value(tag=name, simple_value=value) for name, value in metrics.items()]
        self._writer.add_event(self._event(wall_time=time.time(), step=step, summary=self._summary(value=values)))
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class WandbLogger:
    """Weights & Biases, or trackio, which has its interface.

    Mode, place and key come from their own environment variables, such as ``WANDB_MODE=offline`` and ``TRACKIO_DIR``.
    """

    def __init__(self, package: str, folder: RunFolder, config: Mapping[str, Any]) -> None:
        tracker = import_module(package)
        own = {"id": folder.name, "dir": str(folder.path)} if package == "wandb" else {"embed": False}
        run = tracker.init(project=PROJECT, name=folder.name, config=dict(config), resume="allow", **own)
        self._run = run if package == "wandb" else tracker  # trackio would finish its run again at exit

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        self._run.finish()


TRACKERS = ("tensorboard", "wandb", "trackio")  # each is also the name of its package


class Loggers:
    """``metrics.jsonl``, with one line a step, and trackers as one logger."""

    def __init__(self, folder: RunFolder, trackers: Sequence[Tracker]) -> None:
        self._folder, self._trackers = folder, trackers

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._folder.append_metrics(step, metrics)
        self._track(step, metrics)

    def log_more(self, step: int, metrics: Mapping[str, float]) -> None:
        """Further metrics of the last step."""
        self._folder.add_metrics(step, metrics)
        self._track(step, metrics)

    def _track(self, step: int, metrics: Mapping[str, float]) -> None:
        numbers = {name: float(value) for name, value in metrics.items() if math.isfinite(value)}  # drawn as gaps
        for tracker in self._trackers:
            tracker.log(step, numbers)

    def close(self) -> None:
        for tracker in self._trackers:
            tracker.close()


def check_loggers(names: Sequence[str]) -> None:
    """Check the names before a run starts.

    Raises:
        UsageError: a name is unknown; the message has the nearest one.
        MissingExtraError: a package is not installed; the message has the command.
    """
    for name in names:
        if name not in TRACKERS:
            raise UsageError(f"unknown logger '{name}'. {nearest(name, TRACKERS)} (metrics.jsonl is always written.)")
        if find_spec(name) is None:
            raise MissingExtraError(
                f"logger '{name}' needs the package {name}, which is not installed. "
                f"Install it: python -m pip install {name}"
            )


def open_loggers(
    names: Sequence[str],
    folder: RunFolder,
    config: Mapping[str, Any],
    resume_step: int | None = None,
    say: Callable[[str], None] | None = None,
) -> Loggers:
    """``metrics.jsonl`` and the named trackers.

    Args:
        config: the resolved configuration as plain data, for trackers that show it.
        resume_step: the last step that a resumed run keeps; later steps are deleted from the folder. None: a new run.
        say: shows a warning; None: nothing does.

    Raises:
        UsageError, MissingExtraError: as `check_loggers`.
    """
    check_loggers(names)
    missing = folder.cut_after(resume_step) if resume_step is not None else 0
    if missing and say is not None:
        say(f"warning: {folder.metrics} has no line for {count_text(missing, 'step')} that the checkpoint has done.")
    trackers = (
        TensorBoardLogger(folder, resume_step) if name == "tensorboard" else WandbLogger(name, folder, config)
        for name in names
    )
    return Loggers(folder, list(trackers))
