"""Advantages of a group of attempts at the same sample, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import fsum, sqrt

from rlfactory_core.errors import ConfigError, nearest

_EQUAL = 1e-9  # rewards that differ by less are equal: weighted sums carry rounding
_EPS = 1e-6


def grpo(rewards: Sequence[float]) -> list[float]:
    """(r - mean) / (std + 1e-6), std with n - 1: GRPO, Shao et al. 2024 (DeepSeekMath, arXiv 2402.03300)."""
    centred = dr_grpo(rewards)
    std = sqrt(fsum(value * value for value in centred) / max(1, len(rewards) - 1))
    return [value / (std + _EPS) for value in centred]


def dr_grpo(rewards: Sequence[float]) -> list[float]:
    """r - mean, so that easy and hard samples are not blown up: Dr. GRPO, Liu et al. 2025 (arXiv 2503.20783)."""
    mean = fsum(rewards) / len(rewards)
    return [reward - mean for reward in rewards]


def rloo(rewards: Sequence[float]) -> list[float]:
    """r - mean of the others: leave-one-out, Kool et al. 2019; RLOO, Ahmadian et al. 2024 (arXiv 2402.14740)."""
    others = len(rewards) - 1
    total = fsum(rewards)
    return [reward - (total - reward) / others for reward in rewards]


ADVANTAGES: dict[str, Callable[[Sequence[float]], list[float]]] = {"grpo": grpo, "dr_grpo": dr_grpo, "rloo": rloo}


def check_advantage(name: str) -> None:
    """Refuse an unknown name before anything is sampled.

    Raises:
        ConfigError: with the nearest known name.
    """
    if name not in ADVANTAGES:
        raise ConfigError(
            f"train.advantage is {name!r}, which is unknown. {nearest(name, ADVANTAGES)} Another engine may have more."
        )


def all_equal(rewards: Sequence[float]) -> bool:
    """Whether a group of unmasked attempts carries no gradient: none was better than another."""
    return not rewards or max(rewards) - min(rewards) <= _EQUAL


def group_advantages(name: str, rewards: Sequence[float]) -> list[float]:
    """One advantage for each reward of a group's unmasked trajectories; exact zeros if all rewards are equal.

    All tokens of a trajectory get its one advantage. Process rewards are already part of its reward.

    Raises:
        ConfigError: an unknown name, with the nearest known one.
    """
    check_advantage(name)
    return [0.0] * len(rewards) if all_equal(rewards) else ADVANTAGES[name](rewards)
