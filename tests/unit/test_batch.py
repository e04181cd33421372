"""Batches: what is left out, and how the rest is cut."""

from __future__ import annotations

import pytest

from rlfactory_core.algo.advantages import DR_GRPO
from rlfactory_core.algo.batch import Aggregation, build_batches
from rlfactory_core.types import (
    Fault,
    FaultKind,
    Group,
    Message,
    Sample,
    Score,
    StopReason,
    TrainBatch,
    TrainSequence,
    Trajectory,
    Turn,
)

FAULT = Fault(FaultKind.INFRA, "search", "timeout")


def trajectory(reward: float, *, masked: bool = False, size: int = 3, turns: int = 2) -> Trajectory:
    turn = Turn((1,) * size, (2,) * size, (-0.5,) * size, Message("assistant", ""), version=size)
    return Trajectory(
        Sample("s", "?"),
        0,
        (turn,) * turns,
        StopReason.FINAL_ANSWER,
        faults=(FAULT,) if masked else (),
        score=Score(reward),
    )


def group(*members: Trajectory) -> Group:
    return Group(Sample("s", "?"), members)


def build(groups: list[Group], *, updates: int = 1, seed: int = 0):
    return build_batches(groups, advantage=DR_GRPO, updates=updates, seed=seed)


def tokens(batch: TrainBatch) -> int:
    return sum(sum(sequence.loss_mask) for sequence in batch.sequences)


def rows(batches) -> list[TrainSequence]:
    return [row for batch in batches for row in batch.sequences]


def test_masked_and_all_equal_are_left_out() -> None:
    groups = [
        group(trajectory(1.0), trajectory(0.0), trajectory(0.5), trajectory(9.0, masked=True)),
        group(trajectory(1.0), trajectory(1.0)),
        group(trajectory(1.0, masked=True), trajectory(0.0, masked=True)),
    ]
    batches = build(groups)
    assert sorted(max(row.advantages, key=abs) for row in rows(batches)) == [-0.5, 0.5]  # 9.0 is in no mean
    assert sum(tokens(batch) for batch in batches) == 2 * 6


def test_a_group_of_which_more_than_a_third_is_masked_is_left_out() -> None:
    left = [trajectory(1.0), trajectory(0.0), trajectory(0.0), trajectory(0.0)]
    assert len(rows(build([group(*left, trajectory(1.0, masked=True), trajectory(1.0, masked=True))]))) == 4
    assert build([group(*left[:3], trajectory(1.0, masked=True), trajectory(1.0, masked=True))]) == ()


def test_a_sequence_is_the_trajectory_with_advantages_on_sampled_ids_only() -> None:
    (batch,) = build([group(trajectory(1.0), trajectory(0.0))])
    for row in rows([batch]):
        value = row.advantages[-1]
        assert row.ids == (1, 1, 1, 2, 2, 2) * 2
        assert row.loss_mask == (0, 0, 0, 1, 1, 1) * 2
        assert row.advantages == (0.0, 0.0, 0.0, value, value, value) * 2
        assert abs(value) == 0.5
        assert row.logprobs == (0.0, 0.0, 0.0, -0.5, -0.5, -0.5) * 2
        assert row.version == 3


def test_updates_share_the_sequences_evenly_and_none_is_empty() -> None:
    groups = [group(trajectory(1.0), trajectory(0.0)) for _ in range(7)]
    batches = build(groups, updates=4)
    assert sorted(len(rows([batch])) for batch in batches) == [3, 3, 4, 4]
    assert sum(tokens(batch) for batch in batches) == 14 * 6
    assert len(build(groups[:1], updates=4)) == 2
    assert build([group(trajectory(1.0), trajectory(1.0))]) == ()
    assert build([]) == ()


def test_the_seed_alone_decides_the_order() -> None:
    groups = [group(*(trajectory(float(i == j), size=j + 1) for i in range(4))) for j in range(8)]
    assert build(groups, updates=4, seed=3) == build(groups, updates=4, seed=3)
    assert build(groups, updates=4, seed=3) != build(groups, updates=4, seed=4)


def test_a_trajectory_that_sampled_nothing_is_not_trained() -> None:
    assert len(rows(build([group(trajectory(1.0, turns=0), trajectory(0.0))]))) == 1


@pytest.mark.parametrize(("aggregation", "shares"), [("token", [1 / 8, 7 / 8]), ("trajectory", [1 / 2, 1 / 2])])
def test_what_weighs_the_same_in_the_loss(aggregation: Aggregation, shares: list[float]) -> None:
    members = group(trajectory(1.0, size=2), trajectory(0.0, size=14))
    (batch,) = build_batches([members], advantage=DR_GRPO, updates=1, seed=0, aggregation=aggregation)
    found = sorted(sum(map(abs, row.advantages)) for row in rows([batch]))
    assert [each / sum(found) for each in found] == pytest.approx(shares)
    assert sum(found) == pytest.approx(0.5 * tokens(batch))  # the learning rate means the same
