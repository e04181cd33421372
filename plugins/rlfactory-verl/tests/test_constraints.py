"""What the verl engine refuses before anything starts: each refusal names the key, the value and the remedy."""

from __future__ import annotations

from typing import Any

import pytest
from configs import made_config
from rlfactory_verl.constraints import adapt_defaults, check_rules

from rlfactory_core.config import RunConfig
from rlfactory_core.errors import ConfigError


def config(*overrides: str) -> RunConfig:
    """A configuration that the engine has completed: one GPU by default."""
    return made_config({"plugin": "search", "engine": "verl", "verl": {"gpus": 1}}, *overrides)


def refusal(*overrides: str) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        check_rules(config(*overrides))
    return str(raised.value).split("\n")


REFUSED: list[tuple[list[str], list[str]]] = [
    (["train.muon_lr=0.02"], ["train.muon_lr=0.02", "Set it to 0", "--engine local"]),
    (["train.schedule=linear"], ["train.schedule=linear", "constant and cosine", "--engine local"]),
    (["train.prompts=difficulty"], ["train.prompts=difficulty", "train.prompts=uniform", "--engine local"]),
    (["train.refill=true", "train.advantage=gae"], ["train.refill=true", "train.advantage=gae", "Leave one out"]),
    (["train.loss=sapo"], ["train.loss=sapo", "train.aggregation=trajectory", "--engine local"]),
    (["train.workers=4"], ["train.workers=4", "verl.gpus"]),
    (["train.lora.dropout=0.1"], ["train.lora.dropout=0.1", "Set it to 0"]),
    (["train.advantage=gigpo"], ["train.advantage=gigpo", "compares turns", "--engine local"]),
    (["train.advantage=remax"], ["train.advantage=remax", "a greedy attempt beside each group", "grpo or rloo"]),
    (["train.advantage=gdpo"], ["train.advantage=gdpo", "rewards", "grpo or rloo"]),
    (["train.explode_norm=50"], ["train.explode_norm", "train.max_grad_norm"]),
    (["rollout.deterministic=true"], ["rollout.deterministic=true", "Set it to false"]),
    (["train.steps=0"], ["train.steps=0", "rlfactory eval"]),
    (
        ["train.prompts_per_step=10", "train.updates_per_step=4"],
        ["train.prompts_per_step=10", "train.updates_per_step=4", "train.prompts_per_step=12", "per_step=2."],
    ),
    (
        ["train.prompts_per_step=3", "train.updates_per_step=8"],
        ["train.prompts_per_step=3", "train.prompts_per_step=8", "train.updates_per_step=3"],
    ),
    (
        ["train.microbatch_tokens=1000", "rollout.max_tokens=1001"],
        ["train.microbatch_tokens=1000", "rollout.max_tokens=1001", "one micro-batch"],
    ),
    (
        ["train.prompts_per_step=2", "train.group_size=3", "verl.gpus=4"],
        ["6 sequences", "train.prompts_per_step", "train.group_size", "4 training GPUs", "multiple of 4"],
    ),
    (
        ["verl.mode=separate_async"],
        ["verl.mode=separate_async", "verl.gpus=1", "needs 2", "verl.mode=colocate_async"],
    ),
    (
        ["verl.mode=separate_async", "verl.gpus=4", "verl.rollout_gpus=4"],
        ["verl.rollout_gpus=4", "verl.gpus=4", "at least one"],
    ),
    (["verl.rollout_gpus=1", "verl.gpus=2"], ["verl.rollout_gpus=1", "separate_async", "sync"]),
    (["verl.gpus=4", "verl.tensor_parallel=3"], ["verl.tensor_parallel=3", "4 sampling GPUs"]),
    (["verl.overrides=[trainer.balance_batch]"], ["'trainer.balance_batch'", "KEY=VALUE"]),
]


@pytest.mark.parametrize(("overrides", "words"), REFUSED, ids=[given[0] for given, _ in REFUSED])
def test_a_refusal_names_key_value_and_remedy(overrides: list[str], words: list[str]) -> None:
    (line,) = refusal(*overrides)
    for word in words:
        assert word in line


def test_all_problems_come_at_once() -> None:
    lines = refusal("train.muon_lr=0.02", "train.workers=3", "rollout.deterministic=true", "verl.tensor_parallel=2")
    assert [line.split("=")[0] for line in lines] == [
        "train.muon_lr", "train.workers", "rollout.deterministic", "verl.tensor_parallel",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["train.schedule=cosine", "train.warmup_steps=10", "train.kl=0.01"],
        ["train.prompts_per_step=12", "train.updates_per_step=4"],
        ["train.microbatch_tokens=4096"],
        ["verl.gpus=8", "verl.nodes=2", "verl.tensor_parallel=8"],
        ["verl.mode=colocate_async"],
        ["verl.mode=separate_async", "verl.gpus=4", "verl.rollout_gpus=2"],
        ["verl.mode=separate_async", "verl.gpus=4", "verl.rollout_gpus=1", "train.prompts_per_step=3"],
        ["verl.overrides=['actor_rollout_ref.actor.optim.lr=1e-6', '+trainer.note=a=b']"],
    ],
)
def test_what_verl_can_do_passes(overrides: list[str]) -> None:
    check_rules(config(*overrides))


def test_only_the_training_gpus_share_an_update() -> None:
    sizes = ["train.prompts_per_step=2", "train.group_size=3"]
    (line,) = refusal("verl.mode=separate_async", "verl.gpus=8", "verl.rollout_gpus=3", *sizes)
    assert "5 training GPUs" in line
    check_rules(config("verl.mode=separate_async", "verl.gpus=8", "verl.rollout_gpus=5", *sizes))


def test_a_task_made_for_the_local_engine_gets_what_verl_has() -> None:
    """A task's defaults were chosen with the local engine; only a user's own setting is refused."""
    defaults: dict[str, Any] = {
        "rollout": {"max_turns": 3},
        "train": {"muon_lr": 0.002, "schedule": "linear", "lr": 5e-4, "prompts_per_step": 8},
    }
    adapted = adapt_defaults(defaults)
    assert adapted == {
        "rollout": {"max_turns": 3},
        "train": {"muon_lr": 0.0, "schedule": "cosine", "lr": 5e-4, "prompts_per_step": 8},
    }
    assert defaults["train"]["muon_lr"] == 0.002
    check_rules(made_config({"plugin": "x", "engine": "verl", "verl": {"gpus": 1}, **adapted}))


def test_defaults_without_a_training_section_stay_as_they_are() -> None:
    assert adapt_defaults({"eval": {"every": 3}}) == {"eval": {"every": 3}}
    assert adapt_defaults({"train": {"schedule": "cosine"}})["train"]["schedule"] == "cosine"
