"""A trajectory that is cut into rows has the same gradient as the uncut one, where the contexts are the same."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tiny_models import make_model

from rlfactory_core.algo.advantages import GRPO
from rlfactory_core.algo.batch import Aggregation, build_batches
from rlfactory_core.algo.losses import LossOptions
from rlfactory_core.engines.local.learning.learner import Learner
from rlfactory_core.engines.local.learning.optimizer import Optimizer, OptimizerOptions
from rlfactory_core.engines.local.model.policy import RaggedPolicy
from rlfactory_core.engines.local.workers import Workers
from rlfactory_core.types import Group, Message, Sample, Score, StopReason, Trajectory, Turn

PROMPT, SAID, OBSERVED, ANSWER = (5, 6, 7), (20, 21, 22), (8, 9), (30, 31)
SAMPLE = Sample("s", "?")


def turn(context: tuple[int, ...], sampled: tuple[int, ...], row: int = 0) -> Turn:
    fork = "branch" if row else ""
    return Turn(context, sampled, (-5.7,) * len(sampled), Message("assistant", ""), row=row, fork=fork)


def attempt(reward: float, *turns: Turn) -> Trajectory:
    return Trajectory(SAMPLE, 0, turns, StopReason.FINAL_ANSWER, score=Score(reward))


OTHER = attempt(0.0, turn(PROMPT, (40, 41)))
WHOLE = attempt(1.0, turn(PROMPT, SAID), turn(OBSERVED, ANSWER))
CUT = attempt(1.0, turn(PROMPT, SAID), turn((*PROMPT, *SAID, *OBSERVED), ANSWER, 1))


def gradients(trajectory: Trajectory, updates: int = 1, aggregation: Aggregation = "token") -> list[list[torch.Tensor]]:
    """Of each optimizer step, by parameter."""
    torch.manual_seed(0)
    policy = RaggedPolicy(make_model("qwen3"))
    learner = Learner(policy, Optimizer(policy.model, OptimizerOptions(1e-3)), Workers(), LossOptions())
    found: list[list[torch.Tensor]] = []
    learner.optimizer.step = lambda: (  # type: ignore[method-assign,assignment]
        found.append([each.grad.clone() for each in policy.model.parameters() if each.grad is not None]),
        policy.model.zero_grad(),
        (0.0, True),
    )[-1]
    groups = [Group(SAMPLE, (trajectory, OTHER))]
    for batch in build_batches(groups, advantage=GRPO, updates=updates, seed=3, aggregation=aggregation):
        packed = learner.pack(batch)
        learner.step(packed)
    return found


@pytest.mark.parametrize("aggregation", ["token", "trajectory"])
@pytest.mark.parametrize("updates", [1, 2])
def test_cutting_changes_no_gradient(updates: int, aggregation: Aggregation) -> None:
    whole, cut = gradients(WHOLE, updates, aggregation), gradients(CUT, updates, aggregation)
    assert len(whole) == len(cut) == updates
    for one, other in zip(whole, cut, strict=True):
        for a, b in zip(one, other, strict=True):
            assert torch.allclose(a, b, atol=1e-6)
    assert any(float(each.abs().max()) > 1e-3 for each in whole[0])


def test_a_row_that_saw_something_else_has_another_gradient() -> None:
    """Otherwise the test above would show nothing."""
    first, last = CUT.turns
    other = replace(CUT, turns=(first, replace(last, context_ids=(*PROMPT, 50, *OBSERVED))))
    assert not all(
        torch.allclose(a, b, atol=1e-6) for a, b in zip(gradients(WHOLE)[0], gradients(other)[0], strict=True)
    )
