"""Advantages of a group of attempts at the same sample, one for each turn, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import fsum, sqrt

from rlfactory_core.errors import ConfigError, nearest
from rlfactory_core.types import Trajectory

_EQUAL = 1e-9  # rewards that differ by less are equal: weighted sums carry rounding
EPS = 1e-6
LARGEST_REWARD = 1e30  # of a scorer or a step: squares and sums of larger ones, or their float32, are not finite


@dataclass(frozen=True, slots=True)
class Credit:
    """The keys of ``train`` that an advantage by turn reads."""

    gamma: float = 1.0  # discount of a later turn's reward
    turn_weight: float = 1.0  # of gigpo's comparison of turns, beside that of whole attempts


NO_DISCOUNT = Credit()

Advantage = Callable[[Sequence[Trajectory], Credit], Sequence[Sequence[float | Sequence[float]]]]
"""Gives each attempt of a group one number for each turn, which all tokens of the turn get, or one for each token.

It gets the attempts that no fault masks, two or more. It is registered by ``rlfactory_advantages``.
"""

GAE = "gae"
"""The advantage that a critic estimates, token by token, instead of comparing a group's attempts."""


def grpo(rewards: Sequence[float]) -> list[float]:
    """(r - mean) / (std + 1e-6), std with n - 1: GRPO, Shao et al. 2024 (DeepSeekMath, arXiv 2402.03300)."""
    centred = dr_grpo(rewards)
    std = sqrt(fsum(value * value for value in centred) / max(1, len(rewards) - 1))
    return [value / (std + EPS) for value in centred]


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
"""Those of whole attempts."""


def all_equal(rewards: Sequence[float]) -> bool:
    """Whether a group of unmasked attempts carries no gradient: none was better than another."""
    return not rewards or max(rewards) - min(rewards) <= _EQUAL


def group_advantages(name: str, rewards: Sequence[float]) -> list[float]:
    """One advantage for each reward of a group's unmasked trajectories; exact zeros if all rewards are equal.

    All tokens of a trajectory get its one advantage. Process rewards are already part of its reward.

    Raises:
        ConfigError: an unknown name, with the nearest known one.
    """
    if name not in ADVANTAGES:
        raise ConfigError(
            f"train.advantage is {name!r}, which is unknown. {nearest(name, ADVANTAGES)} Another engine may have more."
        )
    return [0.0] * len(rewards) if all_equal(rewards) else ADVANTAGES[name](rewards)


@dataclass(frozen=True, slots=True)
class WholeAttempts:
    """An `Advantage` whose turns all have that of their attempt."""

    name: str  # in `ADVANTAGES`

    def __call__(self, trajectories: Sequence[Trajectory], _credit: Credit) -> list[list[float]]:
        values = group_advantages(self.name, [trajectory.reward for trajectory in trajectories])
        return [[value] * len(each.turns) for each, value in zip(trajectories, values, strict=True)]


GRPO, DR_GRPO, RLOO = WholeAttempts("grpo"), WholeAttempts("dr_grpo"), WholeAttempts("rloo")
