"""Refuses settings that verl does not support before anything starts, and adapts a task's defaults to verl."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlfactory_core.algo import UNIFORM, TrainConfig
from rlfactory_core.engines import EngineSettings
from rlfactory_core.errors import ConfigError
from rlfactory_core.settings import merge
from rlfactory_verl.config import VerlConfig

GAE = "gae"
ESTIMATORS = {"dr_grpo": "grpo"}  # our name -> verl's, if they differ
SAPO = "sapo"
LOSSES = {"ppo": "vanilla", "dapo": "vanilla", "dr_grpo": "vanilla"}  # our name -> verl's, if they differ
MISSING_INPUTS = {  # estimators of verl -> the input that its V1 trainer does not give them
    "remax": "a greedy attempt beside each group",
    "gdpo": "rewards before they are weighted and summed",
    "optimal_token_baseline": "each token's sum of squared probabilities",
    "opo": "batches without rows of padding, of which two make its baseline 0 / 0",
    "tir_optimal_token_baseline": "each token's sum of squared probabilities",
}
BY_TURN = ("turn_grpo", "turn_rloo", "gigpo")  # our names, of which verl's trainer knows nothing
_DEFAULT = TrainConfig()


def adapt_defaults(defaults: Mapping[str, Any]) -> dict[str, Any]:
    """A task's own defaults, which were chosen for the local engine, changed to what verl supports.

    verl's FSDP engine has one optimizer, AdamW, and the schedules constant and cosine.
    """
    train = dict(defaults.get("train", {}))
    if train.get("schedule") == "linear":
        train["schedule"] = "cosine"
    return merge(defaults, {"train": {**train, "muon_lr": 0.0}}) if train else dict(defaults)


def check_rules(config: EngineSettings) -> None:
    """Refuse what verl does not support.

    Raises:
        ConfigError: lists all problems, each with its remedy.
    """
    problems = [*_not_in_verl(config), *_sizes(config), *_machines(config)]
    if problems:
        raise ConfigError("\n".join(problems))


def _not_in_verl(config: EngineSettings) -> Iterator[str]:
    train = config.train
    local = "or train with --engine local"
    if train.loss == SAPO and train.aggregation != "trajectory":
        yield f"train.loss={SAPO}: verl has it with train.aggregation=trajectory only. Set that, {local}."
    yield from _estimator(train.advantage)
    yield from _optimizer(train, local)
    if train.prompts != UNIFORM:
        yield (
            f"train.prompts={train.prompts}: verl's trainer does not report results back to a prompt sampler. Use "
            f"train.prompts={UNIFORM}, {local}."
        )
    if train.refill and train.advantage == GAE:
        yield "train.refill=true compares the attempts of a group, and train.advantage=gae does not. Leave one out."
    if train.workers:
        yield f"train.workers={train.workers} is for the local engine: set verl.gpus (and verl.nodes) instead."
    if train.lora is not None and train.lora.dropout:
        yield f"train.lora.dropout={train.lora.dropout:g}: verl's adapters have none. Set it to 0, {local}."
    if train.lora is not None and train.lora.adapter:
        yield f"train.lora.adapter: verl begins with new adapters. Name a merged model, {local}."
    if train.lora is not None and train.lora.base_bits:
        yield f"train.lora.base_bits={train.lora.base_bits}: verl keeps the base as it is. Leave it out, {local}."
    if train.explode_norm != _DEFAULT.explode_norm:
        yield f"train.explode_norm: verl never skips a step. Leave it out and lower train.max_grad_norm, {local}."
    if config.rollout.deterministic:
        yield f"rollout.deterministic=true: vLLM's batches depend on time. Set it to false, {local}."
    if not train.steps:
        yield "train.steps=0 trains nothing; to measure a model use `rlfactory eval`."


def _optimizer(train: TrainConfig, local: str) -> Iterator[str]:
    if train.optimizer_bits != _DEFAULT.optimizer_bits:
        yield f"train.optimizer_bits={train.optimizer_bits}: verl's FSDP engine has 32. Leave it out, {local}."
    if train.muon_lr:
        yield f"train.muon_lr={train.muon_lr:g}: verl's FSDP engine has AdamW only. Set it to 0, {local}."
    if train.schedule == "linear":
        yield f"train.schedule=linear: verl's FSDP engine has constant and cosine. Choose one of them, {local}."


def _estimator(name: str) -> Iterator[str]:
    if name in BY_TURN:
        yield f"train.advantage={name} compares turns, and verl's estimators do not: use grpo, or --engine local."
    if name in MISSING_INPUTS:
        yield (
            f"train.advantage={name} needs {MISSING_INPUTS[name]}, which verl's V1 trainer does "
            "not give it. Use another, such as grpo or rloo."
        )


def _sizes(config: EngineSettings) -> Iterator[str]:
    train = config.train
    prompts, updates = train.prompts_per_step, train.updates_per_step
    if prompts % updates:
        lower = next(number for number in range(updates, 0, -1) if prompts % number == 0)
        yield (
            f"train.prompts_per_step={prompts} cannot be cut into train.updates_per_step={updates} equal parts: "
            f"verl's updates are all of one size. Use train.prompts_per_step={-(-prompts // updates) * updates} or "
            f"train.updates_per_step={lower}."
        )
    if train.microbatch_tokens < config.rollout.max_tokens:
        yield (
            f"train.microbatch_tokens={train.microbatch_tokens} is less than rollout.max_tokens="
            f"{config.rollout.max_tokens}: the longest trajectory has to fit into one micro-batch."
        )
    workers = _training_gpus(config)
    sequences = prompts // max(updates, 1) * train.group_size
    if workers and sequences % workers:
        yield (
            f"An update has {sequences} sequences (train.prompts_per_step / train.updates_per_step x train.group_size)"
            f", which {workers} training GPUs cannot share evenly. Choose sizes that make a multiple of {workers}."
        )


def _machines(config: EngineSettings) -> Iterator[str]:
    verl = VerlConfig.of(config)
    if verl.mode == "separate_async":
        if verl.gpus < 2:
            yield (
                f"verl.mode=separate_async trains and samples on different GPUs and needs 2 of them or more; "
                f"verl.gpus={verl.gpus}. Use verl.mode=colocate_async."
            )
        elif not 0 < verl.rollout_gpus < verl.gpus:
            yield (
                f"verl.rollout_gpus={verl.rollout_gpus} of verl.gpus={verl.gpus}: at least one has to sample, and one "
                "to train."
            )
    elif verl.rollout_gpus:
        yield f"verl.rollout_gpus={verl.rollout_gpus} is for verl.mode=separate_async; in {verl.mode} all GPUs do both."
    sampling = (verl.rollout_gpus if verl.mode == "separate_async" else verl.gpus) * verl.nodes
    if verl.gpus and sampling % verl.tensor_parallel:
        yield (
            f"verl.tensor_parallel={verl.tensor_parallel}: {sampling} sampling GPUs cannot be cut into servers of that "
            "size."
        )
    for text in verl.overrides:
        if "=" not in text:
            yield f"{text!r} is not an override of verl's configuration. Expected KEY=VALUE after `--`."


def _training_gpus(config: EngineSettings) -> int:
    verl = VerlConfig.of(config)
    return (verl.gpus - verl.rollout_gpus if verl.mode == "separate_async" else verl.gpus) * verl.nodes
