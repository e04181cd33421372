"""The sampler has the new weights after an update, or the run stops."""

from __future__ import annotations

import pytest

from rlfactory_core.errors import TrainingError
from rlfactory_core.training.proof import Moved, difference

OLD, NEW = [-1.0, -2.0, -3.0], [-0.9, -2.2, -2.8]


def test_a_sampler_with_the_new_weights_passes_although_it_computes_a_little_otherwise() -> None:
    found = Moved.of(1, [value + 0.01 for value in NEW], OLD, NEW, noise=0.01)
    found.check()
    assert found.measurable
    assert found.moved == pytest.approx(0.5 / 3)
    assert found.to_new == pytest.approx(0.01)


def test_a_sampler_with_the_old_weights_stops_the_run_and_says_what_was_measured() -> None:
    with pytest.raises(TrainingError, match=r"update of step 4 .* moved by 0\.167 nats .* by 0\.167 from the new"):
        Moved.of(4, OLD, OLD, NEW, noise=difference(OLD, OLD)).check()


def test_nothing_is_decided_while_the_policy_has_moved_by_less_than_what_the_two_differ_by_anyway() -> None:
    found = Moved.of(1, OLD, OLD, NEW, noise=0.1)
    assert not found.measurable
    found.check()
