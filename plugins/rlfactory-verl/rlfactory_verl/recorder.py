"""Records a run inside verl's trainer, which gives trajectories in any order and metrics at a step's end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from rlfactory_core.algo import EvalPass, Remedies, summarise
from rlfactory_core.engines import EngineSettings
from rlfactory_core.reporting import Loggers, RunFolder, StoredTrajectory, eval_metrics
from rlfactory_core.reporting.progress import Progress
from rlfactory_core.training import Ended, Recorder, run_facts
from rlfactory_core.types import Group, Trajectory
from rlfactory_verl.checkpoints import RecorderState
from rlfactory_verl.config import VerlConfig
from rlfactory_verl.metrics import common_metrics, training_metrics
from rlfactory_verl.replay import Row
from rlfactory_verl.rollout_request import Position


class RowRecorder(Recorder):
    """Collects rows, and records them when a step or an evaluation is complete.

    Args:
        earlier: the state in the checkpoint from which a resumed run continues; its step is logged now if it was not.
        facts: stand in every summary, also in that of a run that is stopped; see `verl_facts`.
    """

    def __init__(
        self,
        folder: RunFolder,
        loggers: Loggers,
        progress: Progress,
        success: str,
        earlier: RecorderState | None = None,
        weights: Mapping[str, float] = {},
        opinions: Collection[str] | None = None,
        top: float | None = None,
        remedies: Sequence[Remedies] = (),
        facts: Mapping[str, Any] = {},
    ) -> None:
        if earlier and earlier.metrics and all(row.get("step") != earlier.step for row in folder.read_metrics()):
            loggers.log(earlier.step, earlier.metrics)
        totals = None if earlier is None else earlier.totals
        super().__init__(folder, progress, success, loggers, totals, weights, opinions, top, remedies=remedies)
        self._facts = facts
        self._step: list[Row] = []
        self._evaluation: list[Row] = []
        self._eval_metrics: dict[str, float] = {}
        self._replays = 0
        self.latest: dict[str, float] = {}  # the results of the last evaluation, as in the summary
        self.until: Mapping[str, Any] = earlier.until if earlier else {}  # for checkpoints, see `Until.state`

    def step_rows(self, rows: Sequence[Row]) -> None:
        self._step += rows

    def replayed(self, text: str) -> None:
        """A batch of the step was not trained on, and is replaced; the text says why."""
        self._replays += 1
        self.progress.say(text)

    def evaluation_rows(self, rows: Sequence[Row]) -> None:
        self._evaluation += rows

    def end_evaluation(self, when: str, passes: Sequence[EvalPass], *, intervals: bool = False) -> None:
        """``when`` is "before", "after" or "" for an evaluation between two steps."""
        rows, self._evaluation = _in_order(self._evaluation), []
        self.latest = {}
        for how in passes:
            found = [row for row in rows if row.position.part == how.name]
            groups = _groups(found)
            self.latest |= summarise(groups, success=self.success, prefix=how.prefix)
            if when:
                self.evaluated(when, how, groups, _stored(found), intervals=intervals)
            if not how.prefix:
                self._eval_metrics = eval_metrics(groups)
        if when == "before":
            self.advise("before training")

    def end_step(self, step: int, verl: Mapping[str, Any]) -> dict[str, float]:
        """Returns the step's metrics, ours and verl's."""
        rows, self._step = _in_order(self._step), []
        groups = _groups(rows)
        metrics = {**training_metrics(groups), **self._eval_metrics, **common_metrics(verl, groups)}
        metrics["replays"] = float(self._replays)
        self._eval_metrics, self._replays = {}, 0
        self.step(step, groups, metrics, _stored(rows))
        return metrics

    def summary(self, steps: int | None = None, ended: Ended | None = None) -> dict[str, Any]:
        return {**self._facts, **super().summary(steps, ended)}

    def state(self, step: int) -> RecorderState:
        """The state for a checkpoint, with the metrics of the step, which verl logs only after the checkpoint.

        The step's trajectories are written now, so that they exist even if the run is killed before the log.
        """
        rows = _in_order(self._step)
        groups = _groups(rows)
        metrics = {**training_metrics(groups), **common_metrics({}, groups), "replays": float(self._replays)}
        self.folder.write_stored(step, _stored(rows))
        totals = {**self.totals_with(groups, metrics), "seconds": self.seconds()}
        return RecorderState(step, totals, metrics, self.until)


def verl_facts(config: EngineSettings) -> dict[str, Any]:
    """The part of ``summary.json`` that follows from the configuration."""
    verl = VerlConfig.of(config)
    return {**run_facts(config), "mode": verl.mode, "gpus": verl.gpus * verl.nodes}


def _in_order(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row.position, row.stored.trajectory.attempt))


def _groups(rows: Sequence[Row]) -> list[Group]:
    """The groups of ordered rows."""
    members: defaultdict[Position, list[Trajectory]] = defaultdict(list)
    for row in rows:
        members[row.position].append(row.stored.trajectory)
    return [Group(each[0].sample, tuple(each)) for each in members.values()]


def _stored(rows: Iterable[Row]) -> Iterator[StoredTrajectory]:
    return (row.stored for row in rows)
