"""Training on a tree of prefixes: the update is that of sequences computed alone by the model's own forward."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs rlfactory-core[local]")

from tiny_models import make_model, random_ids, train_sequence  # noqa: E402

from rlfactory_core.algo.losses import LossOptions  # noqa: E402
from rlfactory_core.algo.settings import LoraConfig  # noqa: E402
from rlfactory_core.engines.local.learning.critic import Critic  # noqa: E402
from rlfactory_core.engines.local.learning.learner import Learner  # noqa: E402
from rlfactory_core.engines.local.learning.optimizer import Optimizer, OptimizerOptions  # noqa: E402
from rlfactory_core.engines.local.model.lora import add_lora  # noqa: E402
from rlfactory_core.engines.local.model.policy import PaddedPolicy, Policy, RaggedPolicy  # noqa: E402
from rlfactory_core.engines.local.workers import Workers  # noqa: E402
from rlfactory_core.types import TrainBatch, TrainSequence  # noqa: E402

OTHERS = ("llama", "qwen2", "mistral", "olmo2", "phi3", "smollm3", "granite", "gpt_neox", "qwen3_moe", "opt")
FAMILIES = ("qwen3", "gemma3", "gpt2", *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS))
BUDGETS = (10_000, 130, 20)  # one micro-batch; several; one for each sequence, whose prompt alone is longer


def rows() -> tuple[TrainSequence, ...]:
    """Two prompts behind the beginning of all, rows that fork behind a turn, equal and nested ones, and a stranger."""
    everyone, one, other = random_ids(21, 0), random_ids(30, 1), random_ids(18, 2)
    attempts = [(*everyone, *one, *random_ids(20 + 7 * n, 10 + n)) for n in range(3)]
    forks = [(*attempts[0], *random_ids(17 + n, 20 + n)) for n in range(2)]
    short = [(*everyone, *other, *random_ids(9, 30 + n)) for n in range(2)]
    ids = [*attempts, *forks, *short, short[0], attempts[1][:60], random_ids(25, 40)]
    made = []
    for number, each in enumerate(ids):
        first = 12 if each == ids[-1] else 51 if each[21:51] == one else 39
        mask = [int(at >= first and at % 5 != 4) for at in range(len(each))]
        logprobs = tuple(-5.5 * own for own in mask)
        made.append(replace(train_sequence(each, mask, number), logprobs=logprobs))
    return tuple(made)


def learner(policy: Policy, budget: int, **options: Any) -> Learner:
    loss = LossOptions(clip_low=0.2, clip_high=0.28, truncate=2.0)
    optimizer = Optimizer(policy.model, OptimizerOptions(1e-3))
    return Learner(policy, optimizer, Workers(), loss, microbatch_tokens=budget, **options)


def watch(model: Any, optimizer: Optimizer) -> dict[str, torch.Tensor]:
    """The gradients, by parameter, once a step is to be taken; it is not."""
    gradients: dict[str, torch.Tensor] = {}

    def keep() -> tuple[float, bool]:
        gradients.update((name, p.grad.clone()) for name, p in model.named_parameters() if p.grad is not None)
        model.zero_grad()
        return 0.0, True

    optimizer.step = keep  # type: ignore[method-assign,assignment]
    return gradients


def update(made: Learner, *, first: bool = True) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
    """The gradients of an update and its metrics."""
    gradients = watch(made.policy.model, made.optimizer)
    step = made.step(made.pack(TrainBatch(rows()), first=first))
    return gradients, {**step.sums, "tokens": step.tokens}


def check(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> None:
    assert ours.keys() == theirs.keys()
    for name, gradient in theirs.items():
        assert (ours[name] - gradient).abs().max() <= 1e-4 * max(1.0, float(gradient.abs().max())), name
    assert any(float(gradient.abs().max()) > 1e-3 for gradient in theirs.values())


@pytest.mark.parametrize("name", FAMILIES)
def test_an_update_is_that_of_sequences_computed_alone(name: str) -> None:
    expected, metrics = update(learner(PaddedPolicy(make_model(name)), 20))
    for budget in BUDGETS:
        made = learner(RaggedPolicy(make_model(name)), budget)
        parts = made.pack(TrainBatch(rows()))
        assert {10_000: len(parts) == 1, 130: 1 < len(parts) < 8, 20: len(parts) == 10}[budget]
        found, sums = update(made)
        check(found, expected)
        assert sums == pytest.approx(metrics, rel=1e-4, abs=1e-4)


def test_less_is_computed_than_the_sequences_have() -> None:
    (packed,) = learner(RaggedPolicy(make_model("qwen3")), 10_000).pack(TrainBatch(rows()))
    twice = 9 + 9  # the ends of a shorter and of an equal sequence: shorter than a node
    assert packed.flat_ids.numel() == 21 + (30 + 20 + 27 + 34) + (17 + 18) + (18 + 9 + 9) + 25 + twice
    assert packed.flat_ids.numel() < 0.4 * sum(len(each.ids) for each in rows())


@pytest.mark.parametrize("budget", BUDGETS)
def test_with_the_log_probs_of_the_start_of_the_step(budget: int) -> None:
    """The decoupled objective of older samples computes them by the same pass."""
    expected, metrics = update(learner(PaddedPolicy(make_model("gemma3")), 20), first=False)
    found, sums = update(learner(RaggedPolicy(make_model("gemma3")), budget), first=False)
    check(found, expected)
    assert sums == pytest.approx(metrics, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("budget", BUDGETS)
def test_with_adapters(budget: int) -> None:
    pytest.importorskip("peft", reason="needs rlfactory-core[lora]")

    def gradients(kind: type[Policy], tokens: int) -> dict[str, torch.Tensor]:
        model = add_lora(make_model("qwen3"), LoraConfig(rank=4, alpha=8), seed=1)
        return update(learner(kind(model), tokens))[0]

    found, expected = gradients(RaggedPolicy, budget), gradients(PaddedPolicy, 20)
    assert all("lora_" in name for name in found)
    check(found, expected)


@pytest.mark.parametrize("budget", BUDGETS)
def test_with_a_critic(budget: int) -> None:
    """Its values, its advantages and its own gradient."""

    def estimated(policy: Policy, tokens: int) -> tuple[list[float], float, dict[str, torch.Tensor]]:
        critic = Critic(policy, OptimizerOptions(1e-3), Workers(), gamma=0.9, lam=0.8, seed=1)
        gradients = watch(critic.policy.model, critic.optimizer)
        (found,) = critic.estimate([learner(policy, tokens).pack(TrainBatch(rows()))])
        advantages = torch.cat([packed.advantages for packed in found])
        return sorted(advantages.tolist()), critic.step(found), gradients

    found, loss, gradients = estimated(RaggedPolicy(make_model("qwen3")), budget)
    expected, their_loss, theirs = estimated(PaddedPolicy(make_model("qwen3")), 20)
    assert found == pytest.approx(expected, abs=1e-3)
    assert loss == pytest.approx(their_loss, rel=1e-4)
    check(gradients, theirs)
