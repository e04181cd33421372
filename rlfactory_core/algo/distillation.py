"""On-policy distillation by sampled tokens: the credit of one is how much likelier a teacher finds it than the policy.

With log p of the policy and log q of the teacher, log q - log p of a sampled token estimates the negative KL(p || q) of
its prefix. As an advantage it moves the policy to the teacher on what the policy itself samples: the reverse KL of
MiniLLM (Gu et al. 2023, arXiv 2306.08543) and of GKD (Agarwal et al. 2023, arXiv 2306.13649), as a policy gradient
(Lu et al. 2025, "On-Policy Distillation", Thinking Machines Lab). With ``train.teacher_top`` the KL is in the loss
instead, see `losses.objective.likely_kl`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from math import fsum

from rlfactory_core.algo.advantages import Advantage, Credit
from rlfactory_core.algo.batch import by_token
from rlfactory_core.types import Trajectory


@dataclass(frozen=True, slots=True)
class TeacherCredit:
    """An `Advantage` for each token, of trajectories that have their teacher's log-probs.

    The baseline of an attempt is the mean over the tokens of its group's other attempts, which leaves the expected
    gradient as it is (leave-one-out, Kool et al. 2019). Without it nearly every token would be pushed down.

    Args:
        discount: of a later token's credit. 0, as in the last source: the gradient is that of the KL at each prefix,
            and leaves out that a token changes what comes after it. 1: that of the KL of whole trajectories.
        reward: the advantage of the rewards, which is added with ``weight``.
        compared: the loss compares the teacher's likeliest ids, so that the sampled ones get no credit from it.
    """

    discount: float = 0.0
    reward: Advantage | None = None
    weight: float = 0.0
    compared: bool = False

    def __call__(self, trajectories: Sequence[Trajectory], credit: Credit) -> list[list[Sequence[float]]]:
        found = [self._credits(trajectory) for trajectory in trajectories]
        sums = [fsum(tokens) for tokens in found]
        total, count = fsum(sums), sum(map(len, found))
        rewarded = self.reward(trajectories, credit) if self.reward is not None and self.weight else None
        advantages: list[list[Sequence[float]]] = []
        for number, (trajectory, tokens) in enumerate(zip(trajectories, found, strict=True)):
            others = count - len(tokens)
            left = iter(tokens)
            baseline = (total - sums[number]) / others if others else 0.0
            turns = [[each - baseline for each in islice(left, len(turn.sampled_ids))] for turn in trajectory.turns]
            if rewarded is not None:
                added = map(by_token, trajectory.turns, rewarded[number])
                turns = [
                    [each + self.weight * more for each, more in zip(own, reward, strict=True)]
                    for own, reward in zip(turns, added, strict=True)
                ]
            advantages.append([*turns])
        return advantages

    def _credits(self, trajectory: Trajectory) -> list[float]:
        """Of all tokens in the order in which they were sampled, in whatever row."""
        if self.compared:
            return [0.0] * trajectory.num_sampled
        found = [
            teacher - policy
            for turn in trajectory.turns
            for teacher, policy in zip(turn.teacher_logprobs, turn.logprobs, strict=True)
        ]
        if self.discount:
            for place in range(len(found) - 2, -1, -1):
                found[place] += self.discount * found[place + 1]
        return found
