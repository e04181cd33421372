"""Resolves a configuration, with its plugins and its engine, from files and the command line."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from rlfactory_core.algo.advantages import GAE
from rlfactory_core.algo.mixing import prompt_shares
from rlfactory_core.algo.until import SAMPLED, check_goals
from rlfactory_core.config import RunConfig
from rlfactory_core.config.loading import dump_yaml, load_yaml, merge, parse_override
from rlfactory_core.engines.base import Engine, EngineFactoryTraits, EngineTraits
from rlfactory_core.errors import ConfigError, UsageError
from rlfactory_core.plugins.declared import declared
from rlfactory_core.plugins.loading import is_file
from rlfactory_core.plugins.registry import Registry
from rlfactory_core.protocols import RewardFactoryTraits
from rlfactory_core.reporting.loggers import check_loggers
from rlfactory_core.rewards.settings import RewardConfig
from rlfactory_core.runner.judge import with_judge
from rlfactory_core.runner.method import with_method, with_rewards_of_method
from rlfactory_core.runner.several import resolve_tasks
from rlfactory_core.settings import validate_section
from rlfactory_core.tasks.agents import agents_plugin, has_agent
from rlfactory_core.tasks.generic import NAME as GENERIC
from rlfactory_core.tasks.opening import task_parts
from rlfactory_core.tasks.parts import TaskParts, make_task
from rlfactory_core.tasks.solving import tiny_defaults
from rlfactory_core.tasks.task import Task
from rlfactory_core.tools.servers import check_servers, mcp_plugin


@dataclass(frozen=True, slots=True)
class Prepared:
    """A run that is ready to start."""

    parts: TaskParts
    engine: Engine
    traits: EngineTraits = field(default_factory=EngineTraits)

    @property
    def config(self) -> RunConfig:
        return self.parts.config

    @property
    def registry(self) -> Registry:
        return self.parts.registry


def prepare(
    file: Path | None, overrides: Sequence[str | Mapping[str, Any]], judge: str | None = None, recipe: str | None = None
) -> Prepared:
    """Resolve the configuration, load the plugin and let the engine check it.

    Args:
        file: the ``--config`` file.
        overrides: ``key=value`` texts and nested plain data; later ones win.
        judge: the address of a judge, see `with_judge`.
        recipe: a plugin's recipe; the file overrides it.

    Raises:
        UsageError: the configuration is invalid; raised before anything costly happens.
    """
    registry = Registry()
    base = load_recipe(recipe, registry) if recipe else {}
    config, task = resolve_task(registry, file, overrides, base, judge)
    return prepared_run(registry, config, task)


def prepared_run(registry: Registry, config: RunConfig, task: Task | None = None) -> Prepared:
    """The run of a resolved configuration; see `find_parts` for the task, and `prepare` for what is raised."""
    refuse_other_engines(config, registry)
    prepared = check(find_parts(registry, config, task))
    check_until(prepared.parts)
    return prepared


def check_until(parts: TaskParts) -> None:
    """Refuse goals of the training that no evaluation measures.

    Raises:
        ConfigError: an unknown metric.
    """
    goals = parts.config.train.until
    sliced = any("/" in name.removeprefix(SAMPLED) for name in goals)
    slices = [name for sample in parts.held_out(required=False) for name in sample.slices] if sliced else []
    check_goals(goals, [*parts.scorers.weights, parts.scorers.success], slices)


def load_recipe(name: str, registry: Registry) -> dict[str, Any]:
    """The configuration that a plugin brings under this name, as plain data.

    Raises:
        PluginError: no plugin brings it; the message has the nearest name.
        ConfigError: its file cannot be read.
    """
    return load_yaml(Path(registry.find(name, "recipe").make()))


def given_keys(file: Path | None, overrides: Sequence[str | Mapping[str, Any]]) -> dict[str, Any]:
    """What a user has given, as plain data, before a task's defaults."""
    over = (parse_override(item) if isinstance(item, str) else item for item in overrides)
    return merge(load_yaml(file) if file else {}, *over)


def resolve(
    registry: Registry,
    file: Path | None,
    overrides: Sequence[str | Mapping[str, Any]],
    base: Mapping[str, Any] = {},
    judge: str | None = None,
) -> RunConfig:
    """The whole configuration, on top of the task's own defaults; no engine has seen it yet.

    Args:
        base: plain data that the file overrides, such as a recipe or the configuration of an earlier run.
        judge: the address of a judge, see `with_judge`.
    """
    return resolve_task(registry, file, overrides, base, judge)[0]


