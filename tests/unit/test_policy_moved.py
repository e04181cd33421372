"""The sampler has the new weights after an update, or the run stops."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from rlfactory_core.errors import TrainingError
from rlfactory_core.training.proof import Moved, PolicyMovedProof, difference
from rlfactory_core.types import SampledTokens, TrainBatch, TrainSequence

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


class Weights:
    """An engine and its sampler: the likeliest token is that of the version, and all log-probs tell the version."""

    def __init__(self, likeliest: tuple[int, ...]) -> None:
        self.likeliest, self.trained, self.published = likeliest, 0, 0

    def expect(self, sessions: object) -> None: ...

    async def score(self, rows: list[TrainSequence]) -> list[list[float]]:
        return [[-1.0 - self.trained] for _ in rows]

    async def sample(self, ids: object, params: object, session: str) -> SampledTokens:
        return SampledTokens((self.likeliest[self.published],), (-1.0 - self.published,), "length")

    async def release(self, session: str) -> None: ...


@pytest.mark.parametrize("stale", [False, True])
def test_a_token_that_changes_is_compared_from_the_next_update_on(stale: bool) -> None:
    """As in supervised training, which soon makes other tokens likely. A sampler that keeps its weights is found."""
    weights: Any = Weights((5, 6, 6, 6))
    proof = PolicyMovedProof(weights, weights)
    batch = TrainBatch([TrainSequence((1, 2, 3), (0, 0, 1), (1.0,) * 3, (-1.0,) * 3)])

    async def train(publishes: tuple[int, ...]) -> None:
        for step, published in enumerate(publishes, 1):
            await proof.before([batch])
            weights.trained, weights.published = step, published
            await proof.after(step)

    if stale:
        with pytest.raises(TrainingError, match="does not have the trained weights"):
            asyncio.run(train((1, 1)))
        return
    asyncio.run(train((1, 2, 3)))
    assert cast(Moved, proof.found).step == 2
