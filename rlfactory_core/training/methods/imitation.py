"""What an attempt did becomes likelier: demonstrations (sft), or the policy's own attempts that are worth it (rft)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rlfactory_core.algo.advantages import Credit
from rlfactory_core.algo.batch import build_batches
from rlfactory_core.algo.masking import is_trained
from rlfactory_core.algo.settings import TrainConfig
from rlfactory_core.algo.stages import STAGE_METHODS
from rlfactory_core.types import Group, TrainBatch, Trajectory
from rlfactory_core.utils.seeds import derive_seed


@dataclass(frozen=True, slots=True)
class Imitation:
    """A `Method` that gives each turn of the attempts that are learnt from the advantage 1.

    Supervised fine-tuning; with the policy's own attempts it is rejection sampling fine-tuning (RAFT, Dong et al. 2023,
    arXiv 2304.06767; RFT, Yuan et al. 2023, arXiv 2308.01825).

    Args:
        worth: whether an attempt is learnt from.
        most: of one group, the first ones that are; 0: all.
        rank: of this process, for the seed that shuffles its batches.
    """

    train: TrainConfig
    worth: Callable[[Trajectory], bool]
    most: int
    seed: int
    rank: int = 0

    @property
    def plays(self) -> bool:
        return STAGE_METHODS[self.train.method].plays

    def teaches_nothing(self, group: Group) -> bool:
        return is_trained(group) and not self._chosen(group.trajectories)

    def batches(self, groups: Sequence[Group], step: int) -> Sequence[TrainBatch]:
        """The same attempts for each update, in another order."""
        return [
            batch
            for update in range(self.train.updates_per_step)
            for batch in build_batches(
                groups,
                advantage=self._advantage,
                aggregation=self.train.aggregation,
                updates=1,
                seed=derive_seed(self.seed, "batch", step, self.rank, update),
            )
        ]

    def left_out(self, groups: Sequence[Group]) -> list[Trajectory]:
        """The demonstrations that are not learnt from; none if the policy plays, where this is usual."""
        return [] if self.plays else self._others(groups)

    def _others(self, groups: Sequence[Group]) -> list[Trajectory]:
        """The attempts that are neither learnt from nor masked by a fault."""
        kept = {id(each) for group in groups for each in self._chosen(group.trajectories)}
        return [each for group in groups for each in group.trajectories if not each.masked and id(each) not in kept]

    def _advantage(self, trajectories: Sequence[Trajectory], _credit: Credit) -> list[list[float]]:
        chosen = {id(each) for each in self._chosen(trajectories)}
        return [[float(id(each) in chosen)] * len(each.turns) for each in trajectories]

    def _chosen(self, trajectories: Sequence[Trajectory]) -> Sequence[Trajectory]:
        found = [each for each in trajectories if not each.masked and each.num_sampled and self.worth(each)]
        return found[: self.most or None]

    def metrics(self, groups: Sequence[Group]) -> Mapping[str, float]:
        """The numbers of attempts that are learnt from and left out."""
        out = len(self._others(groups))
        kept = sum(len(self._chosen(group.trajectories)) for group in groups)
        return {"learnt_from": float(kept), "left_out": float(out)}
