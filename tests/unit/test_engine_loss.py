"""The loss against values worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from rlfactory_core.algo.losses.objective import LossOptions, LossSums, objective

LOW, HIGH = 0.2, 0.28


def loss_of(
    ratio: float,
    advantage: float,
    *,
    old_ratio: float | None = None,
    reference_gap: float | None = None,
    options: LossOptions | None = None,
) -> tuple[LossSums, float]:
    """One token whose current probability is ``ratio`` times the behaviour policy's; also d loss / d logprob."""
    behaviour = torch.tensor([-1.5])
    logprobs = (behaviour + math.log(ratio)).requires_grad_()
    old = None if old_ratio is None else behaviour + math.log(old_ratio)
    reference = None if reference_gap is None else logprobs.detach() + reference_gap
    chosen = options or LossOptions(LOW, HIGH)
    sums = objective(logprobs, behaviour, torch.tensor([advantage]), chosen, old=old, reference=reference)
    (gradient,) = torch.autograd.grad(sums.loss, [logprobs])
    return sums, float(gradient)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "gradient"),
    [
        (1.0, 2.0, -2.0, -2.0),
        (1.1, 2.0, -2.2, -2.2),
        (1.5, 2.0, -2.56, 0.0),  # rose beyond 1 + high: no more reward for it
        (1.5, -2.0, 3.0, 3.0),  # but pushed back down, unclipped
        (0.5, 2.0, -1.0, -1.0),  # pushed back up, unclipped
        (0.5, -2.0, 1.6, 0.0),  # fell below 1 - low: no more reward for it
        (1.27, 1.0, -1.27, -1.27),  # the upper bound is 1.28, not 1.2
        (0.9, -1.0, 0.9, 0.9),
    ],
)
def test_clipping_on_both_sides(ratio: float, advantage: float, loss: float, gradient: float) -> None:
    sums, slope = loss_of(ratio, advantage)
    assert sums.loss.item() == pytest.approx(loss, rel=1e-5)
    assert slope == pytest.approx(gradient, rel=1e-5)
    assert float(sums.metrics["clip_fraction"]) == (1.0 if gradient == 0.0 else 0.0)
    assert float(sums.metrics["importance_weight"]) == pytest.approx(ratio)


def test_the_kl_term_is_k3() -> None:
    options = LossOptions(LOW, HIGH, kl=0.1)
    for gap in (-0.7, 0.0, 0.4):  # reference - logprobs
        sums, slope = loss_of(1.0, 0.0, reference_gap=gap, options=options)
        k3 = math.exp(gap) - gap - 1
        assert float(sums.metrics["kl"]) == pytest.approx(k3, abs=1e-6)
        assert sums.loss.item() == pytest.approx(0.1 * k3, abs=1e-6)
        assert slope == pytest.approx(0.1 * (1 - math.exp(gap)), abs=1e-6)
        assert float(sums.metrics["kl"]) >= 0


def test_the_decoupled_objective_weighs_tokens_and_truncates_the_weight() -> None:
    """The ratio is then taken to ``old``; old / behaviour weighs the token, up to the cap."""
    options = LossOptions(LOW, HIGH, truncate=2.0)
    sums, slope = loss_of(1.65, 1.0, old_ratio=1.5, options=options)
    assert float(sums.metrics["importance_weight"]) == pytest.approx(1.5)
    assert sums.loss.item() == pytest.approx(-1.5 * 1.1, rel=1e-5)
    assert slope == pytest.approx(-1.5 * 1.1, rel=1e-5)
    sums, slope = loss_of(5.0, 1.0, old_ratio=5.0, options=options)
    assert float(sums.metrics["importance_weight"]) == pytest.approx(2.0)
    assert sums.loss.item() == pytest.approx(-2.0)
    assert slope == pytest.approx(-2.0)
    sums, _ = loss_of(0.1, 1.0, old_ratio=0.1, options=options)  # weights below 1 are not lifted
    assert float(sums.metrics["importance_weight"]) == pytest.approx(0.1)


def test_before_the_first_update_of_a_step_the_old_weights_are_the_current_ones() -> None:
    options = LossOptions(LOW, HIGH, truncate=2.0)
    (given, slope), (own, own_slope) = (
        loss_of(1.6, 1.0, old_ratio=1.6, options=options),
        loss_of(1.6, 1.0, options=options),
    )
    assert own.loss.item() == pytest.approx(given.loss.item(), rel=1e-6)
    assert own_slope == pytest.approx(slope, rel=1e-6) == pytest.approx(-1.6, rel=1e-5)
    assert float(own.metrics["clip_fraction"]) == 0.0


@pytest.mark.parametrize(("ratio", "advantage"), [(1.65, 1.0), (0.5, -1.0)])
def test_a_policy_that_has_left_the_one_that_sampled_is_not_pushed_further(ratio: float, advantage: float) -> None:
    """Without it, three of three runs with a staleness of 4 collapsed: several updates pushed the same way."""
    assert loss_of(ratio, advantage)[1] == 0.0
    assert loss_of(ratio, advantage, old_ratio=ratio)[1] == 0.0, "in the first update of a step, too"


def test_mismatch_is_zero_on_policy_and_positive_off_it() -> None:
    assert float(loss_of(1.0, 1.0)[0].metrics["mismatch_kl"]) == 0.0
    sums, _ = loss_of(1.5, 1.0)
    assert float(sums.metrics["mismatch_kl"]) == pytest.approx(1.5 - math.log(1.5) - 1, rel=1e-5)


def test_tokens_are_summed() -> None:
    behaviour = torch.tensor([-1.0, -2.0, -3.0])
    logprobs = behaviour + torch.tensor([0.0, 0.1, -0.5])
    advantages = torch.tensor([1.0, -1.0, -1.0])
    whole = objective(logprobs, behaviour, advantages, LossOptions())
    columns = zip(logprobs.split(1), behaviour.split(1), advantages.split(1), strict=True)
    one = [objective(*column, LossOptions()) for column in columns]
    assert whole.loss.item() == pytest.approx(sum(part.loss.item() for part in one))
    assert float(whole.metrics["clip_fraction"]) == sum(float(part.metrics["clip_fraction"]) for part in one) == 1.0
