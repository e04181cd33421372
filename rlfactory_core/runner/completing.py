"""Completes a configuration by what follows from it: a method's keys and rewards, and a judge's address."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlfactory_core.algo import stages
from rlfactory_core.algo.methods import METHODS
from rlfactory_core.config import RunConfig
from rlfactory_core.errors import ConfigError, UsageError
from rlfactory_core.plugins.attributes import optional_attributes
from rlfactory_core.plugins.loading import is_file
from rlfactory_core.plugins.registry import Registry
from rlfactory_core.protocols import RewardFactoryTraits
from rlfactory_core.rewards.settings import RewardConfig
from rlfactory_core.tasks.task import Task

JUDGE = "judge"  # the reward that the option --judge is about


def completed(
    config: RunConfig, given: Mapping[str, Any], task: Task, judge: str | None, registry: Registry
) -> RunConfig:
    """The configuration with the keys of its method, and with its rewards if they differ from the task's own."""
    config = with_method(config, given)
    own = tuple(RewardConfig(name=name, weight=weight) for name, weight in task.rewards.items())
    rewards = before = own if config.rewards is None else config.rewards
    if judge is not None:
        rewards = with_judge(rewards, judge, registry)
    method, limits = METHODS.get(config.train.loss), config.rollout
    if method is not None:
        limit = min(limits.max_tokens, limits.max_turns * limits.max_turn_tokens)
        names = {each.name for each in rewards}
        added = map(RewardConfig.model_validate, method.rewards(limit))
        rewards += tuple(reward for reward in added if reward.name not in names)
    if config.rewards is None and rewards == before:
        return config
    settled = tuple(_settled(reward, registry) for reward in rewards) or config.rewards
    return config.model_copy(update={"rewards": settled})


def with_method(config: RunConfig, given: Mapping[str, Any]) -> RunConfig:
    """The configuration with the keys of the methods that ``train.method`` and ``train.loss`` name.

    A task's own defaults give way to the method. What the user has set (``given``) must not contradict it.
    """
    train = stages.with_method(config.train, set(given.get("train") or {}))
    config = config.model_copy(update={"train": train})
    method = METHODS.get(config.train.loss)
    if method is None:
        return config
    chosen = {key: getattr(config.train, key) for key in given.get("train") or {} if key in method.train}
    other = {key: value for key, value in chosen.items() if value != method.train[key]}
    if other:
        meant = ", ".join(f"train.{key}={method.train[key]}" for key in other)
        set_to = ", ".join(f"train.{key}={value}" for key, value in other.items())
        rest = " ".join(f"train.{key}={value}" for key, value in method.train.items() if key not in other)
        raise ConfigError(
            f"train.loss={method.name} means {meant}, and {set_to} is set. Drop the latter, or choose each key "
            f"yourself: train.loss=ppo {rest}"
        )
    return config.model_copy(update={"train": config.train.model_copy(update=dict(method.train))})


def _settled(reward: RewardConfig, registry: Registry) -> RewardConfig:
    """The reward with its options as its factory's `settle` rewrites them (see `lazy.LazyReward`), and its file.

    A file is named by its absolute path, and its reward labelled by the name alone.
    """
    factory = registry.find(reward.name, "reward_scorer", "verifier").factory
    file, _, name = reward.name.rpartition(":")
    if is_file(file):
        absolute = f"{Path(file).expanduser().resolve()}:{name}"
        reward = reward.model_copy(update={"name": absolute, "label": reward.label or name})
    settle = optional_attributes(factory, RewardFactoryTraits, f"The factory of the reward '{reward.name}'").settle
    return reward if settle is None or not reward.options else _with_options(reward, settle(reward.options))


def with_judge(rewards: Sequence[RewardConfig], judge: str, registry: Registry) -> tuple[RewardConfig, ...]:
    """The rewards with a judge at this address of a server: the one among them, or else a new one with weight 1."""
    if not judge.startswith(("http://", "https://")):
        raise UsageError(
            f"--judge {judge.rpartition('@')[2]}: expected the address of an OpenAI-compatible server, such as "
            "http://127.0.0.1:8000/v1."
        )
    factory = registry.find(JUDGE, "reward_scorer", "verifier").factory
    traits = optional_attributes(factory, RewardFactoryTraits, f"The factory of the reward '{JUDGE}'")
    at = traits.at or (lambda options, url: {**options, "url": url})
    if any(_judges(reward) for reward in rewards):
        return tuple(_with_options(each, at(each.options, judge)) if _judges(each) else each for each in rewards)
    if any(reward.key == JUDGE for reward in rewards):
        raise ConfigError(f"--judge {judge}: another reward is labelled '{JUDGE}'. Give it another label.")
    return (*rewards, RewardConfig.model_validate({"name": JUDGE, "weight": 1.0, **at({}, judge)}))


def _judges(reward: RewardConfig) -> bool:
    return reward.name.rsplit(":", 1)[-1] == JUDGE


def _with_options(reward: RewardConfig, options: Mapping[str, Any]) -> RewardConfig:
    known = reward.model_dump(exclude=set(reward.options), exclude_unset=True)
    return RewardConfig.model_validate({**known, **options})
