"""From what a user writes to a run that is ready to start, in seven steps.

1. `read` what is given: a recipe, a file and the command line.
2. `_named` makes the tasks that it names.
3. `_with_defaults` puts the tasks' own defaults below it.
4. `run_config` validates it.
5. `completed` adds what follows from it: a method's keys and rewards, a judge.
6. `look_up` finds what its names stand for.
7. `check` lets the engine complete and check it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlfactory_core.config import RunConfig
from rlfactory_core.engines.base import EngineFactoryTraits
from rlfactory_core.engines.settings import WARM_START
from rlfactory_core.errors import PluginError, UsageError
from rlfactory_core.plugins.attributes import optional_attributes
from rlfactory_core.plugins.loading import is_file
from rlfactory_core.plugins.registry import INSTALLED_WITH, Registry
from rlfactory_core.reporting.folder import RUNS
from rlfactory_core.runner.checking import check
from rlfactory_core.runner.completing import completed, with_method
from rlfactory_core.runner.making import make_task, named_source
from rlfactory_core.runner.models import with_model, with_teacher
from rlfactory_core.runner.resolved import Resolved, look_up
from rlfactory_core.runner.several import combined, each_task
from rlfactory_core.settings import dump_yaml, load_yaml, merge, parse_override, validate_section
from rlfactory_core.tasks.generic import NAME as GENERIC
from rlfactory_core.tasks.solving import tiny_defaults
from rlfactory_core.tasks.task import Task
from rlfactory_core.tools.settings import ToolsConfig


def prepare(
    file: Path | None,
    overrides: Sequence[str | Mapping[str, Any]],
    judge: str | None = None,
    recipe: str | None = None,
    registry: Registry | None = None,
) -> Resolved:
    """Take all seven steps.

    Args:
        file: the ``--config`` file.
        overrides: ``key=value`` texts and nested plain data; later ones win.
        judge: the address of a judge, see `with_judge`.
        recipe: a plugin's recipe; the file overrides it.

    Raises:
        UsageError: the configuration is invalid; raised before anything costly happens.
    """
    registry = registry or Registry()
    given = read(file, overrides, load_recipe(recipe, registry) if recipe else {})
    return check(resolve(registry, given, judge))


def resolve(registry: Registry, given: Mapping[str, Any], judge: str | None = None) -> Resolved:
    """Take the steps from the second to the sixth; ``given`` is what `read` returns."""
    return look_up(*configured(registry, given, judge))


def configured(
    registry: Registry, given: Mapping[str, Any], judge: str | None = None
) -> tuple[RunConfig, Registry, dict[str, Task]]:
    """Take the steps from the second to the fifth; returns the arguments of `look_up`."""
    configs: dict[str, RunConfig] = {}
    tasks: dict[str, Task] = {}
    for name, own in each_task(given).items():
        configs[name], tasks[name] = _resolve_one(registry, own, judge)
    if "" in configs:
        return configs[""], registry, tasks
    return with_method(run_config(combined(given, configs), registry), given), registry, tasks


def read(
    file: Path | None, overrides: Sequence[str | Mapping[str, Any]], base: Mapping[str, Any] = {}
) -> dict[str, Any]:
    """What is given, as plain data; with absolute paths of the plugin's file and the model, see `with_model`.

    A configuration with relative ones, saved in the run's folder, could not be used from elsewhere.

    Args:
        base: plain data that the file overrides, such as a recipe or the configuration of an earlier run.
    """
    given = merge(base, given_keys(file, overrides))
    plugin = given.get("plugin")
    if isinstance(plugin, str) and is_file(plugin):
        given["plugin"] = os.path.abspath(Path(plugin).expanduser())
    for name in ("train", WARM_START):
        if name in given:
            given[name] = _with_absolute_names(given[name])
    if isinstance(stages := given.get("stages"), list):
        given["stages"] = list(map(_with_absolute_names, stages))
    return with_model(given)


def _with_absolute_names(train: Any) -> Any:
    """A stage's keys, of which ``source`` and the teachers may be a file or a folder; what is no mapping stays."""
    if not isinstance(train, Mapping):
        return train
    source = train.get("source")
    places = (Path(source).expanduser(), RUNS / source) if isinstance(source, str) else ()
    there = next((path for path in places if path.exists()), None)
    return with_teacher(train if there is None else {**train, "source": os.path.abspath(there)})


def given_keys(file: Path | None, overrides: Sequence[str | Mapping[str, Any]]) -> dict[str, Any]:
    """The keys of a file and of the command line, as plain data."""
    over = (parse_override(item) if isinstance(item, str) else item for item in overrides)
    return merge(load_yaml(file) if file else {}, *over)


def load_recipe(name: str, registry: Registry) -> dict[str, Any]:
    """The configuration that a plugin brings under this name, as plain data."""
    return load_yaml(Path(registry.find(name, "recipe").make()))


