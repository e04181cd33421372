"""Ends a training before its last step: by its held-out results, by what it loses to faults, or on request."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import inf
from typing import Any, Literal, NoReturn

from rlfactory_core.algo.evaluation import EvalPass, eval_passes
from rlfactory_core.algo.guard import STOPPED_BY
from rlfactory_core.algo.masking import LONGEST_PAUSE_S, PAUSE_S, Counts, LostAttempts, in_vain, too_many
from rlfactory_core.algo.settings import TrainConfig
from rlfactory_core.engines.base import Processes
from rlfactory_core.errors import ConfigError, RunStopped, TrainingError, nearest
from rlfactory_core.reporting.progress import Progress
from rlfactory_core.types import Group, Trajectory
from rlfactory_core.utils.backoff import backoff_s
from rlfactory_core.utils.interrupt import StopRequest

SAMPLED = "sampled/"


@dataclass(frozen=True, slots=True)
class Ended:
    """Why a training has ended, for ``summary.json``."""

    by: Literal["steps", "until", "patience", "guard"]
    text: str


@dataclass(slots=True)
class Until:
    """Follows the evaluations between steps.

    Args:
        goals: held-out metric, as in ``eval.after`` of the summary -> the least value that ends the training.
        patience: evaluations in a row without a new best that end it; 0: they never do.
        success: the metric that patience follows if no goal is a greedy one.
        attempts: a sample, of the pass at temperature 1.
    """

    goals: Mapping[str, float]
    patience: int
    success: str
    attempts: int = 1
    _best: dict[str, float] = field(default_factory=dict)
    _waited: int = 0  # evaluations since one of the metrics had a new best
    top: float = -inf  # the best greedy success so far, also of earlier stages

    def passes(self, step: int) -> list[EvalPass]:
        """Those of the evaluation after a step: greedy, and at temperature 1 if a goal needs it."""
        sampled = any(name.startswith(SAMPLED) for name in self.goals)
        return eval_passes(str(step), attempts=self.attempts if sampled else 0, controls=())

    def possible(self, found: Mapping[str, float]) -> bool:
        """True if all greedy goals are met, so that the sampled pass is needed to decide."""
        return reached({name: goal for name, goal in self.goals.items() if not name.startswith(SAMPLED)}, found)

    def check(self, step: int, found: Mapping[str, float]) -> Ended | None:
        """Whether the training ends with the evaluation after this step, whose results are ``found``.

        An evaluation that has lost too many attempts to faults says nothing: the others are a selection.
        """
        played = {"": found.get("samples", 0), SAMPLED: self.attempts * found.get(f"{SAMPLED}samples", 0)}
        if any(too_many(found.get(f"{prefix}masked", 0), attempts) for prefix, attempts in played.items()):
            return None
        if self.goals and reached(self.goals, found):
            goals = (f"{name} {found[name]:.3f} (train.until: {goal:g})" for name, goal in self.goals.items())
            return Ended("until", f"reached {', '.join(goals)} after step {step}")
        followed = [name for name in self.goals if not name.startswith(SAMPLED)] or [self.success]
        risen = {name: found[name] for name in followed if found.get(name, -inf) > self._best.get(name, -inf)}
        self._best |= risen
        self._waited = 0 if risen else self._waited + 1
        if not self.patience or self._waited < self.patience:
            return None
        best = ", ".join(f"{name} {value:.3f}" for name, value in self._best.items())
        return Ended("patience", f"no better held-out result in {self._waited} evaluations (best: {best})")

    def is_best(self, found: Mapping[str, float]) -> bool:
        """Whether an evaluation has the best greedy success so far; of equal ones it is the first."""
        success = found.get(self.success, -inf)
        if too_many(found.get("masked", 0), found.get("samples", 0)) or not success > self.top:
            return False
        self.top = success
        return True

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"best": dict(self._best), "waited": self._waited, "top": self.top, "ends": self._ends}

    def load(self, state: Mapping[str, Any]) -> bool:
        """Go on from a checkpoint's state; returns whether goals and patience are still those of that run."""
        self._best, self._waited, self.top = dict(state["best"]), state["waited"], state["top"]
        return bool(state["ends"] == self._ends)

    @property
    def _ends(self) -> list[Any]:
        """What the user has set, to be compared."""
        return [dict(self.goals), self.patience]


def reached(goals: Mapping[str, float], found: Mapping[str, float]) -> bool:
    """Whether all goals are reached; one that was not measured is not."""
    return all(found.get(name, -inf) >= goal for name, goal in goals.items())


def check_goals(goals: Mapping[str, float], rewards: Collection[str], slices: Iterable[str]) -> None:
    """Refuse goals that no evaluation measures.

    Args:
        rewards: the keys of the run's scorers; one of them may give further scores, named ``KEY.NAME``.
        slices: of the held-out samples.

    Raises:
        ConfigError: an unknown metric, with the nearest one.
    """
    slices = sorted({name for name in slices if name})
    metrics = [*rewards, "reward", "called"]
    for name, goal in goals.items():
        metric, slash, part = name.removeprefix(SAMPLED).partition("/")
        known = metric in metrics or metric.partition(".")[0] in rewards
        known = known or (name.startswith(SAMPLED) and re.fullmatch(r"pass@\d+", metric) is not None)
        if not known or (slash and part not in slices):
            every = [*metrics, *(f"{metric}/{each}" for metric in metrics for each in slices)]
            every += [f"{SAMPLED}{each}" for each in every]
            raise ConfigError(
                f"train.until.{name}={goal:g}: no evaluation has a metric of that name. {nearest(name, every)}"
            )


