"""Makes the batches of one training step from scored groups."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Literal

from rlfactory_core.algo.advantages import NO_DISCOUNT, Advantage, Credit
from rlfactory_core.algo.masking import is_trained
from rlfactory_core.types import Group, Row, TrainBatch, TrainSequence, Trajectory, Turn

Aggregation = Literal["token", "trajectory", "constant"]


def build_batches(
    groups: Iterable[Group],
    *,
    advantage: Advantage,
    updates: int,
    seed: int,
    aggregation: Aggregation = "token",
    max_tokens: int = 1,
    credit: Credit = NO_DISCOUNT,
    zeros: bool = False,
) -> tuple[TrainBatch, ...]:
    """Compute advantages, select the sequences with a gradient, shuffle them by ``seed``, and cut them into batches.

    A group that has lost too many of its attempts is left out; see `masking`.
    There are at most ``updates`` batches, whose numbers of trajectories differ by at most one. None is empty, so there
    are fewer if too few trajectories have a gradient. All rows of a trajectory are in one batch, and have one weight
    (`trajectory_weights`), so that a trajectory does not weigh more because it was cut into rows.

    Args:
        zeros: whether attempts are kept whose values are all 0; a critic learns from them.
        max_tokens: the most tokens that a trajectory may have, for the aggregation ``constant``.
    """
    with_gradient: list[tuple[Trajectory, list[Sequence[float]]]] = []
    for group in filter(is_trained, groups):
        live = [trajectory for trajectory in group.trajectories if not trajectory.masked]
        for trajectory, values in zip(live, advantage(live, credit), strict=True):
            tokens = [by_token(*each) for each in zip(trajectory.turns, values, strict=True)]
            if trajectory.num_sampled and (zeros or any(map(any, tokens))):
                with_gradient.append((trajectory, tokens))
    weights = trajectory_weights(aggregation, [each.num_sampled for each, _ in with_gradient], max_tokens)
    trajectories = [
        [_sequence(row, own, weight) for row, own in _by_row(trajectory, tokens)]
        for (trajectory, tokens), weight in zip(with_gradient, weights, strict=True)
    ]
    random.Random(seed).shuffle(trajectories)
    parts = min(updates, len(trajectories))
    return tuple(
        TrainBatch(tuple(row for rows in trajectories[index::parts] for row in rows)) for index in range(parts)
    )


def by_token(turn: Turn, value: float | Sequence[float]) -> Sequence[float]:
    """What an `Advantage` gives a turn, for each of its sampled tokens."""
    return [value] * len(turn.sampled_ids) if isinstance(value, (int, float)) else value


def _by_row(trajectory: Trajectory, tokens: Sequence[Sequence[float]]) -> Iterator[tuple[Row, list[Sequence[float]]]]:
    by_row: dict[int, list[Sequence[float]]] = {}
    for turn, values in zip(trajectory.turns, tokens, strict=True):
        by_row.setdefault(turn.row, []).append(values)
    return zip(trajectory.rows, by_row.values(), strict=True)


def _sequence(row: Row, tokens: Sequence[Sequence[float]], weight: float) -> TrainSequence:
    """With the advantage of each turn's sampled tokens, times ``weight``."""
    advantages: list[float] = []
    for turn, values in zip(row.turns, tokens, strict=True):
        advantages += [0.0] * len(turn.context_ids) + [value * weight for value in values]
    return TrainSequence(
        ids=row.ids,
        loss_mask=row.loss_mask,
        advantages=tuple(advantages),
        logprobs=row.logprobs,
        version=min(turn.version for turn in row.turns),
        images=row.images,
        taught=tuple(chain.from_iterable(turn.taught for turn in row.turns)),
    )


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