def resolve_task(
    registry: Registry,
    file: Path | None,
    overrides: Sequence[str | Mapping[str, Any]],
    base: Mapping[str, Any] = {},
    judge: str | None = None,
) -> tuple[RunConfig, Task]:
    """As `resolve`, with the task, which is made once."""
    given = _from_anywhere(merge(base, given_keys(file, overrides)))
    if not given.get("tasks"):
        return _resolve_one(registry, judge, given)
    data, task = resolve_tasks(given, partial(_resolve_one, registry, judge))
    return with_method(run_config(data, registry), given), task


def _from_anywhere(given: dict[str, Any]) -> dict[str, Any]:
    """With absolute paths of the plugin's file and the model's folder, so that the run's folder works anywhere."""
    plugin, model = given.get("plugin"), given.get("model")
    if isinstance(plugin, str) and is_file(plugin):
        given["plugin"] = os.path.abspath(Path(plugin).expanduser())
    if isinstance(model, str) and Path(model).expanduser().is_dir():  # and no hub id
        given["model"] = os.path.abspath(Path(model).expanduser())
    return given


def _resolve_one(registry: Registry, judge: str | None, given: dict[str, Any]) -> tuple[RunConfig, Task]:
    given["plugin"] = plugin = given.get("plugin") or _generic(given)
    if not isinstance(plugin, str):
        raise UsageError(
            "No plugin is named. Say which task, for example --plugin search, or bring data, and tools as MCP servers: "
            "--data train.jsonl --mcp mcp.json"
        )
    if plugin == GENERIC and (given.get("agent") or {}).get("command"):
        given["task"] = {"system": "", **(given.get("task") or {})}  # the agent has a prompt of its own
    seed = given.get("seed")
    task = make_task(registry.task(plugin), given.get("task") or {}, seed if isinstance(seed, int) else 0)
    # As the task reads its own options: relative paths, for one, would not hold in another folder.
    given["task"] = task.config.model_dump(mode="json", exclude_unset=True)
    defaults = tiny_defaults(task) if given.get("model") is None else task.defaults
    engine = registry.find(str(given.get("engine", "local")), "engine")
    adapt = declared(engine.factory, EngineFactoryTraits, f"The factory of the engine '{engine.name}'").adapt
    config = run_config(merge(adapt(defaults) if adapt else defaults, given), registry)
    config = with_method(config, given)
    config = config if judge is None else with_judge(config, task.rewards, judge, registry)
    config = with_rewards_of_method(config, task.rewards)
    settled = tuple(_settled(reward, registry) for reward in config.rewards or ()) or config.rewards
    if (config.seed, config.task) != (task.seed, given["task"]):  # the task's own defaults name others
        task = make_task(registry.task(plugin), config.task, config.seed)
    return config.model_copy(update={"rewards": settled}), task


def load_plugins(registry: Registry, data: Mapping[str, Any]) -> None:
    """Load the plugins of the tasks of a saved configuration; they may bring the engine."""
    for name, share in (data.get("tasks") or {data["plugin"]: {}}).items():
        registry.task(share.get("plugin") or name)


def run_config(data: Mapping[str, Any], registry: Registry) -> RunConfig:
    """Plain data, as a file has it, as a configuration; its engine's plugin is in use after that.

    Raises:
        ConfigError: an unknown key, a value that does not fit.
    """
    registry.find(str(data.get("engine", "local")), "engine")
    return validate_section(RunConfig, _read_engine_keys(data, registry))


def _read_engine_keys(data: Mapping[str, Any], registry: Registry) -> dict[str, Any]:
    """Moves the keys of engines, which a user writes under the engine's name, to the sections of plugins."""
    found = merge(data)
    for name in (found.keys() - RunConfig.model_fields.keys()) & {entry.name for entry in registry.entries}:
        registry.load(name)  # it may bring the engine that has these keys
    own = {name: found.pop(name) for name in registry.engine_sections() if name in found}
    return merge(found, {"plugins": own}) if own else found


def written_config(config: RunConfig, registry: Registry) -> dict[str, Any]:
    """A configuration as plain data, with the keys of engines where a user writes them."""
    data = config.model_dump(mode="json")
    own = {name: data["plugins"].pop(name) for name in registry.engine_sections() if name in data["plugins"]}
    return {**data, **own}


