"""The policy losses: equal to TRL's and verl's own on the same tensors, and what each does with a ratio."""

from __future__ import annotations

import inspect
import textwrap
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rlfactory_verl.constraints import LOSSES as VERLS
from runs import TINY_TASK
from torch import Tensor

from rlfactory_core.algo.losses import Clip, PolicyLoss, Tokens
from rlfactory_core.errors import PluginError
from rlfactory_core.plugins.registry import Registry

ROWS, LENGTH = 5, 7
MASK = torch.ones(ROWS, LENGTH, dtype=torch.bool)
MASK[1, 4:] = MASK[3, 1:] = False

LOSSES: dict[str, PolicyLoss] = {item.name: item.factory for item in Registry(()).registered("loss_function")}


def made() -> tuple[Tensor, Tensor, Tensor]:
    """Log-probs with gradient, those of the old policy, and advantages of rows, each [ROWS, LENGTH] in float64."""
    generator = torch.Generator().manual_seed(7)
    old = -torch.rand(ROWS, LENGTH, generator=generator, dtype=torch.float64) * 2
    logprobs = old + torch.randn(ROWS, LENGTH, generator=generator, dtype=torch.float64) * 0.4
    advantages = torch.randn(ROWS, 1, generator=generator, dtype=torch.float64).expand(ROWS, LENGTH)
    return logprobs.requires_grad_(), old, advantages


def ours(name: str, clip: Clip, logprobs: Tensor, old: Tensor, advantages: Tensor) -> Tensor:
    """[T]: the losses of the tokens that the mask keeps."""
    sequence = torch.arange(ROWS)[:, None].expand(ROWS, LENGTH)
    tokens = Tokens(*(each[MASK] for each in (logprobs, old, advantages, sequence)))
    return LOSSES[name](tokens, clip).loss


def slope(loss: Tensor, logprobs: Tensor) -> Tensor:
    (gradient,) = torch.autograd.grad(loss, [logprobs], retain_graph=True)
    return gradient


def trl_losses(loss_type: str, level: str, low: float, high: float) -> tuple[Tensor, Tensor]:
    """[ROWS, LENGTH] or [ROWS, 1] losses by the lines of TRL's trainer itself, and the log-probs that they are of."""
    trainer = pytest.importorskip("trl.trainer.grpo_trainer", reason="compares with TRL").GRPOTrainer
    lines = inspect.getsource(trainer._compute_loss).splitlines()
    first = next(n for n, line in enumerate(lines) if line.strip().startswith("log_ratio = "))
    last = next(
        n for n, line in enumerate(lines) if line.strip().startswith("if self.off_policy_mask_threshold") and n > first
    )
    logprobs, old, advantages = made()
    args = SimpleNamespace(delta=None, sapo_temperature_pos=1.0, sapo_temperature_neg=1.05)
    me = SimpleNamespace(
        importance_sampling_level=level, loss_type=loss_type, epsilon_low=low, epsilon_high=high, beta=0.0, args=args
    )
    found: dict[str, Any] = {
        "torch": torch, "self": me, "mask": MASK.double(), "inputs": {},
        "per_token_logps": logprobs, "old_per_token_logps": old, "advantages": advantages[:, :1],
    }  # fmt: skip
    exec(textwrap.dedent("\n".join(lines[first:last])), found)
    return found["per_token_loss"], logprobs


@pytest.mark.parametrize(
    ("name", "clip", "theirs"),
    [
        ("ppo", Clip(0.2, 0.28), ("dapo", "token", 0.2, 0.28)),
        ("ppo", Clip(0.1, 0.1), ("dr_grpo", "token", 0.1, 0.1)),
        ("cispo", Clip(1.0, 0.3), ("cispo", "token", 0.0, 1.3)),  # TRL's bound is that of the ratio itself
        ("sapo", Clip(), ("sapo", "token", 0.0, 0.0)),
    ],
)
def test_the_losses_are_trls(name: str, clip: Clip, theirs: tuple[str, str, float, float]) -> None:
    expected, given = trl_losses(*theirs)
    logprobs, old, advantages = made()
    found = ours(name, clip, logprobs, old, advantages)
    assert torch.allclose(found, expected[MASK], atol=1e-12)
    assert torch.allclose(slope(found.sum(), logprobs), slope(expected[MASK].sum(), given), atol=1e-12)


