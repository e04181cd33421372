"""Writes the record of a run for all engines: metrics, trajectories, evaluations and the numbers of the summary."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from rlfactory_core.algo.evaluation import EvalPass, eval_passes, summarise
from rlfactory_core.algo.guard import Guard
from rlfactory_core.algo.guard_start import ATTEMPTS, START, Remedies
from rlfactory_core.algo.guard_table import Finding
from rlfactory_core.algo.masking import masked_by, masking_text
from rlfactory_core.algo.settings import TrainConfig
from rlfactory_core.algo.stages import GRPO, STAGE_METHODS
from rlfactory_core.engines.base import EngineRun
from rlfactory_core.engines.settings import EngineSettings
from rlfactory_core.reporting.folder import RunFolder
from rlfactory_core.reporting.loggers import Loggers
from rlfactory_core.reporting.metrics import component_metric, group_metrics, tool_metrics
from rlfactory_core.reporting.progress import Progress
from rlfactory_core.reporting.trajectories import StoredTrajectory
from rlfactory_core.tasks.setup import Tasks
from rlfactory_core.tasks.solving import is_solved
from rlfactory_core.training.machine_use import MachineUse
from rlfactory_core.training.playing import GroupInFlight
from rlfactory_core.training.proof import Moved
from rlfactory_core.training.stopping import SAMPLED, Ended
from rlfactory_core.types import Group

STAGE = "stage"  # in a row of the metrics of a run of several stages: its number, from 1
ADVICE = "advice"  # in summary.json


class Recorder:
    """Records a run in its folder; only one process of a run has a recorder.

    Args:
        success: the name of the score that means success.
        loggers: get each step's metrics; not needed for an evaluation.
        earlier: the `totals` at the checkpoint from which a resumed run continues; None in a new run.
        weights: of the scorers, by name.
        opinions: the names of the scorers that a model decides; None: see `Guard`.
        top: the highest reward of an attempt; None: see `Guard`.
        methods: ``train.method`` of each stage.
        remedies: what the advice of each stage names to a policy that earns nothing.
    """

    def __init__(
        self,
        folder: RunFolder,
        progress: Progress,
        success: str,
        loggers: Loggers | None = None,
        earlier: Mapping[str, float] | None = None,
        weights: Mapping[str, float] = {},
        opinions: Collection[str] | None = None,
        top: float | None = None,
        methods: Sequence[str] = (GRPO,),
        remedies: Sequence[Remedies] = (),
    ) -> None:
        self.folder, self.progress, self.success, self.loggers = folder, progress, success, loggers
        self.totals: Mapping[str, float] = earlier or {}
        self.results: dict[str, dict[str, float]] = {}  # "before", "after" -> the flat map
        if earlier is not None:
            self.results["before"] = folder.read_summary().get("eval", {}).get("before", {})
        self._started = time.perf_counter()
        self._machine = MachineUse()
        self._reported: set[str] = set()  # sources of masking faults that a line has been shown for
        metrics = {component_metric(name): weight for name, weight in weights.items()}
        self._methods = methods
        self._guards = [  # a stage is not compared with what came before it
            Guard(metrics, opinions, top, component_metric(success), advice, STAGE_METHODS[name])
            for name, advice in zip(methods, remedies or [Remedies()] * len(methods), strict=True)
        ]
        self.stage = 0
        self._advice = ""  # to a policy that earns nothing, which is told once
        self._measured: list[Mapping[str, float]] = []  # of each pass of an evaluation
        self._earlier: list[str] = []  # what the guard found before the resume
        if earlier is not None:
            self._advice = folder.read_summary().get(ADVICE, "")
            for row in folder.read_metrics():
                self.stage = min(int(row.get(STAGE) or 1), len(methods)) - 1
                new = [each for each in self._guard.add(row)[1] if each.name != START]
                self._earlier += [f"step {row['step']}: {finding.text}" for finding in new]
        self._held_out: dict[str, str] = {}  # what the evaluations show, by its beginning
        self.moved: Moved | None = None  # the last comparison of the policy-moved proof
        self.left_out: Mapping[str, Sequence[str]] = {}  # train, eval -> the samples whose prompts leave no room
        self.warned: list[str] = []  # what the guard has newly found; in this process

    @property
    def _guard(self) -> Guard:
        return self._guards[self.stage]

    @property
    def _plays(self) -> bool:
        return STAGE_METHODS[self._methods[self.stage]].plays

    def step(
        self, step: int, groups: Sequence[Group], metrics: Mapping[str, float], texts: Iterable[StoredTrajectory]
    ) -> Sequence[str]:
        """Record a finished training step, and show it. Returns what the guard has newly found."""
        warned = len(self.warned)
        if not self._plays:  # these are rates of demonstrations
            metrics = {name: value for name, value in metrics.items() if name != "sampled_tokens_s"}
        if len(self._methods) > 1:
            metrics = {STAGE: self.stage + 1.0, **metrics}
        self.totals = self.totals_with(groups if self._plays else (), metrics)
        self.folder.write_stored(step, texts)
        metrics = self._guarded(step, metrics)
        if self.loggers is not None:
            self.loggers.log(step, {**self._machine.numbers(), **metrics})
        names = ["reward", self.success] if self._plays else ["nll", "eval/called"]
        names += [f"eval/{self.success}", "teacher_kl", "sampled_tokens_s"]
        names += ["masked"] if self.totals["masked"] else []
        self.progress.advance(1, **{name: metrics[name] for name in names if name in metrics})
        self._report_masked(f"step {step}", groups)
        self._report_evaluation(step, metrics)
        return self.warned[warned:]

    def evaluated_late(self, step: int, metrics: Mapping[str, float]) -> None:
        """Add what an evaluation shows to a step that was recorded without it."""
        if self.loggers is not None:
            self.loggers.log_more(step, metrics)
        self._report_evaluation(step, metrics)

    def _report_evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
        self._report_held_out(f"the evaluation after step {step}", _under("eval/", metrics))
        if masked := _under("eval/masked/", metrics):
            found = ", ".join(f"{source} {count:.0f}" for source, count in masked.items())
            self.progress.say(f"warning: the evaluation after step {step}: some trajectories were masked: {found}")

    def _guarded(self, step: int, metrics: Mapping[str, float]) -> dict[str, float]:
        """The metrics with ``guard/<name>`` for all that the guard finds; says what is new."""
        found, new = self._guard.add(metrics)
        for finding in new:
            if finding.name == START:
                self._advise(f"step {step}: {finding.text}")
                continue
            self.warned.append(f"step {step}: {finding.text}")
            self.progress.say(f"warning: {self.warned[-1]} Look closer: rlfactory trace {self.folder.path}")
        if new:  # now, for a run that will be stopped
            self.folder.write_summary({**self.folder.read_summary(), "warnings": self.warnings()})
        return {**metrics, **{f"guard/{finding.name}": 1.0 for finding in found}}

    def advise(self, where: str) -> None:
        """Say what an evaluation shows of a policy that earns nothing, and what would help."""
        rows, self._measured = self._measured, []
        if self._plays and (text := self._guard.measured(rows)):
            self._advise(f"{where}: {text}")

    def _advise(self, text: str) -> None:
        if not self._advice:
            self._advice = text
            self.progress.say(f"warning: {text}")
            self.folder.write_summary({**self.folder.read_summary(), ADVICE: text, "warnings": self.warnings()})

    def warnings(self) -> list[str]:
        """All that was found so far, by the guard and in the evaluations."""
        return [*filter(None, [self._advice]), *self._earlier, *self.warned, *self._held_out.values()]

    def evaluated(
        self,
        when: str,
        how: EvalPass,
        groups: Sequence[Group],
        texts: Iterable[StoredTrajectory],
        *,
        intervals: bool = False,
    ) -> dict[str, float]:
        """Record a finished pass of the evaluation ``when`` ("before" or "after"). Returns its results."""
        found = summarise(groups, success=self.success, prefix=how.prefix, intervals=intervals)
        if not how.prefix and (left_out := self.left_out.get("eval")):
            found["left_out"] = len(left_out)
        self.results.setdefault(when, {}).update(found)
        if not how.control:
            attempts = [each for group in groups for each in group.trajectories]
            self._measured.append({**group_metrics(groups), **tool_metrics(attempts), ATTEMPTS: len(attempts)})
        self.folder.write_stored(how.name, texts)
        self._reported.clear()
        where = f"the evaluation {how.name}"
        self._report_masked(where, groups)
        if not how.prefix:
            self._report_held_out(where, found)
        if when == "after" and not how.control:
            self._report_found(where, self._guard.held_out_gaps(found, how.prefix))
        return found

    def _report_held_out(self, where: str, now: Mapping[str, float]) -> None:
        self._report_found(where, self._guard.divergence(self.results.get("before", {}), now))

    def _report_found(self, where: str, found: Iterable[Finding]) -> None:
        for finding in found:
            self._held_out[f"{finding.name}/{finding.subject}"] = text = f"{where}: {finding.text}"
            self.progress.say(f"warning: {text} Look closer: rlfactory trace {self.folder.path}")

    def _apart(self) -> list[str]:
        """Whether training succeeds far more often than held-out samples do, at the same temperature if measured."""
        after = self.results.get("after", {})
        prefix = SAMPLED if f"{SAMPLED}{self.success}" in after else ""
        return self._guard.apart(after.get(f"{prefix}{self.success}"), after.get(f"{prefix}samples", 0))

    def _report_masked(self, where: str, groups: Sequence[Group]) -> None:
        """Say why trajectories were masked, when a source of it is new or all of them were."""
        trajectories = [trajectory for group in groups for trajectory in group.trajectories]
        sources = masked_by(trajectories)
        if not sources.keys() <= self._reported or 0 < len(trajectories) == sources.total():
            self.progress.say(f"warning: {where}: {masking_text(trajectories)}. They are left out.")
        self._reported |= sources.keys()

    def totals_with(self, groups: Sequence[Group], metrics: Mapping[str, float]) -> dict[str, float]:
        """The sums over all steps so far and this one: tokens, seconds, faults by kind, masked attempts by source."""
        totals = Counter[str](self.totals)
        trajectories = [trajectory for group in groups for trajectory in group.trajectories]
        totals["sampled_tokens"] += sum(trajectory.num_sampled for trajectory in trajectories)
        totals["trajectories"] += len(trajectories)
        totals["masked"] += sum(trajectory.masked for trajectory in trajectories)
        totals.update(f"masked/{source}" for source in masked_by(trajectories).elements())
        totals["replays"] += int(metrics.get("replays", 0))
        totals["trained_tokens"] += int(metrics["trained_tokens"])
        totals["train_s"] += metrics.get("step_s", 0.0)  # type: ignore[assignment]
        totals.update(f"faults/{fault.kind.value}" for trajectory in trajectories for fault in trajectory.faults)
        return dict(totals)

    def seconds(self) -> float:
        """Duration of the run, without the time between a stop and a resume."""
        return self.totals.get("seconds", 0.0) + time.perf_counter() - self._started

    def totals_now(self) -> dict[str, float]:
        """The totals of a checkpoint."""
        return {**self.totals, "seconds": self.seconds()}

    def summary(self, steps: int | None = None, ended: Ended | None = None) -> dict[str, Any]:
        """The part of ``summary.json`` that all engines share; see also `run_facts`.

        Args:
            steps: those that were done; None: the training has not ended, and only its metrics say how far it is.
        """
        results: dict[str, Any] = {
            **({"policy_moved": asdict(self.moved)} if self.moved else {}),
            **({"left_out": self.left_out} if self.left_out else {}),
            **({ADVICE: self._advice} if self._advice else {}),
            "success": self.success,
            "eval": {when: self.results.get(when, {}) for when in ("before", "after")},
        }
        if steps is None:
            return {**results, "warnings": self.warnings()}
        totals = self.totals
        return {
            "steps": steps,
            **({"ended": asdict(ended)} if ended else {}),
            "seconds": round(self.seconds(), 3),
            "train_seconds": round(totals.get("train_s", 0), 3),
            **{name: totals.get(name, 0) for name in ("sampled_tokens", "trained_tokens", "trajectories", "replays")},
            "faults": _under("faults/", totals),
            "masked": _under("masked/", totals),
            "warnings": [*self.warnings(), *self._guard.whole(), *self._apart()],
            **results,
        }


class StepClock:
    """Measures the phases of a step in one process."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._times: dict[str, float] = {}

    def played(self, taken: Sequence[GroupInFlight], groups: Sequence[Group]) -> None:
        """All groups are there: those that were ``taken``, and perhaps others in their place."""
        now = time.perf_counter()
        ended = now if len(groups) > len(taken) else max(each.ended for each in taken)
        self._times["rollout_wait_s"] = now - self._start
        self._times["rollout_s"] = ended - min(each.started for each in taken)

    @contextmanager
    def update(self) -> Iterator[None]:
        """Measure the update that is made within the context."""
        start = time.perf_counter()
        yield
        self._times["update_s"] = time.perf_counter() - start

    def metrics(self, groups: Sequence[Group], processes: int) -> dict[str, float]:
        """Of the step; the tokens of this process's groups are scaled to all processes."""
        sampled = sum(trajectory.num_sampled for group in groups for trajectory in group.trajectories)
        rate = sampled * processes / max(self._times["rollout_s"], 1e-9)
        return {**self._times, "sampled_tokens_s": rate, "step_s": time.perf_counter() - self._start}