Saved = Callable[[], Awaitable[str]]
"""Saves the steps so far, and says so."""


class Stopping:
    """Follows a training in each of its processes, and ends it in all of them after the same step.

    Args:
        stop: this process's; if any process requests a stop, all stop.
    """

    def __init__(
        self, train: TrainConfig, until: Until, processes: Processes, stop: StopRequest, progress: Progress
    ) -> None:
        self.until = until
        self.ended: Ended | None = None
        self._train, self._processes, self._stop, self._progress = train, processes, stop, progress
        self._lost = LostAttempts()
        self._skipped_in_row = 0
        self._left_out: bool | None = None  # whether demonstrations were; None: before the first step

    async def requested(self) -> bool:
        """Whether a stop is requested in any process."""
        return await self._processes.any(self._stop.requested)

    async def stop(self, what: str) -> NoReturn:
        """Raise `RunStopped`, with the reason."""
        reasons = await self._processes.gather(self._stop.reason)
        raise RunStopped(" ".join([what, *filter(None, reasons)][:2]))

    def guard(self, warnings: Sequence[str]) -> None:
        """Request a stop for what the guard has newly found, unless ``train.guard=warn``."""
        if warnings and self._train.guard != "warn":
            self._stop.request(f"{STOPPED_BY}{warnings[0]}", warning=warnings[0])

    async def lost_too_many(self, groups: Sequence[Group]) -> bool:
        """Whether so many trajectories of all processes are masked that the step is not trained on."""
        counts = Counts.of(trajectory for group in groups for trajectory in group.trajectories)
        # On ranks other than 0 `gather` returns nothing, so the sum is empty.
        everything = sum(await self._processes.gather(counts), Counts())
        return await self._processes.broadcast(self._lost.too_many(everything))

    async def before_replay(self, step: int, replay: int, groups: Sequence[Group], saved: Saved) -> None:
        """Pause before a step is played again, since what masked so many trajectories may be over then.

        Args:
            groups: of all processes, in the first.
            saved: saves the steps before this one.

        Raises:
            RunStopped: a stop is requested.
            TrainingError: the step was played too often, or would lose as many again.
        """
        trajectories = [trajectory for group in groups for trajectory in group.trajectories]
        lost = self._lost.text(trajectories)
        if await self.requested():
            await self.stop(f"Stopped before the update of step {step}.{await saved()}")
        if wrong := in_vain(trajectories):
            raise TrainingError(f"Step {step} cannot be trained on: {wrong}.{await saved()}")
        if replay >= self._train.max_skipped:
            raise TrainingError(
                f"Step {step} was played {replay} times, and each time more than a third of it was masked, or of those "
                f"that called a tool, or a tool failed. The last time, {lost}. "
                "What is left is a selection, so it is not trained on. "
                f"Mend the cause, then go on with --resume.{await saved()}"
            )
        pause_s = backoff_s(replay, PAUSE_S, LONGEST_PAUSE_S, least=1.0)
        self._progress.say(f"step {step}: {lost}. No update; it is played again in {pause_s:.0f} s.")
        end = time.monotonic() + pause_s
        while not self._stop.requested and (left := end - time.monotonic()) > 0:  # noqa: ASYNC110 - a signal sets it
            await asyncio.sleep(min(left, 0.2))

    def check_skipped(self, update: Mapping[str, float], step: int) -> None:
        """Say which updates were skipped.

        Raises:
            TrainingError: too many steps in a row were.
        """
        skipped, norm = update.get("skipped", 0.0), update.get("grad_norm", 0.0)
        whole = skipped == self._train.updates_per_step
        self._skipped_in_row = self._skipped_in_row + 1 if whole else 0
        if skipped:
            self._progress.say(
                f"step {step}: {skipped:.0f} update(s) skipped: gradient norm {norm:.3g} is "
                f"not finite or above train.explode_norm={self._train.explode_norm:g}"
            )
        if self._skipped_in_row >= self._train.max_skipped:
            raise TrainingError(
                f"{self._skipped_in_row} steps in a row were skipped for a NaN or exploding gradient (step {step}). "
                "The last good checkpoint is kept. Lower train.lr or raise train.warmup_steps, and go on with --resume."
            )

    def left_out(self, step: int, groups: Sequence[Group], out: Sequence[Trajectory]) -> None:
        """Say that demonstrations are not learnt from, the first time with the reason.

        Raises:
            TrainingError: none of the first step can be.
        """
        first, self._left_out = self._left_out is None, bool(self._left_out)
        if not out:
            return
        example = next((each for each in out if each.faults), out[0])
        why = f"reward {example.reward:g}, stop {example.stop.value}; train.where decides"
        why = example.faults[0].message if example.faults else why
        many = f"{len(out)} of {len(groups)} demonstrations are not learnt from"
        text = f"{many}. Such as sample '{example.sample.id}': {why}"
        if first and len(out) == len(groups):
            raise TrainingError(f"Step {step}: {text}. Mend the demonstrations, or the condition.")
        if not self._left_out:
            self._progress.say(f"warning: step {step}: {text}")
        self._left_out = True

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        ended = asdict(self.ended) if self.ended else None
        return {"until": self.until.state(), "ended": ended, "calls": (self._lost.answered, self._lost.failed)}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint's state; a training that had ended has ended, unless its goals are others now."""
        self._lost.answered, self._lost.failed = map(Counter, state["calls"])
        same = self.until.load(state["until"])
        self.ended = Ended(**state["ended"]) if state["ended"] and same else None
