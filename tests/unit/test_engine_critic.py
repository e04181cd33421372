"""The critic: estimates worked out by hand, and values that follow the returns."""

from __future__ import annotations

from statistics import fmean, pstdev

import pytest

torch = pytest.importorskip("torch", reason="needs rlfactory-core[local]")

from tiny_models import make_model  # noqa: E402

from rlfactory_core.engines.local.learning.critic import Critic, at_turn_ends, gae  # noqa: E402
from rlfactory_core.engines.local.learning.optimizer import OptimizerOptions  # noqa: E402
from rlfactory_core.engines.local.model.pack import pack  # noqa: E402
from rlfactory_core.engines.local.model.policy import RaggedPolicy  # noqa: E402
from rlfactory_core.engines.local.workers import Workers  # noqa: E402
from rlfactory_core.types import TrainSequence  # noqa: E402


def sequence(reward: float, first: int = 3) -> TrainSequence:
    """Two turns of two tokens with an observation of two between them; both turns earn the reward."""
    mask = (0, 0, 1, 1, 0, 0, 1, 1)
    ids = tuple(range(first, first + 8))
    return TrainSequence(ids, mask, tuple(reward * own for own in mask), tuple(-0.5 * own for own in mask))


def test_a_reward_is_on_the_last_token_of_its_turn() -> None:
    packed = pack([sequence(1.0), sequence(2.0, 5)], torch.device("cpu"), share_prefix=False)
    assert at_turn_ends(packed).tolist() == [0.0, 1.0, 0.0, 1.0, 0.0, 2.0, 0.0, 2.0]


def test_estimates_are_those_worked_out_by_hand() -> None:
    values, rewards = torch.tensor([0.5, 0.2, 0.1, 9.0]), torch.tensor([0.0, 1.0, 2.0, 1.0])
    found = gae(values, rewards, torch.tensor([0, 0, 0, 1]), gamma=0.9, lam=0.5)
    third = 2.0 - 0.1
    second = 1.0 + 0.9 * 0.1 - 0.2 + 0.45 * third
    first = 0.9 * 0.2 - 0.5 + 0.45 * second
    assert found.tolist() == pytest.approx([first, second, third, 1.0 - 9.0])
    whole = gae(values, rewards, torch.tensor([0, 0, 0, 1]))
    assert (whole + values).tolist() == pytest.approx([3.0, 3.0, 2.0, 1.0])


@pytest.mark.slow
def test_values_follow_the_returns_and_advantages_are_whitened() -> None:
    torch.manual_seed(0)
    policy = RaggedPolicy(make_model("qwen3"))
    before = {name: value.clone() for name, value in policy.model.state_dict().items()}
    critic = Critic(policy, OptimizerOptions(lr=3e-3), Workers(), gamma=1.0, lam=1.0, seed=1)
    packed = [pack([sequence(1.0), sequence(0.0, 5)], torch.device("cpu"), share_prefix=False)]
    losses = []
    for _ in range(60):
        (changed,) = critic.estimate([packed])
        losses.append(critic.step(changed))
    white = changed[0].advantages.tolist()
    assert fmean(white) == pytest.approx(0.0, abs=1e-5)
    assert pstdev(white) == pytest.approx((7 / 8) ** 0.5, abs=1e-4)
    assert losses[-1] < 0.1 * losses[0]
    values = changed[0].values.tolist()
    assert values[:2] == pytest.approx([2.0, 2.0], abs=0.5)
    assert values[4:] == pytest.approx([0.0] * 4, abs=0.5)
    assert all(torch.equal(value, before[name]) for name, value in policy.model.state_dict().items())
