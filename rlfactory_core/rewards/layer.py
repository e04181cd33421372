"""The one place where scorers, group scorers and verifiers become the reward of a trajectory.

All of them run at once, each with a deadline: those of one attempt as soon as it has ended, while other attempts are
still under way, those of a whole group as soon as all have. One that fails, answers late or says that it could not find
out leaves a verifier fault, which masks the trajectory: an unknown score is never a zero.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from rlfactory_core.protocols import GroupScorer, Opened, RewardScorer, Verifier
from rlfactory_core.rewards.asking import Outcome, as_scorer, attempt, attempt_group, unusable
from rlfactory_core.types import Fault, FaultKind, Group, Sample, Score, Trajectory, Verdict

if TYPE_CHECKING:
    from rlfactory_core.task import Task

AnyScorer = RewardScorer | GroupScorer | Verifier
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class _Timed(Generic[Value]):
    """A result with the times at which its making began and ended."""

    value: Value
    start: float
    end: float


class RewardLayer:
    """Weighs scorers by name.

    Args:
        scorers: name -> (scorer or verifier, weight). A verifier scores 1 for passed and 0 for failed. One whose
            class says ``inline = True`` promises to compute quickly without waiting: it runs in place, without the
            cost of a task and without a deadline.
        deadline_s: seconds that each of the others has for one trajectory or group.
        deadlines: name -> seconds, where they differ.

    Raises:
        ConfigError: an object that can neither score nor verify.
    """

    def __init__(
        self,
        scorers: Mapping[str, tuple[AnyScorer, float]],
        deadline_s: float = 60.0,
        deadlines: Mapping[str, float] | None = None,
    ) -> None:
        self._weights = {name: weight for name, (_, weight) in scorers.items()}
        self._opened = {name: scorer for name, (scorer, _) in scorers.items() if isinstance(scorer, Opened)}
        self._deadlines = dict.fromkeys(scorers, deadline_s) | dict(deadlines or {})
        self._inline: dict[str, RewardScorer] = {}
        self._waiting: dict[str, RewardScorer] = {}
        self._groups: dict[str, GroupScorer] = {}
        for name, (scorer, _) in scorers.items():
            if hasattr(scorer, "score_group"):
                self._groups[name] = cast(GroupScorer, scorer)
                continue
            single = as_scorer(name, scorer)
            (self._inline if getattr(scorer, "inline", False) else self._waiting)[name] = single

    @property
    def group_scorers(self) -> tuple[str, ...]:
        """The names of those that compare the attempts of a group."""
        return tuple(self._groups)

    async def open(self, task: Task, closed: Collection[str] = ()) -> None:
        """Open the scorers that hold something, but those that are to stay ``closed``; raises what they raise."""
        for name, scorer in self._opened.items():
            if name not in closed:
                await scorer.open(task)

    async def close(self) -> None:
        """Close all of them, whatever state they are in."""
        for scorer in self._opened.values():
            await scorer.close()

    def scoring(self, sample: Sample, attempts: int) -> GroupScoring:
        """For one group, whose attempts are scored as they end."""
        return GroupScoring(self, sample, attempts)

    async def score_trajectory(self, trajectory: Trajectory) -> Trajectory:
        """The trajectory with its `Score` and the faults of scoring; group scorers see it as a group of one."""
        return await self.scoring(trajectory.sample, 1).score(0, trajectory)

    async def score_group(self, group: Group) -> Group:
        """All trajectories of a group that has ended, scored, in their order."""
        scoring = self.scoring(group.sample, len(group.trajectories))
        scored = await asyncio.gather(*(scoring.score(i, each) for i, each in enumerate(group.trajectories)))
        return replace(group, trajectories=tuple(scored))

    async def _score_alone(self, trajectory: Trajectory) -> _Timed[list[Outcome[Score]]]:
        """What the scorers of single trajectories say, in the order in which they count."""
        start, limits = time.perf_counter(), self._deadlines
        outcomes = [await attempt(name, scorer.score, trajectory) for name, scorer in self._inline.items()]
        if self._waiting:
            outcomes += await asyncio.gather(
                *(attempt(name, scorer.score, trajectory, limits[name]) for name, scorer in self._waiting.items())
            )
        return _Timed(outcomes, start, time.perf_counter())

    async def _score_whole(self, group: Group) -> _Timed[list[list[Outcome[Score]]]]:
        """What the group scorers say, each of every member."""
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
                faults.append(Fault(FaultKind.VERIFIER, name, error))
                continue
            weight = self._weights[name]
            value += weight * score.value
            components[name] = score.value + sum(score.turns)
            components.update({f"{name}.{key}": part for key, part in score.components.items()})
            verdicts.update({f"{name}.{key}" if key in verdicts else key: one for key, one in score.verdicts.items()})
            if score.turns:
                turns = [a + weight * b for a, b in zip(turns or [0.0] * len(score.turns), score.turns, strict=True)]
        latency = {outcome.name: outcome.seconds for outcome in outcomes}
        combined = Score(value, components, tuple(turns), verdicts, latency, counts, seconds)
        return replace(trajectory, score=combined, faults=tuple(faults))


class GroupScoring:
    """The scoring of one group, `score` called once for each of its attempts.

    Trajectories that an infra fault has masked already are scored like the others: the number stands in the trajectory
    file and changes no update.
    """

    def __init__(self, layer: RewardLayer, sample: Sample, attempts: int) -> None:
        self._layer, self._sample, self._attempts = layer, sample, attempts
        self._ended: dict[int, Trajectory] = {}
        self._compared = asyncio.Event()
        self._whole: _Timed[list[list[Outcome[Score]]]]  # once compared

    async def score(self, index: int, trajectory: Trajectory) -> Trajectory:
        """An attempt that has ended, with its `Score` and the faults of scoring.

        Where there are group scorers, it comes back when all attempts have ended and are compared.
        """
        layer = self._layer
        if not layer.group_scorers:
            alone = await layer._score_alone(trajectory)
            return layer._combine(trajectory, alone.value, alone.end - alone.start)
        alone, whole = await asyncio.gather(layer._score_alone(trajectory), self._compare(index, trajectory))
        outcomes = alone.value + [column[index] for column in whole.value]
        # The wait for other attempts between the two is not scoring.
        seconds = alone.end - alone.start + max(0.0, whole.end - max(whole.start, alone.end))
        return layer._combine(trajectory, outcomes, seconds)

    async def _compare(self, index: int, trajectory: Trajectory) -> _Timed[list[list[Outcome[Score]]]]:
        """The last attempt to end has the group scorers called; the others wait for it."""
        self._ended[index] = trajectory
        if len(self._ended) < self._attempts:
            await self._compared.wait()
        else:
            members = tuple(self._ended[i] for i in range(self._attempts))
            self._whole = await self._layer._score_whole(Group(self._sample, members))
            self._compared.set()
        return self._whole
