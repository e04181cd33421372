"""How much each trajectory weighs in the loss."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from reporting_examples import make_trajectory

from rlfactory_core.algo.batch import trajectory_weights
from rlfactory_core.errors import ConfigError
from rlfactory_core.rewards.scorers import Overlong

TOKENS = [10, 30, 0, 20]


def test_each_token_each_trajectory_or_each_sum_weighs_the_same() -> None:
    total, live = sum(TOKENS), 3
    assert trajectory_weights("token", TOKENS) == [1.0] * 4
    by_trajectory = trajectory_weights("trajectory", TOKENS)
    shares = [weight * count / total for weight, count in zip(by_trajectory, TOKENS, strict=True)]
    assert shares == pytest.approx([1 / live, 1 / live, 0.0, 1 / live])
    by_sum = trajectory_weights("constant", TOKENS, 100)
    assert len(set(by_sum)) == 1
    assert by_sum[0] / total == pytest.approx(1 / (live * 100))  # the sum over its tokens, over N x limit


def test_the_overlong_punishment_is_soft() -> None:
    one = make_trajectory()
    turn = replace(one.turns[0], sampled_ids=(1,) * 80, logprobs=(-1.0,) * 80)
    long = replace(one, turns=(turn,))
    found = [
        asyncio.run(Overlong(limit, buffer).score(long)).value for limit, buffer in ((200, 100), (100, 40), (60, 20))
    ]
    assert found == [0.0, -0.5, -1.0]
    with pytest.raises(ConfigError, match="got limit=10 and buffer=20"):
        Overlong(10, 20)
