"""Runs all scorers, group scorers and verifiers of a run, and adds their weighted scores.

They run in parallel, each with a deadline. Scorers of single trajectories start as soon as the attempt has ended, group
scorers as soon as all attempts of the group have. If one fails, is late or cannot decide, the trajectory gets a
verifier fault, which masks it; an unknown score never counts as 0. A scorer of weight 0 only measures: it never masks.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar, cast

from rlfactory_core.errors import ConfigError, VerifierError
from rlfactory_core.plugins.declared import declared
from rlfactory_core.protocols import GroupScorer, RewardScorer, ScorerTraits, Verifier
from rlfactory_core.types import Fault, FaultCode, FaultKind, Group, Sample, Score, Trajectory, Verdict

AnyScorer = RewardScorer | GroupScorer | Verifier
Subject = TypeVar("Subject", Trajectory, Group)
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Outcome(Generic[Value]):
    """The result of one scorer. If it failed, ``value`` is None and ``error`` has the reason."""

    name: str
    seconds: float
    value: Value | None = None
    error: str = ""
    code: FaultCode = ""
    counts: Mapping[str, float] = field(default_factory=dict)  # of a scorer that failed; see `VerifierError`


@dataclass(frozen=True, slots=True)
class _VerifierScorer:
    """Adapts a verifier to the interface of a scorer."""

    name: str
    verifier: Verifier

    async def score(self, trajectory: Trajectory) -> Score:
        verdict = await self.verifier.verify(trajectory)
        if verdict.passed is None:
            raise VerifierError("; ".join(verdict.reasons) or "the verifier could not decide")
        return Score(float(verdict.passed), verdicts={self.name: verdict})


@dataclass(frozen=True, slots=True)
class _Timed(Generic[Value]):
    """A result with its start and end on the clock of `time.perf_counter`."""

    value: Value
    start: float
    end: float


class RewardLayer:
    """Scores trajectories and groups.

    Args:
        scorers: by name, a scorer or verifier and its weight. A verifier scores 1 for passed and 0 for failed. Optional
            attributes: `ScorerTraits`.
        deadline_s: seconds for one trajectory or group, for a scorer without a deadline of its own.
        deadlines: seconds by name; they override the scorer's own deadline.

    Raises:
        ConfigError: an object can neither score nor verify.
        PluginError: an attribute is misspelt.
    """

    def __init__(
        self,
        scorers: Mapping[str, tuple[AnyScorer, float]],
        deadline_s: float = 60.0,
        deadlines: Mapping[str, float] | None = None,
    ) -> None:
        self._weights = {name: weight for name, (_, weight) in scorers.items()}
        self.traits = {
            name: declared(each, ScorerTraits, f"The reward '{name}'") for name, (each, _) in scorers.items()
        }
        own = {name: traits.deadline_s or deadline_s for name, traits in self.traits.items()}
        self._deadlines = own | dict(deadlines or {})
        self._inline: dict[str, RewardScorer] = {}
        self._waiting: dict[str, RewardScorer] = {}
        self._groups: dict[str, GroupScorer] = {}
        for name, (scorer, _) in scorers.items():
            if hasattr(scorer, "score_group"):
                self._groups[name] = cast(GroupScorer, scorer)
                continue
            single = as_scorer(name, scorer)
            (self._inline if self.traits[name].inline else self._waiting)[name] = single

    @property
    def group_scorers(self) -> tuple[str, ...]:
        """The names of the group scorers."""
        return tuple(self._groups)

    def scoring(self, sample: Sample, attempts: int) -> GroupScoring:
        """The scoring of one group, whose attempts are scored as they end."""
        return GroupScoring(self, sample, attempts)

    async def score_trajectory(self, trajectory: Trajectory) -> Trajectory:
        """The trajectory with its `Score` and the faults of scoring; group scorers get a group of one."""
        return await self.scoring(trajectory.sample, 1).score(0, trajectory)

    async def score_group(self, group: Group) -> Group:
        """The group with all its trajectories scored."""
        scoring = self.scoring(group.sample, len(group.trajectories))
        scored = await asyncio.gather(*(scoring.score(i, each) for i, each in enumerate(group.trajectories)))
        return replace(group, trajectories=tuple(scored))

    async def _score_alone(self, trajectory: Trajectory) -> _Timed[list[Outcome[Score]]]:
        """The outcomes of the scorers of single trajectories, the inline ones first."""
        start, limits = time.perf_counter(), self._deadlines
        outcomes = [await attempt(name, scorer.score, trajectory) for name, scorer in self._inline.items()]
        if self._waiting:
            outcomes += await asyncio.gather(
                *(attempt(name, scorer.score, trajectory, limits[name]) for name, scorer in self._waiting.items())
            )
        return _Timed(outcomes, start, time.perf_counter())

    async def _score_whole(self, group: Group) -> _Timed[list[list[Outcome[Score]]]]:
        """For each group scorer, the outcomes of all members."""
        start, limits = time.perf_counter(), self._deadlines
        columns = await asyncio.gather(
            *(attempt_group(name, scorer, group, limits[name]) for name, scorer in self._groups.items())
        )
        return _Timed(list(columns), start, time.perf_counter())

    def _combine(self, trajectory: Trajectory, outcomes: Sequence[Outcome[Score]], seconds: float) -> Trajectory:
        value = 0.0
        turns: list[float] = []
        components: dict[str, float] = {}
        verdicts: dict[str, Verdict] = {}
        counts: dict[str, float] = {}
        faults = list(trajectory.faults)
        for outcome in outcomes:
            score, name = outcome.value, outcome.name
            error = outcome.error or unusable(score, len(trajectory.turns))
            found = outcome.counts if score is None else getattr(score, "counts", {})
            counts.update({f"{name}.{key}": number for key, number in found.items()})
            if score is None or error:
                code = outcome.code or "unusable"
                faults.append(Fault(FaultKind.VERIFIER, name, error, code=code, measured=not self._weights[name]))
                continue
            weight = self._weights[name]
            value += weight * score.value
            components[name] = score.value + sum(score.turn_rewards)
            components.update({f"{name}.{key}": part for key, part in score.components.items()})
            verdicts.update({f"{name}.{key}" if key in verdicts else key: one for key, one in score.verdicts.items()})
            if score.turn_rewards:
                given = zip(turns or [0.0] * len(score.turn_rewards), score.turn_rewards, strict=True)
                turns = [total + weight * reward for total, reward in given]
        latency = {outcome.name: outcome.seconds for outcome in outcomes}
        combined = Score(value, components, tuple(turns), verdicts, latency, counts, seconds)
        return replace(trajectory, score=combined, faults=tuple(faults))


class GroupScoring:
    """Scores one group; `score` is called once for each attempt.

    A trajectory that an infra fault has masked is scored as well. Its score is saved, but does not change the update.
    """

    def __init__(self, layer: RewardLayer, sample: Sample, attempts: int) -> None:
        self._layer, self._sample, self._attempts = layer, sample, attempts
        self._ended: dict[int, Trajectory] = {}
        self._compared = asyncio.Event()
        self._whole: _Timed[list[list[Outcome[Score]]]]  # once compared

    async def score(self, index: int, trajectory: Trajectory) -> Trajectory:
        """The attempt with its `Score` and the faults of scoring; with group scorers, after all attempts have ended."""
        layer = self._layer
        if not layer.group_scorers:
            alone = await layer._score_alone(trajectory)
            return layer._combine(trajectory, alone.value, alone.end - alone.start)
        alone, whole = await asyncio.gather(layer._score_alone(trajectory), self._compare(index, trajectory))
        outcomes = alone.value + [column[index] for column in whole.value]
        # The time in between, in which it waited for other attempts, does not count as scoring.
        seconds = alone.end - alone.start + max(0.0, whole.end - max(whole.start, alone.end))
        return layer._combine(trajectory, outcomes, seconds)

    async def _compare(self, index: int, trajectory: Trajectory) -> _Timed[list[list[Outcome[Score]]]]:
        """Call the group scorers when the last attempt has ended; the others wait for the result."""
        self._ended[index] = trajectory
        if len(self._ended) < self._attempts:
            await self._compared.wait()
        else:
            members = tuple(self._ended[i] for i in range(self._attempts))
            self._whole = await self._layer._score_whole(Group(self._sample, members))
            self._compared.set()
        return self._whole


def as_scorer(name: str, scorer: Any) -> RewardScorer:
    """The scorer itself, or a scorer made of a verifier.

    Raises:
        ConfigError: the object can neither score nor verify.
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
    """Call a scorer's method; an exception or a missed deadline becomes an outcome with an error."""
    start = time.perf_counter()
    counts: Mapping[str, float] = {}
    code: FaultCode
    try:
        scoring = method(subject)
        if not inspect.isawaitable(scoring):
            raise TypeError(f"its method {method.__name__} is not async; write `async def {method.__name__}(…)`")
        value = await (scoring if deadline_s is None else asyncio.wait_for(scoring, deadline_s))
    except TimeoutError as error:
        text, code = str(error) or f"no score within {deadline_s} s", "late"
    except VerifierError as error:
        text, code = str(error), "undecided"
        counts = getattr(error, "counts", {})  # a subclass may have left it out
    except Exception as error:  # noqa: BLE001 - the boundary to the scorer's code
        text, code = f"{type(error).__name__}: {error}", "crashed"
    else:
        return Outcome(name, time.perf_counter() - start, value)
    return Outcome(name, time.perf_counter() - start, error=text, code=code, counts=counts)


