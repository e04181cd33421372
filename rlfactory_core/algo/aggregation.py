"""How much each trajectory weighs in the loss, by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

Aggregation = Literal["token", "trajectory", "constant"]


def trajectory_weights(name: Aggregation, tokens: Sequence[int], limit: int = 1) -> list[float]:
    """Factors for the advantages of a step's trajectories; the loss is the mean over all their sampled tokens.

    ``token``: 1, so that each token weighs the same (DAPO, Yu et al. 2025, arXiv 2503.14476). ``trajectory``: the mean
    number of tokens over the trajectory's own, so that each trajectory weighs the same, whatever its number of tokens
    and of rows: the mean over trajectories of the mean over their tokens (GRPO, Shao et al. 2024, arXiv 2402.03300).
    ``constant``: the mean number of tokens over ``limit``, so that a trajectory's sum is divided by the same number
    however long it is (Dr. GRPO, Liu et al. 2025, arXiv 2503.20783).

    Args:
        tokens: sampled, in all rows of each trajectory.
        limit: the most tokens that a trajectory may have.
    """
    if name == "token":
        return [1.0] * len(tokens)
    mean = sum(tokens) / max(1, sum(count > 0 for count in tokens))
    if name == "constant":
        return [mean / limit] * len(tokens)
    return [mean / count if count else 0.0 for count in tokens]
