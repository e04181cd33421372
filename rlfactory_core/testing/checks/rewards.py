"""What several checks say of rewards: which part of one is certain, and who has an opinion."""

from __future__ import annotations

from collections.abc import Sequence

from rlfactory_core.testing.bench import TaskBench
from rlfactory_core.types import FaultKind, StopReason, Trajectory


def opinions(bench: TaskBench) -> tuple[str, ...]:
    """The rewards that a model decides, of those that count."""
    scorers = bench.runtime.scorers
    return tuple(name for name, (scorer, weight) in scorers.items() if weight and getattr(scorer, "opinion", False))


def certain(trajectory: Trajectory, but: Sequence[str]) -> tuple[float, ...]:
    """Its whole reward; or its rewards one by one, but for those that are opinions."""
    steps = sum(turn.reward for turn in trajectory.turns)
    if not but or trajectory.score is None:
        return (trajectory.reward,)
    given = trajectory.score.components
    return (steps, *(given[name] for name in sorted(given) if name.split(".")[0] not in but))


def spoilt(trajectory: Trajectory) -> str:
    """The first fault that masks a trajectory, in words."""
    kinds = (FaultKind.INFRA, FaultKind.VERIFIER)
    fault = next((fault for fault in trajectory.faults if fault.kind in kinds), None)
    return f"a fault of {fault.source}: {fault.message}" if fault else ""


def ended(trajectory: Trajectory) -> bool:
    """Whether the policy ended it, and no budget or fault."""
    return trajectory.stop in (StopReason.FINAL_ANSWER, StopReason.NO_TOOL_CALL, StopReason.ENV_DONE)


def mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers)


def of(count: int, total: int, what: str) -> str:
    """``3 of 8 episodes``."""
    return f"{count} of {total} {what}{'' if total == 1 else 's'}"
