"""Ends a training before its last step: the held-out results are reached, or have not risen for a while."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, Literal

from rlfactory_core.algo.evaluation import EvalPass, eval_passes
from rlfactory_core.algo.masking import too_many
from rlfactory_core.errors import ConfigError, nearest

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
    _top: float = -inf  # the best greedy success so far

    def passes(self, step: int) -> list[EvalPass]:
        """Those of the evaluation after a step: greedy, and at temperature 1 if a goal needs it."""
        sampled = any(name.startswith(SAMPLED) for name in self.goals)
        return eval_passes(str(step), attempts=self.attempts if sampled else 0, controls=())

    def possible(self, found: Mapping[str, float]) -> bool:
        """Whether the greedy results do not rule an end out, so that the pass at temperature 1 is worth its time."""
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
        if too_many(found.get("masked", 0), found.get("samples", 0)) or not success > self._top:
            return False
        self._top = success
        return True

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"best": dict(self._best), "waited": self._waited, "top": self._top, "ends": self._ends}

    def load(self, state: Mapping[str, Any]) -> bool:
        """Go on from a checkpoint's state; returns whether goals and patience are still those of that run."""
        self._best, self._waited, self._top = dict(state["best"]), state["waited"], state.get("top", -inf)
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
    metrics = [*rewards, "reward"]
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
