"""Makes verl's whole configuration from its hydra files and our overrides, and has verl check it."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from typing import Any

from rlfactory_core.errors import ConfigError
from rlfactory_verl.overrides import ENGINE, PASSED_ON, Override, changed_by


def compose(overrides: Sequence[Override], *, with_model: bool = True) -> Any:
    """The ``DictConfig`` that verl's trainer takes.

    Args:
        with_model: whether the model can be read; verl reads it to check a critic.

    Raises:
        ConfigError: verl's schema has no such key, or verl refuses a value.
    """
    from hydra import compose as hydra_compose
    from hydra import initialize_config_module
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException
    from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY, POLICY_LOSS_REGISTRY
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    try:
        with initialize_config_module("verl.trainer.config", version_base=None):
            config = hydra_compose("ppo_trainer", [str(item) for item in changed_by(overrides).values()])
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(
            f"verl's configuration does not take an override: {_text(error)}{_hint(overrides)}"
        ) from error
    estimator = config.algorithm.adv_estimator
    if estimator not in ADV_ESTIMATOR_REGISTRY:
        known = ", ".join(sorted({*map(str, ADV_ESTIMATOR_REGISTRY), "dr_grpo"}))
        raise ConfigError(f"train.advantage is {estimator!r}, which verl does not have. Known: {known}.")
    loss = config.actor_rollout_ref.actor.policy_loss.loss_mode
    if loss not in POLICY_LOSS_REGISTRY:
        known = ", ".join(sorted({"ppo", *map(str, POLICY_LOSS_REGISTRY)} - {"vanilla"}))
        raise ConfigError(f"train.loss is {loss!r}, which verl does not have. Known: {known}.")
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            validate_config(config, need_reference_policy(config), with_model and need_critic(config))
    except (
        AssertionError,
        ValueError,
        NotImplementedError,
        TypeError,
        HydraException,
        OmegaConfBaseException,
    ) as error:
        raise ConfigError(f"verl refuses the configuration: {_text(error)}{_hint(overrides)}") from error
    return config


def explain(config: Any, overrides: Sequence[Override]) -> str:
    """The whole configuration as YAML, then each changed value with our key for it."""
    from omegaconf import OmegaConf

    changed = changed_by(overrides)
    width = max(map(len, changed))
    sources = max(len(item.source) for item in changed.values())
    rows = [f"# {item.source:<{sources}}  {key:<{width}}  {item.value}" for key, item in sorted(changed.items())]
    head = f"# {'from our key':<{sources}}  {'verl':<{width}}  value"
    note = f"# {ENGINE}: makes verl do what the local engine does. {PASSED_ON}: given after `--`."
    return "\n".join([OmegaConf.to_yaml(config), head, *rows, note])


def _text(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _hint(overrides: Sequence[Override]) -> str:
    given = [str(item) for item in overrides if item.source == PASSED_ON]
    return f" Given after `--`: {', '.join(given)}." if given else ""
