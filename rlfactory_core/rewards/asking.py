"""One scorer asked once: whatever it is and however it fails, what comes back is an outcome."""

from __future__ import annotations

import asyncio
import inspect
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast

from rlfactory_core.errors import ConfigError, VerifierError
from rlfactory_core.protocols import GroupScorer, RewardScorer, Verifier
from rlfactory_core.types import Group, Score, Trajectory

Subject = TypeVar("Subject", Trajectory, Group)
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Outcome(Generic[Value]):
    """What one scorer said; without a value it failed, and ``error`` says why."""

    name: str
    seconds: float
    value: Value | None = None
    error: str = ""
    counts: Mapping[str, float] = field(default_factory=dict)  # of one that failed


@dataclass(frozen=True, slots=True)
class _VerifierScorer:
    """A verifier in a scorer's place."""

    name: str
    verifier: Verifier

    async def score(self, trajectory: Trajectory) -> Score:
        verdict = await self.verifier.verify(trajectory)
        if verdict.passed is None:
            raise VerifierError("; ".join(verdict.reasons) or "it could not be found out")
        return Score(float(verdict.passed), verdicts={self.name: verdict})


def as_scorer(name: str, scorer: Any) -> RewardScorer:
    """A scorer as it is, and a verifier as one.

    Raises:
        ConfigError: an object that can neither score nor verify.
    """
    if hasattr(scorer, "score"):
        return cast(RewardScorer, scorer)
    if hasattr(scorer, "verify"):
        return _VerifierScorer(name, scorer)
    raise ConfigError(
        f"Reward {name!r} is a {type(scorer).__name__}, which can neither score nor verify. It needs one of the "
        "methods score(trajectory), score_group(group) and verify(trajectory)."
    )


async def attempt(
    name: str,
    method: Callable[[Subject], Awaitable[Value]],
    subject: Subject,
    deadline_s: float | None = None,
) -> Outcome[Value]:
    """The boundary at which a scorer's failure, whatever it is, becomes a verifier fault."""
    start = time.perf_counter()
    counts: Mapping[str, float] = {}
    try:
        scoring = method(subject)
        if not inspect.isawaitable(scoring):
            raise TypeError(f"its method {method.__name__} is not async; write `async def {method.__name__}(…)`")
        value = await (scoring if deadline_s is None else asyncio.wait_for(scoring, deadline_s))
    except asyncio.TimeoutError as error:
        text = str(error) or f"no score within {deadline_s} s"
    except VerifierError as error:
        text, counts = str(error), getattr(error, "counts", {})  # a subclass may have left it out
    except Exception as error:  # noqa: BLE001 - the boundary that the docstring names
        text = f"{type(error).__name__}: {error}"
    else:
        return Outcome(name, time.perf_counter() - start, value)
    return Outcome(name, time.perf_counter() - start, error=text, counts=counts)


async def attempt_group(name: str, scorer: GroupScorer, group: Group, deadline_s: float) -> list[Outcome[Score]]:
    """One outcome per trajectory; a group scorer that fails, or miscounts, fails for all of them."""
    whole = await attempt(name, scorer.score_group, group, deadline_s)
    size = len(group.trajectories)
    if whole.value is not None and len(whole.value) == size:
        return [Outcome(name, whole.seconds, score) for score in whole.value]
    error = whole.error if whole.value is None else f"it gave {len(whole.value)} scores for {size} trajectories"
    # What it counted, it counted once for all of them.
    return [Outcome(name, whole.seconds, error=error, counts={} if i else whole.counts) for i in range(size)]


def unusable(score: Any, num_turns: int) -> str:
    """Why a score cannot be used; empty where it can."""
    if not isinstance(score, Score):
        return f"it gave {score!r:.80}; expected a Score, such as Score(1.0)"
    if score.turns and len(score.turns) != num_turns:
        return f"it gave {len(score.turns)} per-turn scores for {num_turns} turns"
    if not all(map(math.isfinite, (score.value, *score.turns))):
        return f"it gave a score that is not finite: {score.value}, per turn {score.turns}"
    return ""