async def attempt_group(name: str, scorer: GroupScorer, group: Group, deadline_s: float) -> list[Outcome[Score]]:
    """One outcome for each trajectory; if the group scorer fails, or returns another number of scores, all fail."""
    whole = await attempt(name, scorer.score_group, group, deadline_s)
    size = len(group.trajectories)
    if whole.value is not None and len(whole.value) == size:
        return [Outcome(name, whole.seconds, score) for score in whole.value]
    if whole.value is not None:
        error = f"it gave {len(whole.value)} scores for {size} trajectories"
        return [Outcome(name, whole.seconds, error=error, code="unusable")] * size
    # The counts are of the whole group, so only one member gets them.
    counts = (whole.counts if i == 0 else {} for i in range(size))
    return [Outcome(name, whole.seconds, error=whole.error, code=whole.code, counts=each) for each in counts]


def unusable(score: Any, num_turns: int) -> str:
    """Why a score is not valid; empty if it is."""
    if not isinstance(score, Score):
        return f"it gave {score!r:.80}; expected a Score, such as Score(1.0)"
    if score.turn_rewards and len(score.turn_rewards) != num_turns:
        return f"it gave {len(score.turn_rewards)} per-turn scores for {num_turns} turns"
    if not all(map(math.isfinite, (score.value, *score.turn_rewards))):
        return f"it gave a score that is not finite: {score.value}, per turn {score.turn_rewards}"
    return ""
