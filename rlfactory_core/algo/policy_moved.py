"""The policy-moved proof: after an update the sampler has the new weights, and not the old ones.

A sampler with stale weights trains on, and learns little or nothing; without the proof that shows late, if at all
(verl issue 7495, ms-swift issue 9855). So each start and each resume compares log-probs of the same tokens in the
sampler, under the policy before the updates and under the policy after them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum

from rlfactory_core.errors import TrainingError

MARGIN = 3.0  # the policy has moved measurably if by so many times the difference between sampler and trainer before
LEAST = 1e-6  # nats; rounding in float32


@dataclass(frozen=True, slots=True)
class Moved:
    """Mean absolute differences of log-probs, in nats, over the same tokens."""

    step: int  # whose update was the last
    moved: float  # of the policy after the updates to the policy before
    to_new: float  # of the sampler to the policy after the updates
    to_old: float  # of the sampler to the policy before
    noise: float  # of the sampler to the trainer before any update, with the same weights

    @classmethod
    def of(cls, step: int, sampler: Sequence[float], old: Sequence[float], new: Sequence[float], noise: float) -> Moved:
        """From log-probs of the same tokens."""
        return cls(step, difference(new, old), difference(sampler, new), difference(sampler, old), noise)

    @property
    def measurable(self) -> bool:
        """Whether the policy has moved by more than what sampler and trainer differ by anyway."""
        return self.moved > max(LEAST, MARGIN * self.noise)

    def check(self) -> None:
        """Raises a `TrainingError` if the sampler is nearer to the old policy than to the new one."""
        if self.measurable and self.to_old <= self.to_new:
            raise TrainingError(
                f"The sampler does not have the trained weights. After the update of step {self.step} the log-probs of "
                f"tokens just trained had moved by {self.moved:.3g} nats in the trainer. Those of the sampler differ "
                f"by {self.to_new:.3g} from the new policy and by {self.to_old:.3g} from the old one. The run would "
                "sample from weights that never change. This is a fault of the engine or of what transfers the "
                "weights; the checkpoints before this step are intact."
            )


def difference(these: Sequence[float], others: Sequence[float]) -> float:
    """The mean absolute difference of log-probs of the same tokens."""
    return fsum(abs(a - b) for a, b in zip(these, others, strict=True)) / len(these) if these else 0.0
