"""Advantages against numbers worked out by hand."""

from __future__ import annotations

import statistics

import pytest

from rlfactory_core.algo.advantages import group_advantages
from rlfactory_core.errors import ConfigError


def test_grpo_divides_by_the_sample_deviation() -> None:
    rewards = [0.0, 0.0, 1.0, 1.1]
    std = statistics.stdev(rewards)
    expected = [(r - statistics.mean(rewards)) / (std + 1e-6) for r in rewards]
    assert group_advantages("grpo", rewards) == pytest.approx(expected)


def test_dr_grpo_only_centres() -> None:
    assert group_advantages("dr_grpo", [0.0, 1.0, 0.5]) == pytest.approx([-0.5, 0.5, 0.0])


def test_rloo_compares_with_the_others() -> None:
    assert group_advantages("rloo", [0.0, 1.0, 0.5]) == pytest.approx([-0.75, 0.75, 0.0])


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "rloo"])
@pytest.mark.parametrize("rewards", [[], [1.0], [0.1 + 0.2, 0.3], [1.1] * 8])
def test_equal_rewards_give_exact_zeros(name: str, rewards: list[float]) -> None:
    assert group_advantages(name, rewards) == [0.0] * len(rewards)


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'dr_grpo'"):
        group_advantages("drgrpo", [0.0, 1.0])
