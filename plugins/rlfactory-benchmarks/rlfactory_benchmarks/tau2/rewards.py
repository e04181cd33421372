"""The reward of a conversation: what the package's own evaluators give for its messages."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from rlfactory_benchmarks.tau2.episode import INFO
from rlfactory_benchmarks.tau2.official import MENDED, official, task
from rlfactory_core import Sample, Score, Trajectory, Verdict

__all__ = ["Official"]


class Official:
    """1 if all that the task's reward is based on is met: database, assertions, actions, communicated facts.

    An attempt whose conversation did not come to its end earns 0, as in the package. Each part is a component.
    """

    name = "tau2"
    deadline_s = 600.0  # the evaluator makes two databases of up to 7 MB; many attempts may wait for the processor

    def __init__(self) -> None:
        official()  # imported here, because threads would import it at once

    async def score(self, trajectory: Trajectory) -> Score:
        ended = trajectory.info.get(INFO)
        if ended is None:
            return _score(0.0, ["the attempt ended before the conversation"])
        return await asyncio.to_thread(evaluate, trajectory.sample, ended)


def evaluate(sample: Sample, ended: Mapping[str, Any]) -> Score:
    """The package's verdict.

    Args:
        ended: why the conversation ended, and its messages.
    """
    code, domain, name = official(), sample.metadata["domain"], sample.metadata["task"]
    about = {"id": "", "task_id": name, "start_time": "", "end_time": "", "duration": 0.0}
    simulation = code.simulation.SimulationRun(
        **about, termination_reason=ended["termination"], messages=ended["messages"]
    )
    kind, solo = code.evaluator.EvaluationType.ALL, sample.metadata["solo"]
    try:
        found = code.evaluator.evaluate_simulation(simulation, task(domain, name), kind, solo, MENDED + domain)
    except (MemoryError, OSError):
        raise
    except Exception as error:  # noqa: BLE001 the boundary to the evaluator: the package scores such a conversation 0
        return _score(0.0, [f"the evaluator raised {type(error).__name__}: {error!s:.300}"])
    parts = {kind.value.lower(): float(value) for kind, value in (found.reward_breakdown or {}).items()}
    if not parts:
        return _score(float(found.reward), [(found.info or {}).get("note", "")])
    missed = [f"not met: {name}" for name, value in parts.items() if value < 1.0]
    missed += [f"assertion: {each.env_assertion.func_name}" for each in found.env_assertions or () if not each.met]
    missed += [f"action: {each.action.name}" for each in found.action_checks or () if not each.action_match]
    missed += [f"fact: {each.info}" for each in found.communicate_checks or () if not each.met]
    return _score(float(found.reward), missed[:20], parts)


def _score(value: float, missed: Sequence[str], parts: Mapping[str, float] | None = None) -> Score:
    passed = value >= 1.0
    return Score(value, parts or {}, verdicts={"tau2": Verdict(passed, () if passed else tuple(missed))})
