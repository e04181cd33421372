"""Writes the run's folder from inside verl's trainer: metrics, trajectories, evaluations, the summary's numbers."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rlfactory_core.engines.verl.checkpoints import RecorderState
from rlfactory_core.engines.verl.metrics import common_metrics, training_metrics
from rlfactory_core.engines.verl.replay import Row
from rlfactory_core.evaluation import EvalPass, summarise
from rlfactory_core.reporting.folder import RunFolder
from rlfactory_core.reporting.loggers import MetricsLogger
from rlfactory_core.reporting.metrics import all_masked, eval_metrics
from rlfactory_core.reporting.progress import Progress
from rlfactory_core.types import Group


class Recorder:
    """Collects what verl's trainer plays, and writes it when a step or an evaluation is whole.

    Args:
        success: the score that tells whether an attempt succeeded.
        earlier: of the checkpoint that a resumed run goes on from; a step that was not logged any more is logged now.
    """

    def __init__(
        self,
        folder: RunFolder,
        loggers: MetricsLogger,
        progress: Progress,
        success: str,
        earlier: RecorderState | None = None,
    ) -> None:
        self.folder, self.progress, self.success = folder, progress, success
        self.loggers = loggers
        self.totals = Counter[str](earlier.totals if earlier else {})
        self.results: dict[str, dict[str, float]] = {}  # "before", "after" -> the flat map
        if earlier is not None:
            self.results = folder.read_summary().get("eval", {})
            if earlier.metrics and all(row.get("step") != earlier.step for row in folder.read_metrics()):
                loggers.log(earlier.step, earlier.metrics)
        self._step: list[Row] = []
        self._evaluation: list[Row] = []
        self._eval_metrics: dict[str, float] = {}
        self._started = time.perf_counter()

    def step_rows(self, rows: Sequence[Row]) -> None:
        self._step += rows

    def evaluation_rows(self, rows: Sequence[Row]) -> None:
        self._evaluation += rows

    def evaluated(self, when: str, passes: Sequence[EvalPass], *, intervals: bool = False) -> None:
        """An evaluation is whole: ``when`` is "before", "after" or "" for one in between."""
        by_pass: defaultdict[str, list[Row]] = defaultdict(list)
        for row in self._evaluation:
            by_pass[row.note.partition(":")[0]].append(row)
        self._evaluation = []
        results: dict[str, float] = {}
        for how in passes:
            rows = by_pass[how.name]
            groups = _groups(rows, key=lambda row: int(row.note.rpartition("/")[2]))
            if when:
                results |= summarise(groups, success=self.success).flat(how.prefix, intervals=intervals)
                self.folder.write_stored(how.name, (row.stored for row in sorted(rows, key=_place)))
            if not how.prefix:
                self._eval_metrics = eval_metrics(groups)
        if when:
            self.results[when] = results

    def step(self, step: int, verl: Mapping[str, Any]) -> dict[str, float]:
        """A step is whole: write its metrics and trajectories. Returns the metrics, ours and verl's."""
        rows, self._step = self._step, []
        groups = _groups(rows, key=lambda row: row.prompt)
        metrics = {**training_metrics(groups), **self._eval_metrics, **common_metrics(verl, rows)}
        self._eval_metrics = {}
        self.totals = self._counted(groups, metrics)
        self.folder.write_stored(step, (row.stored for row in sorted(rows, key=_place)))
        self.loggers.log(step, metrics)
        names = ("reward", self.success, f"eval/{self.success}")
        self.progress.advance(1, **{name: metrics[name] for name in names if name in metrics})
        lost = all_masked(groups)
        if lost:
            self.progress.say(f"warning: step {step}: {lost}")
        return metrics

    def _counted(self, groups: Sequence[Group], metrics: Mapping[str, float]) -> Counter[str]:
        totals = Counter(self.totals)
        trajectories = [trajectory for group in groups for trajectory in group.trajectories]
        totals["sampled_tokens"] += sum(trajectory.num_sampled for trajectory in trajectories)
        totals["trained_tokens"] += int(metrics["trained_tokens"])
        totals["train_s"] += metrics.get("step_s", 0.0)  # type: ignore[assignment]
        for trajectory in trajectories:
            for fault in trajectory.faults:
                totals[f"faults/{fault.kind.value}"] += 1
        return totals

    def state(self, step: int) -> RecorderState:
        """At a checkpoint, which verl writes before it logs the step: what is known of the step goes with it.

        The step's trajectories are written now, so that a run that is killed before the step is logged has them.
        """
        groups = _groups(self._step, key=lambda row: row.prompt)
        metrics = {**training_metrics(groups), **common_metrics({}, self._step)}
        self.folder.write_stored(step, (row.stored for row in sorted(self._step, key=_place)))
        return RecorderState(step, {**self._counted(groups, metrics), "seconds": self.seconds()}, metrics)

    def seconds(self) -> float:
        """Of the run, without the time between a stop and a resume."""
        return self.totals["seconds"] + time.perf_counter() - self._started

    def summary(self, steps: int) -> dict[str, Any]:
        """What ``summary.json`` gets from here."""
        faults = {name.removeprefix("faults/"): n for name, n in self.totals.items() if name.startswith("faults/")}
        return {
            "steps": steps,
            "seconds": round(self.seconds(), 3),
            "train_seconds": round(self.totals["train_s"], 3),
            "sampled_tokens": self.totals["sampled_tokens"],
            "trained_tokens": self.totals["trained_tokens"],
            "faults": faults,
            "success": self.success,
            "eval": {"before": self.results.get("before", {}), "after": self.results.get("after", {})},
        }


def _groups(rows: Iterable[Row], key: Any) -> list[Group]:
    members: defaultdict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        members[key(row)].append(row)
    return [
        Group(found[0].stored.trajectory.sample, tuple(row.stored.trajectory for row in sorted(found, key=_place)))
        for _, found in sorted(members.items())
    ]


def _place(row: Row) -> tuple[str, int, int]:
    name, _, index = row.note.rpartition("/")
    return name, int(index), row.stored.trajectory.attempt