def _resolve_one(registry: Registry, given: Mapping[str, Any], judge: str | None) -> tuple[RunConfig, Task]:
    """The configuration of one task, and the task."""
    given, task = _named(registry, given)
    config = run_config(_with_defaults(registry, given, task), registry)
    config = completed(config, given, task, judge, registry)
    if (config.seed, config.task) != (task.seed, given["task"]):  # the task's own defaults name others
        task = make_task(registry.task(config.plugin), config.task, config.seed)
    return config, task


def _named(registry: Registry, given: Mapping[str, Any]) -> tuple[dict[str, Any], Task]:
    """The task that is named, and what is given with the task's keys as the task reads them: with absolute paths."""
    plugin = given.get("plugin") or _generic(given)
    if not isinstance(plugin, str):
        raise UsageError(
            "No plugin is named. Say which task, for example --plugin search, or bring data, and tools as MCP servers: "
            "--data train.jsonl --mcp mcp.json"
        )
    options = given.get("task") or {}
    if plugin == GENERIC and (given.get("agent") or {}).get("command"):
        options = {"system": "", **options}  # the agent has a prompt of its own
    seed = given.get("seed")
    task = make_task(registry.task(plugin), options, seed if isinstance(seed, int) else 0)
    return {**given, "plugin": plugin, "task": task.config.model_dump(mode="json", exclude_unset=True)}, task


def _generic(given: Mapping[str, Any]) -> str | None:
    """The name of the generic task, if the user gives data or tools and no plugin."""
    sections = {name: given[name] for name in ("data", "tools") if isinstance(given.get(name), Mapping)}
    data, tools = sections.get("data", {}), sections.get("tools", {})
    sources = [value for key, value in tools.items() if key not in ToolsConfig.model_fields or key == "sources"]
    return GENERIC if data.get("train") or data.get("eval") or any(sources) else None


def _with_defaults(registry: Registry, given: Mapping[str, Any], task: Task) -> dict[str, Any]:
    """What is given, on top of the task's defaults as the engine adapts them."""
    defaults = tiny_defaults(task) if given.get("model") is None else task.defaults
    engine = registry.find(str(given.get("engine", "local")), "engine")
    adapt = optional_attributes(engine.factory, EngineFactoryTraits, f"The factory of the engine '{engine.name}'").adapt
    return merge(adapt(defaults) if adapt else defaults, given)


def run_config(data: Mapping[str, Any], registry: Registry) -> RunConfig:
    """Plain data, as a file has it, as a configuration; its engine's plugin is in use after that."""
    registry.find(str(data.get("engine", "local")), "engine")
    data = _with_sources(merge(data), registry)
    own = {name: data.pop(name) for name in registry.engine_sections() if name in data}
    return validate_section(RunConfig, merge(data, {"plugins": own}) if own else data)


def _with_sources(data: dict[str, Any], registry: Registry) -> dict[str, Any]:
    """Moves the keys ``tools.NAME`` of sources of tools to ``tools.sources``, with values that hold in any folder."""
    tools = data.get("tools")
    if not isinstance(tools, Mapping):
        return data
    rest, sources = dict(tools), dict(tools.get("sources") or {})
    for name in tools.keys() - ToolsConfig.model_fields.keys():
        try:
            settle = named_source(name, tools[name], registry).traits.settle
        except PluginError:
            if (name, "tool_source") in INSTALLED_WITH:
                raise
            continue  # a misspelt key, which the section refuses
        given = rest.pop(name)
        sources[name] = given if settle is None else settle(given)
    return {**data, "tools": {**rest, "sources": {key: given for key, given in sources.items() if given is not None}}}


def written_config(config: RunConfig, registry: Registry) -> dict[str, Any]:
    """A configuration as plain data, with the keys of engines and of sources of tools where a user writes them."""
    data = config.model_dump(mode="json")
    data["tools"] |= data["tools"].pop("sources")
    own = {name: data["plugins"].pop(name) for name in registry.engine_sections() if name in data["plugins"]}
    return {**data, **own}


def saved_config(data: Mapping[str, Any], registry: Registry) -> RunConfig:
    """The configuration of an earlier run, whose tasks' plugins are loaded first, because they may bring the engine."""
    for name, share in (data.get("tasks") or {data["plugin"]: {}}).items():
        registry.task(share.get("plugin") or name)
    return run_config(data, registry)


def explain(resolved: Resolved) -> str:
    """The resolved configuration as text, and the engine's own configuration that follows from it."""
    config, engine = resolved.config, resolved.traits.explain
    text = dump_yaml(written_config(config, resolved.registry))
    return text if engine is None else f"{text}\n# {config.engine}\n{engine(config, resolved.tasks)}"