def refuse_other_engines(config: RunConfig, registry: Registry) -> None:
    """Refuse a configuration that sets keys of an engine which does not run.

    Raises:
        UsageError: such a key has another value than its default.
    """
    for engine, section in registry.engine_sections().items():
        data = {} if engine == config.engine_name else config.plugins.get(engine, {})
        if given := validate_section(section, data, engine).model_dump(exclude_defaults=True):
            raise UsageError(
                f"{', '.join(f'{engine}.{name}' for name in given)}: the {config.engine_name} engine has none of "
                f"these. Add --engine {engine}, or drop them."
            )


def _settled(reward: RewardConfig, registry: Registry) -> RewardConfig:
    """The reward with its options as its factory's `settle` rewrites them (see `lazy.LazyReward`), and its file.

    A file is named by its absolute path, and its reward labelled by the name alone.
    """
    factory = registry.find(reward.name, "reward_scorer", "verifier").factory
    file, _, name = reward.name.rpartition(":")
    if is_file(file):
        absolute = f"{Path(file).expanduser().resolve()}:{name}"
        reward = reward.model_copy(update={"name": absolute, "label": reward.label or name})
    settle = declared(factory, RewardFactoryTraits, f"The factory of the reward '{reward.name}'").settle
    if settle is None or not reward.options:
        return reward
    known = reward.model_dump(exclude=set(reward.options), exclude_unset=True)
    return RewardConfig.model_validate({**known, **settle(reward.options)})


def _generic(given: Mapping[str, Any]) -> str | None:
    """The name of the generic task, if the user gives data or tools and no plugin."""
    sections = {name: given[name] for name in ("data", "tools") if isinstance(given.get(name), Mapping)}
    own = [("data", "train"), ("data", "eval"), ("tools", "mcp")]
    return GENERIC if any(sections.get(section, {}).get(key) for section, key in own) else None


def explain(prepared: Prepared) -> str:
    """The resolved configuration as text, and the engine's own configuration that follows from it."""
    text = dump_yaml(written_config(prepared.config, prepared.registry))
    config, engine = prepared.config, prepared.traits.explain
    return text if engine is None else f"{text}\n# {config.engine}\n{engine(config, prepared.registry)}"


def check(parts: TaskParts) -> Prepared:
    """Let the engine complete and check a resolved configuration."""
    config, registry = parts.config, parts.registry
    check_loggers(config.loggers)
    engine: Engine = registry.find(config.engine, "engine").make()
    traits = declared(engine, EngineTraits, f"The engine '{config.engine}'")
    if not traits.serves_pools and parts.scorers.pools:
        engines = [item for item in registry.registered("engine") if item.name != config.engine]
        parts.scorers.refuse_pools([item.name for item in engines if getattr(item.make(), "serves_pools", False)])
    if traits.uses_algorithms:
        if config.train.advantage != GAE:
            registry.find(config.train.advantage, "advantage")
        registry.find(config.train.loss, "loss_function")
    if config.train.guard == "rollback" and traits.roll_back is None:
        raise ConfigError(
            f"train.guard=rollback: the {config.engine} engine does not go back to an earlier checkpoint. Use stop."
        )
    return Prepared(replace(parts, config=engine.prepare(config)), engine, traits)


def find_parts(registry: Registry, config: RunConfig, task: Task | None = None) -> TaskParts:
    """Load the plugins that give the parts named by a configuration or its task, so that they are locked, too.

    Args:
        task: the configuration's task; None: it is made here.

    Raises:
        PluginError: no plugin gives one of them.
        UsageError: the MCP servers' configuration cannot be read, or needs something that is not there.
    """
    parts = task_parts(config, registry, task)
    registry.find(config.train.prompts, "prompt_sampler")
    prompt_shares(config)
    for part in parts.each():
        each = part.config
        if has_agent(part.task, each.agent):
            registry.load(agents_plugin())
        registry.find(each.tools.manager, "tool_manager")
        if each.tools.mcp is not None:
            registry.load(mcp_plugin())
            check_servers(each.tools.mcp)
        if each.env is not None:
            registry.find(each.env, "env")
    if config.chat.format != "auto":
        registry.find(config.chat.format, "chat_format")
    return replace(parts, config=with_sections(config, registry))


def with_sections(config: RunConfig, registry: Registry) -> RunConfig:
    """The configuration with all keys of the plugins' sections: those that it names, and those of plugins in use.

    Raises:
        UsageError: as `Registry.sections`.
    """
    sections = {name: section.model_dump(mode="json") for name, section in registry.sections(config).items()}
    named = {name.rpartition(":")[2]: name for name in config.plugins}  # a distribution stays in front of its name
    return config.model_copy(update={"plugins": {named.get(name, name): data for name, data in sections.items()}})
