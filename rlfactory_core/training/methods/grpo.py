"""GRPO and its kin: the attempts of a group are compared with each other. PPO differs in who compares: a critic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from rlfactory_core.algo.advantages import GAE, Advantage, Credit
from rlfactory_core.algo.batch import build_batches
from rlfactory_core.algo.masking import is_trained
from rlfactory_core.algo.settings import TrainConfig
from rlfactory_core.algo.turn_advantages import turn_rewards
from rlfactory_core.types import Group, TrainBatch, Trajectory
from rlfactory_core.utils.seeds import derive_seed


@dataclass(frozen=True, slots=True)
class GroupComparison:
    """A `Method` whose advantages follow from the rewards of a group.

    Args:
        advantage: of the turns of a group's attempts.
        max_tokens: the most tokens of an attempt.
        rank: of this process, for the seed that shuffles its batches.
    """

    train: TrainConfig
    advantage: Advantage
    max_tokens: int
    seed: int
    rank: int = 0
    plays: ClassVar[bool] = True

    @property
    def credit(self) -> Credit:
        return Credit(self.train.gamma, self.train.turn_weight)

    def teaches_nothing(self, group: Group) -> bool:
        """Whether all advantages of a group are 0; False for a group that lost too many attempts to faults."""
        live = [trajectory for trajectory in group.trajectories if not trajectory.masked]
        return is_trained(group) and not any(map(any, self.advantage(live, self.credit)))

    def batches(self, groups: Sequence[Group], step: int) -> Sequence[TrainBatch]:
        return build_batches(
            groups,
            advantage=self.advantage,
            credit=self.credit,
            zeros=self.train.advantage == GAE or self.train.likely > 0,
            aggregation=self.train.aggregation,
            max_tokens=self.max_tokens,
            updates=self.train.updates_per_step,
            seed=derive_seed(self.seed, "batch", step, self.rank),
        )

    def left_out(self, groups: Sequence[Group]) -> Sequence[Trajectory]:
        return ()

    def metrics(self, groups: Sequence[Group]) -> Mapping[str, float]:
        return {}


def rewards_of_turns(trajectories: Sequence[Trajectory], _credit: Credit) -> list[list[float]]:
    """The `Advantage` of ``gae``: what each turn earned, which the engine's critic compares with its estimates."""
    return [turn_rewards(each) for each in trajectories]
