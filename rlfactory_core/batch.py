"""From scored groups to the batches of one training step."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rlfactory_core.advantages import all_equal, check_advantage, group_advantages
from rlfactory_core.types import Group, TrainBatch, TrainSequence, Trajectory


@dataclass(frozen=True, slots=True)
class BatchStats:
    """What became of one step's trajectories."""

    groups: int
    all_equal_groups: int  # with unmasked trajectories, all of the same reward: no gradient
    trajectories: int
    masked: int  # spoilt by an infra or verifier fault: left out of statistics and update
    trained: int  # in the batches; the others are masked, or their advantage is 0, or nothing was sampled
    sampled_tokens: int  # of all trajectories
    trained_tokens: int  # sampled tokens in the batches


def build_batches(
    groups: Iterable[Group], *, advantage: str, updates: int, microbatch_tokens: int, seed: int
) -> tuple[tuple[TrainBatch, ...], BatchStats]:
    """Advantages, selection, shuffling and cutting.

    Sequences are shuffled by ``seed`` and dealt to at most ``updates`` batches whose sizes differ by at most one;
    none is empty, so fewer batches, or none, come back where too few sequences carry a gradient. Within a batch,
    micro-batches hold sequences of like length, and rows x longest stays within ``microbatch_tokens``; a sequence
    longer than that has a micro-batch of its own.

    Raises:
        ConfigError: unknown ``advantage``.
    """
    check_advantage(advantage)
    groups = tuple(groups)
    sequences: list[TrainSequence] = []
    flat = 0
    for group in groups:
        live = [trajectory for trajectory in group.trajectories if not trajectory.masked]
        rewards = [trajectory.reward for trajectory in live]
        flat += bool(live) and all_equal(rewards)
        for trajectory, value in zip(live, group_advantages(advantage, rewards), strict=True):
            if value and trajectory.num_sampled:
                sequences.append(_sequence(trajectory, value))
    random.Random(seed).shuffle(sequences)
    batches = tuple(_batch(part, microbatch_tokens) for part in _deal(sequences, updates))
    everything = [trajectory for group in groups for trajectory in group.trajectories]
    stats = BatchStats(
        groups=len(groups),
        all_equal_groups=flat,
        trajectories=len(everything),
        masked=sum(trajectory.masked for trajectory in everything),
        trained=len(sequences),
        sampled_tokens=sum(trajectory.num_sampled for trajectory in everything),
        trained_tokens=sum(batch.num_tokens for batch in batches),
    )
    return batches, stats


def _sequence(trajectory: Trajectory, advantage: float) -> TrainSequence:
    advantages: list[float] = []
    for turn in trajectory.turns:
        advantages += [0.0] * len(turn.context_ids) + [advantage] * len(turn.sampled_ids)
    return TrainSequence(
        ids=trajectory.ids,
        loss_mask=trajectory.loss_mask,
        advantages=tuple(advantages),
        logprobs=trajectory.logprobs,
        version=min(turn.version for turn in trajectory.turns),
    )


def _deal(sequences: Sequence[TrainSequence], updates: int) -> list[Sequence[TrainSequence]]:
    parts = min(updates, len(sequences))
    return [sequences[index::parts] for index in range(parts)]


def _batch(sequences: Sequence[TrainSequence], budget: int) -> TrainBatch:
    rows: list[TrainSequence] = []
    microbatches: list[tuple[TrainSequence, ...]] = []
    for sequence in sorted(sequences, key=lambda item: len(item.ids), reverse=True):
        if rows and (len(rows) + 1) * len(rows[0].ids) > budget:
            microbatches.append(tuple(rows))
            rows = []
        rows.append(sequence)
    if rows:
        microbatches.append(tuple(rows))
    return TrainBatch(tuple(microbatches), sum(sum(sequence.loss_mask) for sequence in sequences))
