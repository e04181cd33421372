"""How the checks and the red team read rewards and answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlfactory_core.errors import VerifierError
from rlfactory_core.rewards import accepted_answers
from rlfactory_core.runner import TaskBench
from rlfactory_core.types import Sample, StopReason, Trajectory

_NEAR = 1e-9


def opinions(bench: TaskBench) -> tuple[str, ...]:
    """The names of the rewards that a model decides and that have a weight."""
    traits = bench.runtime.rewards.traits
    return tuple(name for name, (_, weight) in bench.runtime.scorers.items() if weight and traits[name].opinion)


def exact_rewards(bench: TaskBench, trajectory: Trajectory) -> tuple[float, ...]:
    """The parts of a reward that have to be the same each time.

    Without opinionated rewards this is the whole reward, else the environment's part and each other component.
    """
    judges = opinions(bench)
    if not judges or trajectory.score is None:
        return (trajectory.reward,)
    exact = (value for name, value in sorted(components(trajectory).items()) if name.split(".")[0] not in judges)
    return (sum(turn.reward for turn in trajectory.turns), *exact)


def changed_rewards(bench: TaskBench, first: Sequence[Trajectory], second: Sequence[Trajectory]) -> str:
    """The pairs of episodes whose exact rewards differ, in words; episodes that a fault masks are not compared."""
    pairs = [(a, b) for a, b in zip(first, second, strict=True) if not a.masked and not b.masked]
    exact = [(exact_rewards(bench, a), exact_rewards(bench, b)) for a, b in pairs]
    other = [
        pair
        for pair, (a, b) in zip(pairs, exact, strict=True)
        if len(a) != len(b) or any(abs(x - y) > _NEAR for x, y in zip(a, b, strict=True))
    ]
    if not other:
        return ""
    a, b = other[0]
    return f"{of(len(other), len(pairs), 'episode')}; sample '{a.sample.id}' {a.reward:.6g}, then {b.reward:.6g}"


def components(trajectory: Trajectory) -> Mapping[str, float]:
    """The scorers' unweighted values; empty if it was not scored."""
    return trajectory.score.components if trajectory.score else {}


def masking_fault(trajectory: Trajectory) -> str:
    """The first fault that masks a trajectory, in words; empty if there is none."""
    fault = next((fault for fault in trajectory.faults if fault.masks), None)
    return f"a fault of {fault.source}: {fault.message}" if fault else ""


def ended_by_policy(trajectory: Trajectory) -> bool:
    """Whether the policy ended the episode, rather than a budget or a fault."""
    return trajectory.stop in (StopReason.FINAL_ANSWER, StopReason.NO_TOOL_CALL, StopReason.ENV_DONE)


def known_answers(sample: Sample) -> tuple[str, ...]:
    """The sample's accepted answers as texts; empty if only the task's own reward can judge an answer."""
    try:
        return accepted_answers(sample)
    except VerifierError:
        return ()


def last_text(trajectory: Trajectory) -> str:
    """The content of the model's last message."""
    return trajectory.turns[-1].message.content if trajectory.turns else ""


def mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers)


def of(count: int, total: int, what: str) -> str:
    """``3 of 8 episodes``."""
    return f"{count} of {total} {what}{'' if total == 1 else 's'}"
