"""``--judge``: a model judge beside the rewards that a run has anyway, in one word of the command line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rlfactory_core.config import RewardConfig, RunConfig
from rlfactory_core.errors import ConfigError, PluginError, UsageError
from rlfactory_core.plugins.registry import Registry

NAME = "judge"


def with_judge(config: RunConfig, rewards: Mapping[str, float], judge: str, registry: Registry) -> RunConfig:
    """The configuration with the reward ``judge`` (weight 1) after its other rewards.

    Args:
        rewards: the task's own, which count where the configuration names none.
        judge: the address of an OpenAI-compatible server, or the endpoint file of ``rlfactory judge serve``.

    Raises:
        UsageError: it is neither of the two.
        ConfigError: the configuration has a judge already.
        PluginError: no plugin that is installed gives one.
    """
    wanted = config.rewards
    if wanted is None:
        wanted = tuple(RewardConfig(name=name, weight=weight) for name, weight in rewards.items())
    if any(NAME in (reward.name.rsplit(":", 1)[-1], reward.called) for reward in wanted):
        raise ConfigError(
            f"--judge {judge}: the run's rewards have a judge already. Leave --judge out, and set the judge's url or "
            "endpoints where it is configured."
        )
    added = RewardConfig.model_validate({"name": NAME, "weight": 1.0, **_place(judge)})
    try:
        registry.find(NAME, "reward_scorer", "verifier")
    except PluginError as error:
        raise PluginError(
            f"--judge needs the reward '{NAME}', which no installed plugin gives: pip install rlfactory-judge ({error})"
        ) from error
    return config.model_copy(update={"rewards": (*wanted, added)})


def _place(judge: str) -> dict[str, str]:
    if judge.startswith(("http://", "https://")):
        return {"url": judge}
    file = Path(judge).expanduser()
    if file.suffix == ".json" and file.is_file():
        return {"endpoints": str(file.absolute())}
    raise UsageError(
        f"--judge {judge}: expected the address of an OpenAI-compatible server, such as http://127.0.0.1:8000/v1, or "
        "an existing endpoint file (.json) of `rlfactory judge serve`."
    )
