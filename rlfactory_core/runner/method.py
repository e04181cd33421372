"""``train.loss=dapo`` and the other methods: sets the keys that belong to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlfactory_core.algo.methods import METHODS
from rlfactory_core.config import RunConfig
from rlfactory_core.errors import ConfigError
from rlfactory_core.rewards.settings import RewardConfig


def with_method(config: RunConfig, given: Mapping[str, Any]) -> RunConfig:
    """The configuration with the keys of the method that ``train.loss`` names, if it names one.

    Args:
        given: what the user has set, as plain data; a task's own defaults give way to the method.

    Raises:
        ConfigError: the user has set one of these keys to another value.
    """
    method = METHODS.get(config.train.loss)
    if method is None:
        return config
    chosen = [key for key in given.get("train") or {} if key in method.train]
    other = [key for key in chosen if getattr(config.train, key) != method.train[key]]
    if other:
        meant = ", ".join(f"train.{key}={method.train[key]}" for key in other)
        set_to = ", ".join(f"train.{key}={getattr(config.train, key)}" for key in other)
        rest = " ".join(f"train.{key}={value}" for key, value in method.train.items() if key not in other)
        raise ConfigError(
            f"train.loss={method.name} means {meant}, and {set_to} is set. Drop the latter, or choose each key "
            f"yourself: train.loss=ppo {rest}"
        )
    return config.model_copy(update={"train": config.train.model_copy(update=dict(method.train))})


def with_rewards_of_method(config: RunConfig, rewards: Mapping[str, float]) -> RunConfig:
    """The configuration with the rewards of the method, unless it has rewards of their names.

    Args:
        rewards: the task's own, for a configuration that names none.
    """
    method = METHODS.get(config.train.loss)
    limits = config.rollout
    limit = min(limits.max_tokens, limits.max_turns * limits.max_turn_tokens)
    added = [RewardConfig.model_validate(reward) for reward in method.rewards(limit)] if method else []
    wanted = config.rewards
    if wanted is None:
        wanted = tuple(RewardConfig(name=name, weight=weight) for name, weight in rewards.items())
    names = {reward.name for reward in wanted}
    missing = tuple(reward for reward in added if reward.name not in names)
    return config.model_copy(update={"rewards": (*wanted, *missing)}) if missing else config
