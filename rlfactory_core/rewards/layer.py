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
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from rlfactory_core.algo.advantages import LARGEST_REWARD
from rlfactory_core.errors import ConfigError, VerifierError
from rlfactory_core.plugins.attributes import optional_attributes
from rlfactory_core.protocols import GroupScorer, RewardScorer, ScorerTraits, Verifier
from rlfactory_core.types import Fault, FaultCode, FaultKind, Group, Sample, Score, Trajectory, Verdict
from rlfactory_core.utils.aio import in_time
from rlfactory_core.utils.display import said

AnyScorer = RewardScorer | GroupScorer | Verifier
Method = Callable[[Any], Awaitable[Sequence[Any]]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one scorer gave for one trajectory. If it failed, ``score`` is None, and ``error`` says why."""

    name: str
    start: float  # on the clock of `time.perf_counter`
    end: float
    score: Score | None = None
    error: str = ""
    code: FaultCode = ""
    counts: Mapping[str, float] = field(default_factory=dict)


class RewardLayer:
    """Scores trajectories and groups.

    Args:
        scorers: by name, a scorer or verifier and its weight. A verifier scores 1 for passed and 0 for failed. Optional
            attributes: `ScorerTraits`.
        deadline_s: seconds for one trajectory or group, for a scorer without a deadline of its own.
        deadlines: seconds by name; they override the scorer's own deadline.
        copies: second name -> the name of a score that is listed under both.

    Raises:
        ConfigError: an object can neither score nor verify.
        PluginError: an attribute is misspelt.
    """

    def __init__(
        self,
        scorers: Mapping[str, tuple[AnyScorer, float]],
        deadline_s: float = 60.0,
        deadlines: Mapping[str, float] | None = None,
        copies: Mapping[str, str] = {},
    ) -> None:
        self._copies = copies
        self._weights = {name: weight for name, (_, weight) in scorers.items()}
        self.traits = {
            name: optional_attributes(each, ScorerTraits, f"The reward '{name}'") for name, (each, _) in scorers.items()
        }
        own = {name: traits.deadline_s or deadline_s for name, traits in self.traits.items()}
        self._deadlines = own | dict(deadlines or {})
        self._inline: dict[str, Method] = {}
        self._waiting: dict[str, Method] = {}
        self.group_scorers: dict[str, Method] = {}
        for name, (scorer, _) in scorers.items():
            kind = self._inline if self.traits[name].inline else self._waiting
            (self.group_scorers if hasattr(scorer, "score_group") else kind)[name] = _method(name, scorer)

    async def score_trajectory(self, trajectory: Trajectory) -> Trajectory:
        """The trajectory with its `Score` and the faults of scoring; group scorers get a group of one."""
        return await GroupScoring(self, trajectory.sample, 1).score(0, trajectory)

    async def score_group(self, group: Group) -> Group:
        """The group with all its trajectories scored."""
        scoring = GroupScoring(self, group.sample, len(group.trajectories))
        scored = await asyncio.gather(*(scoring.score(i, each) for i, each in enumerate(group.trajectories)))
        return replace(group, trajectories=tuple(scored))

    async def _score_alone(self, trajectory: Trajectory) -> list[Outcome]:
        """The outcomes of the scorers of single trajectories, the inline ones first."""
        one, limits = [trajectory], self._deadlines
        found = [await _outcomes(name, method, trajectory, one) for name, method in self._inline.items()]
        found += await asyncio.gather(
            *(_outcomes(name, method, trajectory, one, limits[name]) for name, method in self._waiting.items())
        )
        return [outcome for (outcome,) in found]

    async def _score_whole(self, group: Group) -> list[list[Outcome]]:
        """For each group scorer, the outcomes of all members."""
        members, limits = group.trajectories, self._deadlines
        return await asyncio.gather(
            *(_outcomes(name, method, group, members, limits[name]) for name, method in self.group_scorers.items())
        )

    def _combine(self, trajectory: Trajectory, outcomes: Sequence[Outcome]) -> Trajectory:
        value = 0.0
        turns: list[float] = []
        components: dict[str, float] = {}
        verdicts: dict[str, Verdict] = {}
        counts: dict[str, float] = {}
        faults = list(trajectory.faults)
        for outcome in outcomes:
            score, name, weight = outcome.score, outcome.name, self._weights[outcome.name]
            counts.update({f"{name}.{key}": number for key, number in outcome.counts.items()})
            if score is None:
                faults.append(Fault(FaultKind.VERIFIER, name, outcome.error, code=outcome.code, measured=not weight))
                continue
            value += weight * score.value
            components[name] = score.value + sum(score.turn_rewards)
            components.update({f"{name}.{key}": part for key, part in score.components.items()})
            verdicts.update({f"{name}.{key}" if key in verdicts else key: one for key, one in score.verdicts.items()})
            if score.turn_rewards:
                given = zip(turns or [0.0] * len(score.turn_rewards), score.turn_rewards, strict=True)
                turns = [total + weight * reward for total, reward in given]
        components |= {copy: components[name] for copy, name in self._copies.items() if name in components}
        latency = {outcome.name: outcome.end - outcome.start for outcome in outcomes}
        combined = Score(value, components, tuple(turns), verdicts, latency, counts, _seconds(outcomes))
        return replace(trajectory, score=combined, faults=tuple(faults))


def unscored(trajectory: Trajectory) -> Trajectory:
    """The trajectory as it was before it was scored."""
    played = tuple(fault for fault in trajectory.faults if fault.kind is not FaultKind.VERIFIER)
    return replace(trajectory, score=None, faults=played)


class GroupScoring:
    """Scores one group, whose attempts are scored as they end; `score` is called once for each of them.

    A trajectory that an infra fault has masked is scored as well. Its score is saved, but does not change the update.
    """

    def __init__(self, layer: RewardLayer, sample: Sample, attempts: int) -> None:
        self._layer, self._sample, self._attempts = layer, sample, attempts
        self._ended: dict[int, Trajectory] = {}
        self._compared = asyncio.Event()
        self._whole: list[list[Outcome]] = []  # once compared

    async def score(self, index: int, trajectory: Trajectory) -> Trajectory:
        """The attempt with its `Score` and the faults of scoring; with group scorers, after all attempts have ended."""
        alone, whole = await asyncio.gather(self._layer._score_alone(trajectory), self._compare(index, trajectory))
        return self._layer._combine(trajectory, alone + [column[index] for column in whole])

    async def _compare(self, index: int, trajectory: Trajectory) -> list[list[Outcome]]:
        """Call the group scorers when the last attempt has ended; the others wait for the result."""
        if not self._layer.group_scorers:
            return []
        self._ended[index] = trajectory
        if len(self._ended) < self._attempts:
            await self._compared.wait()
        else:
            members = tuple(self._ended[i] for i in range(self._attempts))
            self._whole = await self._layer._score_whole(Group(self._sample, members))
            self._compared.set()
        return self._whole


def _method(name: str, scorer: Any) -> Method:
    """Gives a list of scores: one for a trajectory, or one for each of a group. A verifier scores 1 for passed."""
    if not any(hasattr(scorer, method) for method in ("score_group", "score", "verify")):
        raise ConfigError(
            f"Reward {name!r} is a {type(scorer).__name__}, which can neither score nor verify. It needs one of the "
            "methods score(trajectory), score_group(group) and verify(trajectory)."
        )

    async def scored(trajectory: Trajectory) -> list[Score]:
        return [await _awaited(scorer.score, trajectory)]

    async def verified(trajectory: Trajectory) -> list[Score]:
        verdict = await _awaited(scorer.verify, trajectory)
        if not isinstance(verdict, Verdict):
            raise TypeError(f"it gave {verdict!r:.80}; expected a Verdict, such as Verdict(True)")
        if verdict.passed not in (True, False, None):
            raise TypeError(f"it gave a Verdict whose passed is {verdict.passed!r:.80}; expected True, False or None")
        if verdict.passed is None:
            raise VerifierError("; ".join(verdict.reasons) or "the verifier could not decide")
        return [Score(float(verdict.passed), verdicts={name: verdict})]

    if hasattr(scorer, "score_group"):
        return partial(_awaited, scorer.score_group)
    return scored if hasattr(scorer, "score") else verified


async def _awaited(method: Callable[[Any], Any], subject: Trajectory | Group) -> Any:
    scoring = method(subject)
    if not inspect.isawaitable(scoring):
        raise TypeError(f"its method {method.__name__} is not async; write `async def {method.__name__}(…)`")
    return await scoring


async def _outcomes(
    name: str, method: Method, subject: Any, members: Sequence[Trajectory], deadline_s: float | None = None
) -> list[Outcome]:
    """Call a scorer's method; an exception or a missed deadline becomes an error of each member."""
    start = time.perf_counter()
    counts: Mapping[str, float] = {}
    code: FaultCode
    try:
        scores = list(await in_time(method(subject), deadline_s, f"reward {name}"))
    except TimeoutError as error:
        text, code = said(error) or f"no score within {deadline_s} s", "late"
    except asyncio.CancelledError:
        if (task := asyncio.current_task()) and task.cancelling():
            raise
        text, code = "it cancelled itself", "crashed"
    except VerifierError as error:
        text, code = said(error), "undecided"
        counts = getattr(error, "counts", {})  # a subclass may have left it out
    except Exception as error:  # noqa: BLE001 - the boundary to the scorer's code
        text, code = f"{type(error).__name__}: {said(error)}", "crashed"
    else:
        if len(scores) == len(members):
            end = time.perf_counter()
            return [_outcome(name, start, end, *pair) for pair in zip(scores, members, strict=True)]
        text, code = f"it gave {len(scores)} scores for {len(members)} trajectories", "unusable"
    # The counts are of the whole group, so only one member gets them.
    given = [counts, *({} for _ in members[1:])]
    return [Outcome(name, start, time.perf_counter(), error=text, code=code, counts=each) for each in given]


def _outcome(name: str, start: float, end: float, score: Any, trajectory: Trajectory) -> Outcome:
    try:
        score = checked(score, len(trajectory.turns))
    except ValueError as error:
        return Outcome(name, start, end, error=str(error), code="unusable")
    return Outcome(name, start, end, score, counts=score.counts)


def _seconds(outcomes: Sequence[Outcome]) -> float:
    """How long any scorer was running; the time in which an attempt waited for others does not count."""
    total, until = 0.0, -math.inf
    for each in sorted(outcomes, key=lambda each: each.start):
        total += max(0.0, each.end - max(each.start, until))
        until = max(until, each.end)
    return total


def checked(given: Any, num_turns: int) -> Score:
    """The score with its numbers as floats, which a scorer may have as those of numpy or torch; a number is its value.

    Raises:
        ValueError: it is not valid, in words.
    """
    score = given if isinstance(given, Score) else Score(_float(given, "it gave {}; expected a number, or a Score"))
    value = _number(score.value, "value")
    turns = tuple(_number(each, "turn_rewards") for each in _of(score.turn_rewards, Collection, "turn_rewards"))
    if turns and len(turns) != num_turns:
        raise ValueError(f"it gave {len(turns)} per-turn scores for {num_turns} turns")
    if not all(abs(each) <= LARGEST_REWARD for each in (value, *turns)):
        raise ValueError(f"it gave a score that is not finite, or above {LARGEST_REWARD:g}: {value}, per turn {turns}")
    for verdict in _of(score.verdicts, Mapping, "verdicts").values():
        _of(verdict, Verdict, "verdicts")
    parts, counts = (_numbers(getattr(score, name), name) for name in ("components", "counts"))
    return replace(score, value=value, components=parts, turn_rewards=turns, counts=counts)


def _numbers(found: Any, name: str) -> dict[str, float]:
    return {str(key): _number(each, f"{name}[{key!r}]") for key, each in _of(found, Mapping, name).items()}


def _number(found: Any, name: str) -> float:
    return _float(found, f"it gave a Score whose {name} is {{}}; expected a number")


def _float(found: Any, words: str) -> float:
    if not isinstance(found, str | bytes):
        with suppress(TypeError, ValueError, OverflowError):
            return float(found)
    raise ValueError(words.format(f"{found!r:.80}"))


def _of(found: Any, kind: type, name: str) -> Any:
    if isinstance(found, kind):
        return found
    raise ValueError(f"it gave a Score with {found!r:.80} in {name}; expected a {kind.__name__}")
