"""Credit by turn: worked examples, and exact expectations of the policy gradient over all outcomes of a small task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import exp, fsum, prod, sqrt

import pytest

from rlfactory_core.algo.advantages import GRPO, Advantage, Credit
from rlfactory_core.algo.batch import build_batches
from rlfactory_core.algo.turn_advantages import gigpo, returns_to_go, turn_grpo, turn_rewards, turn_rloo
from rlfactory_core.types import Group, Message, Sample, Score, StopReason, Trajectory, Turn

EACH = Credit()


def attempt(
    rewards: Sequence[float], outcome: float = 0.0, states: str = "", process: Sequence[float] = ()
) -> Trajectory:
    turns = tuple(
        Turn(
            (10 + number,),
            (1, 2),
            (-0.5, -0.5),
            Message("assistant", ""),
            reward=reward,
            state=states[number : number + 1],
        )
        for number, reward in enumerate(rewards)
    )
    return Trajectory(
        Sample("s", "?"), 0, turns, StopReason.ENV_DONE, score=Score(outcome, turn_rewards=tuple(process))
    )


def test_a_turn_earns_the_environments_and_the_process_reward_and_the_last_one_the_outcome() -> None:
    assert turn_rewards(attempt([0.5, 0.0], outcome=1.0, process=[0.1, 0.2])) == pytest.approx([0.6, 1.2])
    assert returns_to_go([1.0, 0.0, 2.0], 0.5) == pytest.approx([1.5, 1.0, 2.0])


def test_a_turn_is_compared_with_the_same_turn_of_the_others_that_got_as_far() -> None:
    group = [attempt([1.0, 0.0], 1.0), attempt([0.0, 0.0], 1.0), attempt([0.0])]
    # returns: [2, 1], [1, 1], [0]
    assert turn_rloo(group, EACH) == [[1.5, 0.0], [0.0, 0.0], [-1.5]]
    scale = sqrt((1.5**2 + 1.5**2) / 5)
    assert turn_grpo(group, EACH)[0] == pytest.approx([1.5 / scale, 0.0], abs=1e-5)


def test_a_turn_that_nobody_else_reached_is_compared_by_whole_attempts() -> None:
    assert turn_rloo([attempt([0.0, 3.0]), attempt([1.0])], EACH) == [[2.0, 2.0], [-2.0]]


@pytest.mark.parametrize("advantage", [turn_rloo, turn_grpo, gigpo])
def test_equal_attempts_have_exact_zeros(advantage: Advantage) -> None:
    group = [attempt([0.1, 0.2], 0.3, "ab")] * 4
    assert advantage(group, EACH) == [[0.0, 0.0]] * 4


def test_turns_are_told_apart_where_whole_attempts_are_equal() -> None:
    early, late = attempt([1.0, 0.0]), attempt([0.0, 1.0])
    assert GRPO([early, late], EACH) == [[0.0, 0.0], [0.0, 0.0]]
    assert turn_rloo([early, late], EACH) == [[0.0, -1.0], [0.0, 1.0]]


def test_gigpo_compares_turns_of_one_state_at_any_time() -> None:
    # The second turn of the first attempt and the first two of the second begin in state b.
    group = [attempt([0.0, 0.0], 1.0, "ab"), attempt([0.0, 0.0, 0.0], 0.0, "bbc")]
    whole = GRPO(group, EACH)
    credit = Credit(gamma=0.5, turn_weight=2.0)
    found = gigpo(group, credit)
    returns = [1.0, 0.0, 0.0]
    mean, std = 1 / 3, sqrt(fsum((value - 1 / 3) ** 2 for value in returns) / 2)
    own = [2.0 * (value - mean) / (std + 1e-6) for value in returns]
    assert found[0] == pytest.approx([whole[0][0], whole[0][0] + own[0]])
    assert found[1] == pytest.approx([whole[1][0] + own[1], whole[1][0] + own[2], whole[1][0]])
    assert gigpo(group, Credit(turn_weight=0.0)) == GRPO(group, EACH)


def test_without_a_state_turns_are_compared_by_what_the_model_was_shown() -> None:
    found = gigpo([attempt([0.0, 0.0], 1.0), attempt([0.0, 0.0], 0.0)], EACH)
    assert found[0][0] == pytest.approx(2 / sqrt(2), abs=1e-4)
    assert found[0] == pytest.approx([-value for value in found[1]])


def test_each_token_has_the_advantage_of_its_turn() -> None:
    group = Group(Sample("s", "?"), (attempt([1.0, 0.0]), attempt([0.0, 1.0])))
    (batch,) = build_batches([group], advantage=turn_rloo, updates=1, seed=0)
    rows = sorted(row.advantages for row in batch.sequences)
    assert rows == [(0.0, 0.0, 0.0, 0.0, -1.0, -1.0), (0.0, 0.0, 0.0, 0.0, 1.0, 1.0)]


# A policy goes on with probability p = sigmoid(x), for at most three turns. Each turn earns 1, and stopping after n of
# them earns BONUS[n].
BONUS = (0.0, 2.5, 0.5, 0.0)


def outcomes(p: float) -> list[tuple[float, float, Trajectory, list[float]]]:
    """Of one attempt: probability, reward, the trajectory, and d log p(turn) / dx of each turn's decision."""
    found = []
    for turns in (1, 2, 3):
        goes_on = p ** (turns - 1)
        probability = goes_on if turns == 3 else goes_on * (1 - p)
        slopes = [1 - p] * (turns - 1) + ([] if turns == 3 else [-p])
        trajectory = attempt([1.0] * turns, BONUS[turns])
        found.append((probability, turns + BONUS[turns], trajectory, slopes + [0.0] * (turns - len(slopes))))
    return found


def expected_gradient(
    p: float, advantage: Callable[[Sequence[Trajectory]], Sequence[Sequence[float]]], size: int
) -> float:
    """The exact expectation of the estimate from one group, over all groups."""
    total = 0.0
    for group in product(outcomes(p), repeat=size):
        values = advantage([trajectory for _, _, trajectory, _ in group])
        estimate = fsum(
            a * s for own, (*_, slopes) in zip(values, group, strict=True) for a, s in zip(own, slopes, strict=True)
        )
        total += prod(probability for probability, *_ in group) * estimate / size
    return total


def summed_by_turn(trajectories: Sequence[Trajectory]) -> list[list[float]]:
    """Each turn's reward minus its mean over the attempts that have the turn, summed from the turn on (MT-GRPO)."""
    rewards = [turn_rewards(each) for each in trajectories]
    centred = []
    for own in rewards:
        peers = [[each[turn] for each in rewards if len(each) > turn] for turn in range(len(own))]
        centred.append([value - fsum(each) / len(each) for value, each in zip(own, peers, strict=True)])
    return [returns_to_go(own, 1.0) for own in centred]


@pytest.mark.parametrize("x", [-1.0, 0.0, 0.7])
def test_the_policy_gradient_is_unbiased_although_the_policy_decides_when_to_stop(x: float) -> None:
    p, step = 1 / (1 + exp(-x)), 1e-6

    def value(x: float) -> float:
        return fsum(probability * reward for probability, reward, *_ in outcomes(1 / (1 + exp(-x))))

    truth = (value(x + step) - value(x - step)) / (2 * step)
    assert expected_gradient(p, lambda group: turn_rloo(group, EACH), 3) == pytest.approx(truth, abs=1e-6)
    assert abs(expected_gradient(p, summed_by_turn, 3) - truth) > 0.1
