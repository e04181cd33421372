"""``--judge``: adds the reward ``judge`` to a run, or says where the one that it has is."""

from __future__ import annotations

from collections.abc import Mapping

from rlfactory_core.config import RunConfig
from rlfactory_core.errors import ConfigError, PluginError, UsageError
from rlfactory_core.plugins.registry import Registry
from rlfactory_core.rewards.settings import RewardConfig

NAME = "judge"


def with_judge(config: RunConfig, rewards: Mapping[str, float], judge: str, registry: Registry) -> RunConfig:
    """The configuration with a judge at this address: the one among its rewards, or else a new one with weight 1.

    Args:
        rewards: the task's own, for a configuration that names none.
        judge: the address of an OpenAI-compatible server.

    Raises:
        UsageError: ``judge`` is no address.
        ConfigError: another reward has the label ``judge``.
        PluginError: no installed plugin has a judge.
    """
    place = _place(judge)
    wanted = config.rewards
    if wanted is None:
        wanted = tuple(RewardConfig(name=name, weight=weight) for name, weight in rewards.items())
    try:
        registry.find(NAME, "reward_scorer", "verifier")
    except PluginError as error:
        raise PluginError(
            f"--judge needs the reward '{NAME}', which no installed plugin gives: pip install rlfactory-judge ({error})"
        ) from error
    if any(_judges(reward) for reward in wanted):
        placed = tuple(_at(reward, place) if _judges(reward) else reward for reward in wanted)
        return config.model_copy(update={"rewards": placed})
    if any(reward.key == NAME for reward in wanted):
        raise ConfigError(f"--judge {judge}: another reward is labelled '{NAME}'. Give it another label.")
    added = RewardConfig.model_validate({"name": NAME, "weight": 1.0, **place})
    return config.model_copy(update={"rewards": (*wanted, added)})


def _judges(reward: RewardConfig) -> bool:
    return reward.name.rsplit(":", 1)[-1] == NAME


def _at(reward: RewardConfig, place: Mapping[str, str]) -> RewardConfig:
    """The reward without its own address. The name of a pool's model goes as well: a server may name it otherwise."""
    dropped = {"url", "placement", "gpus", "tensor_parallel"}
    dropped |= {"model"} if reward.options.get("placement") == "pool" else set()
    return RewardConfig.model_validate({**reward.model_dump(exclude=dropped, exclude_unset=True), **place})


def _place(judge: str) -> dict[str, str]:
    if judge.startswith(("http://", "https://")):
        return {"url": judge}
    raise UsageError(
        f"--judge {judge.rpartition('@')[2]}: expected the address of an OpenAI-compatible server, such as http://127.0.0.1:8000/v1."
    )
