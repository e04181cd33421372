"""Which sample a prompt of a step is, in every engine."""

from __future__ import annotations

import random

import pytest

from rlfactory_core.algo.prompts import UniformPrompts
from rlfactory_core.types import Sample
from rlfactory_core.utils.seeds import derive_seed


def schedule_of(samples: int, per_step: int, seed: int) -> UniformPrompts:
    return UniformPrompts([Sample(str(number), "?", "x") for number in range(samples)], per_step, seed)


def former_order(samples: int, per_step: int, seed: int, step: int) -> list[int]:
    """As the local engine drew it while it had a schedule of its own: runs of then and now train on the same."""
    chosen = []
    for position in range((step - 1) * per_step, step * per_step):
        epoch, index = divmod(position, samples)
        order = list(range(samples))
        random.Random(derive_seed(seed, "epoch", epoch)).shuffle(order)
        chosen.append(order[index])
    return chosen


@pytest.mark.parametrize(("samples", "per_step"), [(10, 4), (3, 8), (7, 7), (1, 2)])
def test_steps_are_those_of_earlier_releases(samples: int, per_step: int) -> None:
    schedule = schedule_of(samples, per_step, seed=3)
    for step in range(1, 9):
        assert schedule.step(step) == former_order(samples, per_step, 3, step)


def test_the_order_of_a_seed_never_changes() -> None:
    assert schedule_of(5, 5, seed=0).step(1) == [1, 0, 2, 4, 3]


def test_every_sample_comes_once_an_epoch_in_a_new_order() -> None:
    schedule = schedule_of(50, 5, seed=1)
    epochs = [[schedule.index(epoch * 50 + place) for place in range(50)] for epoch in range(4)]
    assert all(sorted(epoch) == list(range(50)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 4


def test_any_order_of_asking_gives_the_same() -> None:
    """A resumed run begins in the middle, and verl asks for single positions."""
    schedule = schedule_of(6, 4, seed=2)
    straight = [schedule.index(position) for position in range(24)]
    assert [schedule.index(position) for position in reversed(range(24))] == straight[::-1]
    assert schedule_of(6, 4, seed=2).step(4) == straight[12:16]


def test_another_seed_is_another_order() -> None:
    assert schedule_of(50, 50, seed=1).step(1) != schedule_of(50, 50, seed=2).step(1)