def test_gspo_has_the_value_and_the_mean_gradient_of_trls() -> None:
    """TRL has one value a sequence; ours has it at each token, so their means over a sequence agree."""
    expected, given = trl_losses("grpo", "sequence", 0.05, 0.05)
    logprobs, old, advantages = made()
    found = torch.zeros(ROWS, LENGTH, dtype=torch.float64).masked_scatter(
        MASK, ours("gspo", Clip(0.05, 0.05), logprobs, old, advantages)
    )
    counts = MASK.sum(-1, keepdim=True)
    assert torch.allclose(found.sum(-1, keepdim=True) / counts, expected, atol=1e-12)
    assert torch.allclose(slope((found / counts).sum(), logprobs), slope(expected.sum(), given), atol=1e-12)


@pytest.mark.parametrize("name", sorted(LOSSES))
@pytest.mark.parametrize(("low", "high"), [(0.2, 0.28), (3e-4, 4e-4)])
def test_the_losses_are_verls(name: str, low: float, high: float) -> None:
    core = pytest.importorskip("verl.trainer.ppo.core_algos", reason="compares with verl")
    actor = pytest.importorskip("verl.workers.config").ActorConfig
    # No second clip of negative advantages, as the engine sets it.
    settings = {"clip_ratio": low, "clip_ratio_low": low, "clip_ratio_high": high, "clip_ratio_c": 1e6}
    config = actor(strategy="fsdp", rollout_n=1, use_dynamic_bsz=True, tau_pos=1.0, tau_neg=1.05, **settings)
    logprobs, old, advantages = made()
    compute = core.get_policy_loss_fn(VERLS.get(name, name))
    expected, _ = compute(old, logprobs, advantages, MASK.double(), "token-mean", config)
    found = ours(name, Clip(low, high), logprobs, old, advantages)
    if name == "sapo":  # verl takes the mean over sequences
        rows = torch.zeros(ROWS, LENGTH, dtype=torch.float64).masked_scatter(MASK, found)
        mean = (rows.sum(-1) / MASK.sum(-1)).mean()
    else:
        mean = found.mean()
    assert torch.allclose(mean, expected, atol=1e-6)
    assert torch.allclose(slope(mean, logprobs), slope(expected, logprobs), atol=1e-6)


def one(name: str, log_ratio: float, advantage: float) -> tuple[float, float]:
    """The loss of a token and its slope."""
    logprobs = torch.tensor([-1.0 + log_ratio], requires_grad=True)
    tokens = Tokens(logprobs, torch.tensor([-1.0]), torch.tensor([advantage]), torch.tensor([0]))
    loss = LOSSES[name](tokens, Clip()).loss.sum()
    return float(loss), float(slope(loss, logprobs))


@pytest.mark.parametrize("name", sorted(LOSSES))
@pytest.mark.parametrize("advantage", [1.5, -0.5])
def test_on_policy_the_slope_is_the_policy_gradients(name: str, advantage: float) -> None:
    assert one(name, 0.0, advantage)[1] == pytest.approx(-advantage, rel=1e-5)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("train.loss=gpso", r"No loss function 'gpso' is registered\. Did you mean 'gspo'"),
        ("train.advantage=turngrpo", r"No advantage 'turngrpo' is registered\. Did you mean 'turn_grpo'"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(given: str, message: str) -> None:
    from rlfactory_core.runner import prepare

    with pytest.raises(PluginError, match=message):
        prepare(None, [f"plugin={TINY_TASK}", given])


def test_what_becomes_of_a_token_far_above_the_bound() -> None:
    slopes = {name: one(name, 1.0, 1.0)[1] for name in LOSSES}
    assert slopes["ppo"] == slopes["gspo"] == 0.0
    assert slopes["cispo"] == pytest.approx(-1.28, rel=1e-5)  # bounded, and never lost
    assert -1.5 < slopes["sapo"] < 0.0  # fades
