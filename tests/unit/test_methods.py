"""``train.loss=dapo`` and ``dr_grpo``: what they set, what they refuse, and that the loss is TRL's and verl's."""

from __future__ import annotations

import inspect
import textwrap
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from runs import TINY_TASK
from torch import Tensor

from rlfactory_core.algo.batch import trajectory_weights
from rlfactory_core.algo.losses import Clip, Tokens, ppo
from rlfactory_core.config import RunConfig
from rlfactory_core.errors import ConfigError
from rlfactory_core.runner import prepare

ROWS, LENGTH, LIMIT = 5, 7, 9
MASK = torch.ones(ROWS, LENGTH, dtype=torch.bool)
MASK[1, 4:] = MASK[3, 1:] = False


def resolved(*keys: str) -> RunConfig:
    return prepare(None, [f"plugin={TINY_TASK}", *keys]).config


def made() -> tuple[Tensor, Tensor, Tensor]:
    """Log-probs with gradient and those of the old policy, [ROWS, LENGTH], and advantages [ROWS], in float64."""
    generator = torch.Generator().manual_seed(11)
    old = -torch.rand(ROWS, LENGTH, generator=generator, dtype=torch.float64) * 2
    logprobs = old + torch.randn(ROWS, LENGTH, generator=generator, dtype=torch.float64) * 0.4
    return logprobs.requires_grad_(), old, torch.randn(ROWS, generator=generator, dtype=torch.float64)


def ours(name: str) -> tuple[Tensor, Tensor]:
    """The loss of one update by the keys of a method, and its gradient."""
    train = resolved(f"train.loss={name}").train
    logprobs, old, advantages = made()
    weights = torch.tensor(trajectory_weights(train.aggregation, MASK.sum(-1).tolist(), LIMIT), dtype=torch.float64)
    scaled = (advantages * weights)[:, None].expand(ROWS, LENGTH)
    sequence = torch.arange(ROWS)[:, None].expand(ROWS, LENGTH)
    tokens = Tokens(*(each[MASK] for each in (logprobs, old, scaled, sequence)))
    loss = ppo(tokens, Clip(train.clip_low, train.clip_high)).loss.mean()
    return loss, torch.autograd.grad(loss, [logprobs])[0]


def trls(name: str) -> tuple[Tensor, Tensor]:
    """The same by the lines of TRL's trainer itself."""
    trainer = pytest.importorskip("trl.trainer.grpo_trainer", reason="compares with TRL").GRPOTrainer
    train = resolved(f"train.loss={name}").train
    lines = inspect.getsource(trainer._compute_loss).splitlines()

    def between(first: str, end: str) -> str:
        start = next(n for n, line in enumerate(lines) if line.strip().startswith(first))
        stop = next(n for n, line in enumerate(lines) if line.strip().startswith(end) and n > start)
        return textwrap.dedent("\n".join(lines[start:stop]))

    logprobs, old, advantages = made()
    me: dict[str, Any] = {
        "importance_sampling_level": "token", "loss_type": name, "epsilon_low": train.clip_low, "beta": 0.0,
        "epsilon_high": train.clip_high, "max_completion_length": LIMIT, "current_gradient_accumulation_steps": 1,
        "args": SimpleNamespace(delta=None, steps_per_generation=1),
        "_entropy_bonus_enabled": False, "accelerator": SimpleNamespace(num_processes=1),
        "model": SimpleNamespace(training=True),
    }  # fmt: skip
    found: dict[str, Any] = {
        "torch": torch, "self": SimpleNamespace(**me), "mask": MASK.double(), "old_per_token_logps": old,
        "per_token_logps": logprobs, "advantages": advantages[:, None],
        "inputs": {"num_items_in_batch": MASK.sum()},
    }  # fmt: skip
    exec(between("log_ratio = ", "if self.off_policy_mask_threshold"), found)
    exec(between("mode = ", "# Entropy bonus"), found)
    loss = found["loss"]
    return loss, torch.autograd.grad(loss, [logprobs])[0]


