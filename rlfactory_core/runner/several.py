"""A run of several tasks: the configuration of each, and of all together."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlfactory_core.config import RunConfig, TaskShare
from rlfactory_core.errors import ConfigError, UsageError
from rlfactory_core.plugins.loading import is_file
from rlfactory_core.rollout.settings import LimitsConfig
from rlfactory_core.settings import merge, validate_section

_OF_ONE_TASK = ("task", "env", "data.train", "data.eval", "agent.command", "tools.overrides", "tools.disabled")
_LARGEST = ("max_turns", "max_tool_calls", "max_turn_tokens", "max_tokens")  # limits; the engine makes room for these


def each_task(given: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What a user has written for each task, as if it were trained alone; the name of a single task is empty."""
    if not given.get("tasks"):
        return {"": dict(given)}
    shares, whole = _shares(given), _whole(given)
    plugin = "+".join(shares)
    if given.get("plugin", plugin) != plugin:
        raise UsageError(
            f"plugin is {given['plugin']!r}, but there are the tasks {', '.join(shares)}. Drop one of the two."
        )
    if not given.get("model"):
        raise UsageError(f"A run of several tasks ({', '.join(shares)}) needs a model for all of them. Give --model.")
    for key in _OF_ONE_TASK:
        section, _, name = key.partition(".")
        found = given.get(section) or {}
        if found and (not name or found.get(name)):
            raise ConfigError(f"{key} is of one task, and there are several. Write tasks.{next(iter(shares))}.{key}.")
    return {
        name: merge(
            whole, share.model_dump(mode="json", exclude={"weight"}, exclude_unset=True), {"plugin": share.plugin}
        )
        for name, share in shares.items()
    }


def combined(given: Mapping[str, Any], configs: Mapping[str, RunConfig]) -> dict[str, Any]:
    """The configuration of several tasks as plain data, in which each task has its limits, tools and rewards.

    These follow from the task's own ``defaults``. What those say of the training, the evaluation and the checkpoints
    is left out, because it is the same for all tasks.
    """
    shares, whole = _shares(given), _whole(given)
    largest = {key: max(getattr(config.rollout, key) for config in configs.values()) for key in _LARGEST}
    settled = {name: _settled(shares[name], config, whole.get("tools") or {}) for name, config in configs.items()}
    return merge(whole, {"plugin": "+".join(shares), "tasks": settled, "rollout": largest})


def _whole(given: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in given.items() if key not in ("tasks", "plugin")}


def _shares(given: Mapping[str, Any]) -> dict[str, TaskShare]:
    return {name: _share(name, data) for name, data in dict(given["tasks"]).items()}


def _share(name: str, data: Any) -> TaskShare:
    if "/" in name or "+" in name:
        raise ConfigError(f"tasks.{name}: the name of a task stands in ids and metrics; it takes no '/' and no '+'.")
    share = validate_section(TaskShare, data if isinstance(data, Mapping) else {"weight": data}, f"tasks.{name}")
    validate_section(LimitsConfig, share.rollout, f"tasks.{name}.rollout")
    plugin = share.plugin or name
    place = str(Path(plugin).expanduser().resolve()) if is_file(plugin) else plugin
    return share.model_copy(update={"plugin": place})


def _settled(share: TaskShare, config: RunConfig, tools: Mapping[str, Any]) -> dict[str, Any]:
    """The share with all that its task's defaults and the configuration say of it."""
    data = config.model_dump(mode="json")
    limits = {key: data["rollout"][key] for key in LimitsConfig.model_fields}
    own = {key: value for key, value in data["tools"].items() if key in config.tools.model_fields_set - set(tools)}
    shared = {key: value for key, value in share.tools.items() if key in data["tools"]}  # others are in its sources
    kept = {key: data[key] for key in ("task", "rewards", "env", "data")}
    return {**kept, "plugin": share.plugin, "weight": share.weight, "rollout": limits, "tools": {**own, **shared}}