def step_metrics(step: int, groups: Sequence[Group], train: TrainConfig) -> dict[str, float]:
    """What a step's groups show, and how old the weights were that sampled them."""
    trajectories = [trajectory for group in groups for trajectory in group.trajectories]
    lag = [
        step - 1 - version
        for each in trajectories
        for turn in each.turns
        for version in turn.versions or [turn.version] * len(turn.sampled_ids)
    ]
    refilled = float(len(groups) - train.prompts_per_step)
    return {
        **group_metrics(groups),
        **tool_metrics(trajectories),
        **({"refilled_groups": refilled, "attempts": len(trajectories)} if train.refill else {}),
        "staleness": sum(lag) / len(lag) if lag else 0.0,
        "staleness_max": float(max(lag, default=0)),
    }


def _under(prefix: str, totals: Mapping[str, float]) -> dict[str, float]:
    return {name.removeprefix(prefix): number for name, number in totals.items() if name.startswith(prefix)}


def run_facts(config: EngineSettings) -> dict[str, Any]:
    """The part of ``summary.json`` that follows from the configuration."""
    model = config.model or "the plugin's own tiny model"
    return {"plugin": config.plugin, "engine": config.engine, "model": model, "seed": config.seed}


def remedies(stages: Sequence[EngineSettings], tasks: Tasks, command: str = "") -> list[Remedies]:
    """What advice to each stage of a run can name; ``command`` starts another run like it."""
    shown = all(is_solved(setup.task) for setup in tasks.by_name.values())
    taught, found = stages[0].model is None, []  # a tiny model has learnt from demonstrations before it is opened
    for config in stages:
        limits = config.rollout
        found.append(
            Remedies(
                command,
                config.train.group_size,
                demonstrated=shown,
                taught=taught,
                turn_tokens=limits.max_turn_tokens,
                tokens=limits.max_tokens,
            )
        )
        taught = taught or not STAGE_METHODS[config.train.method].plays
    return found


def evaluation_passes(run: EngineRun, when: str) -> list[EvalPass]:
    """The passes of the evaluation "before" or "after" training; only the latter plays the task's controls."""
    settings = run.config.eval
    controls = run.tasks.controls if when == "after" else ()
    return eval_passes(when, attempts=settings.attempts if settings.sampled else 0, controls=controls)