def verls(name: str) -> tuple[Tensor, Tensor]:
    """The same by verl's functions, with the aggregation that verl has for the method."""
    core = pytest.importorskip("verl.trainer.ppo.core_algos", reason="compares with verl")
    actor = pytest.importorskip("verl.workers.config").ActorConfig
    train = resolved(f"train.loss={name}").train
    low, high = train.clip_low, train.clip_high
    settings = {"clip_ratio": low, "clip_ratio_low": low, "clip_ratio_high": high, "clip_ratio_c": 1e6}
    config = actor(strategy="fsdp", rollout_n=1, use_dynamic_bsz=True, **settings)
    config.global_batch_info.update({"loss_scale_factor": LIMIT})
    mode = {"dapo": "token-mean", "dr_grpo": "seq-mean-token-sum-norm"}[name]
    logprobs, old, advantages = made()
    wide = advantages[:, None].expand(ROWS, LENGTH)
    loss, _ = core.get_policy_loss_fn("vanilla")(old, logprobs, wide, MASK.double(), mode, config)
    return loss, torch.autograd.grad(loss, [logprobs])[0]


@pytest.mark.parametrize("name", ["dapo", "dr_grpo"])
@pytest.mark.parametrize("theirs", [trls, verls])
def test_the_loss_of_an_update_is_trls_and_verls(name: str, theirs: Any) -> None:
    (loss, gradient), (expected, slope) = ours(name), theirs(name)
    assert torch.allclose(loss, expected, atol=1e-6)
    assert torch.allclose(gradient, slope, atol=1e-6)


def test_dapo_sets_its_keys_and_adds_the_overlong_punishment() -> None:
    config = resolved("train.loss=dapo", "rollout.max_turns=3", "rollout.max_turn_tokens=40", "rollout.max_tokens=400")
    train = config.train
    assert (train.advantage, train.aggregation, train.clip_low, train.clip_high) == ("grpo", "token", 0.2, 0.28)
    *own, overlong = config.rewards or ()
    assert [reward.name for reward in own] == ["exact_match", "format"]
    assert (overlong.name, overlong.options) == ("overlong", {"limit": 120, "buffer": 24})


def test_a_users_own_punishment_is_kept() -> None:
    given = "rewards=[{name: exact_match}, {name: overlong, weight: 0.5, limit: 100, buffer: 10}]"
    rewards = resolved("train.loss=dapo", given).rewards or ()
    assert [(reward.name, reward.weight) for reward in rewards] == [("exact_match", 1.0), ("overlong", 0.5)]


def test_dr_grpo_sets_its_keys_and_no_reward() -> None:
    config = resolved("train.loss=dr_grpo")
    train = config.train
    assert (train.advantage, train.aggregation, train.clip_high) == ("dr_grpo", "constant", 0.2)
    assert config.rewards is None


def test_another_value_of_a_methods_key_is_refused_and_the_same_value_is_not() -> None:
    assert resolved("train.loss=dapo", "train.clip_high=0.28").train.clip_high == 0.28  # as a resume gives it
    with pytest.raises(ConfigError, match=r"train\.loss=dapo means train\.clip_high=0\.28, and train\.clip_high=0\.4"):
        resolved("train.loss=dapo", "train.clip_high=0.4")


def test_each_of_several_tasks_gets_the_punishment_of_its_own_limits() -> None:
    tasks = {
        name: {"plugin": str(TINY_TASK), "rollout": {"max_turns": turns, "max_turn_tokens": 10}}
        for name, turns in (("short", 2), ("long", 4))
    }
    config = prepare(None, [{"model": "some/model", "tasks": tasks, "train": {"loss": "dapo"}}]).config
    limits = {name: (share.rewards or ())[-1].options["limit"] for name, share in config.tasks.items()}
    assert limits == {"short": 20, "long": 40}
    assert config.train.aggregation == "token"
