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
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from rlfactory_core.algo.advantages import GAE, Advantage
from rlfactory_core.algo.losses import PolicyLoss
from rlfactory_core.algo.losses.nll import nll
from rlfactory_core.algo.stages import GRPO, OPD, SFT, STAGE_METHODS, method_of, refuse_unread
from rlfactory_core.config import RunConfig
from rlfactory_core.engines.base import Engine, EngineFactoryTraits, EngineRun, EngineTraits, Stage, WholeEngine
from rlfactory_core.engines.gguf.header import is_gguf
from rlfactory_core.errors import ConfigError, PluginError, UsageError
from rlfactory_core.plugins.attributes import optional_attributes
from rlfactory_core.plugins.fingerprint import Fingerprint
from rlfactory_core.plugins.loading import is_file
from rlfactory_core.plugins.registry import INSTALLED_WITH, Registry
from rlfactory_core.reporting.folder import RUNS, RunFolder
from rlfactory_core.reporting.loggers import check_loggers
from rlfactory_core.reporting.progress import Progress
from rlfactory_core.reporting.where import Where
from rlfactory_core.runner.completing import completed, with_method
from rlfactory_core.runner.making import make_chat, make_prompts, make_task, make_tasks, named_source
from rlfactory_core.runner.models import with_model, with_teacher
from rlfactory_core.runner.several import combined, each_task
from rlfactory_core.settings import dump_yaml, load_yaml, merge, parse_override, validate_section
from rlfactory_core.tasks.generic import NAME as GENERIC
from rlfactory_core.tasks.scorers import refuse_pools
from rlfactory_core.tasks.setup import Tasks
from rlfactory_core.tasks.solving import tiny_defaults
from rlfactory_core.tasks.task import Task
from rlfactory_core.tools.settings import ToolsConfig
from rlfactory_core.training.run import Training
from rlfactory_core.training.sources import check_source
from rlfactory_core.training.stopping import SAMPLED, check_goals
from rlfactory_core.training.teachers import check_teachers
from rlfactory_core.utils.interrupt import StopRequest


@dataclass(frozen=True, slots=True)
class Resolved:
    """A run whose names are looked up. It is ready to start once `check` has let its engine complete it.

    Args:
        command: with which the user starts it, for advice; empty: it is not known.
    """

    config: RunConfig
    registry: Registry
    tasks: Tasks
    command: str = ""

    @property
    def engine(self) -> WholeEngine:
        """A new engine."""
        made: Engine | WholeEngine = self.registry.find(self.config.engine, "engine").make()
        return Training(made) if isinstance(made, Engine) else made

    @property
    def traits(self) -> EngineTraits:
        return _traits(self.engine, self.config)

    def at(
        self,
        folder: RunFolder,
        progress: Progress,
        *,
        engine: WholeEngine | None = None,
        resume: bool = False,
        stop: StopRequest | None = None,
    ) -> EngineRun:
        """The run in its folder, as the engine gets it.

        Args:
            engine: another engine than the one that the configuration names.
        """
        registry, config = self.registry, _with_sections(self.config, self.registry)
        if is_gguf(config.model) and (Path(str(config.model)).is_file() or not resume):  # a checkpoint does without it
            from rlfactory_core.engines import local_model

            config = config.model_copy(update={"model": local_model(str(config.model), progress)})
        traits = _traits(engine or self.engine, config)
        stages = [
            Stage(each, make_prompts(each, registry), *_algorithms(each, registry, traits))
            for each in config.by_stage()
        ]
        fingerprints = registry.fingerprints()
        return EngineRun(
            config,
            self.tasks,
            folder,
            progress,
            make_chat(config.chat, registry),
            stages,
            registry.sections(config),
            fingerprints,
            partial(remade, config, fingerprints, folder.path, resume=resume),
            resume,
            stop or StopRequest(),
            self.command,
        )


def _traits(engine: WholeEngine, config: RunConfig) -> EngineTraits:
    return optional_attributes(engine, EngineTraits, f"The engine '{config.engine}'")


def _algorithms(
    config: RunConfig, registry: Registry, traits: EngineTraits
) -> tuple[Advantage | None, PolicyLoss | None]:
    """The advantage and the loss; an engine that does not use registered names finds its own."""
    train = config.train
    if not traits.uses_algorithms:
        return None, None
    if STAGE_METHODS[train.method].imitates:
        return None, nll
    advantage = None if train.advantage == GAE else registry.find(train.advantage, "advantage").factory
    return advantage, registry.find(train.loss, "loss_function").factory


def remade(config: RunConfig, fingerprints: Sequence[Fingerprint], folder: Path, *, resume: bool) -> EngineRun:
    """A run in another process than the one that has prepared it; raises as `Registry.load_for_worker`."""
    registry = Registry()
    registry.load_for_worker(fingerprints)
    return engine_run(config, registry, folder, resume=resume)


def engine_run(config: RunConfig, registry: Registry, folder: Path, *, resume: bool = False) -> EngineRun:
    """The run of a configuration that an engine has completed."""
    resolved = Resolved(config, registry, make_tasks(config, registry))
    return resolved.at(RunFolder(folder), Progress(), resume=resume)


def prepare(
    file: Path | None,
    overrides: Sequence[str | Mapping[str, Any]],
    judge: str | None = None,
    recipe: str | None = None,
    registry: Registry | None = None,
    *,
    warm_start: Mapping[str, Any] | None = None,
) -> Resolved:
    """Take all seven steps.

    Args:
        file: the ``--config`` file.
        overrides: ``key=value`` texts and nested plain data; later ones win.
        judge: the address of a judge, see `with_judge`.
        recipe: a plugin's recipe; the file overrides it.
        warm_start: keys of a supervised stage before all others.

    Raises:
        UsageError: the configuration is invalid; raised before anything costly happens.
    """
    registry = registry or Registry()
    given = read(file, overrides, load_recipe(recipe, registry) if recipe else {})
    if warm_start is not None:
        rest = given.get("stages") or [{"method": (given.get("train") or {}).get("method", GRPO)}]
        given["stages"] = [_with_absolute_source({"method": SFT, **warm_start}), *rest]
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
    if isinstance(given.get("train"), Mapping):
        given["train"] = with_teacher(_with_absolute_source(given["train"]))
    if isinstance(stages := given.get("stages"), list):
        given["stages"] = [
            with_teacher(_with_absolute_source(each)) if isinstance(each, Mapping) else each for each in stages
        ]
    return with_model(given)


def _with_absolute_source(train: Mapping[str, Any]) -> dict[str, Any]:
    """A stage's keys, of which ``source`` may be a file or a folder."""
    source = train.get("source")
    places = (Path(source).expanduser(), RUNS / source) if isinstance(source, str) else ()
    there = next((path for path in places if path.exists()), None)
    return dict(train) if there is None else {**train, "source": os.path.abspath(there)}


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


def look_up(config: RunConfig, registry: Registry, made: Mapping[str, Task] = {}) -> Resolved:
    """Find what the names of a configuration stand for; ``made`` are the tasks that are made already."""
    tasks = make_tasks(config, registry, made)
    make_prompts(config, registry)
    make_chat(config.chat, registry)
    return Resolved(config, registry, tasks)


def check(resolved: Resolved, *, training: bool = True) -> Resolved:
    """Let the engine complete and check a run.

    Args:
        training: check the keys of the training, too.

    Raises:
        UsageError: the engine cannot do what is configured, or no evaluation measures a goal of the training.
    """
    config, registry, tasks = resolved.config, resolved.registry, resolved.tasks
    if training:
        _refuse_other_engines(config, registry)
    check_loggers(config.loggers)
    engine = resolved.engine
    traits = _traits(engine, config)
    if not traits.serves_pools and tasks.pools:
        engines = [item for item in registry.installed("engine") if item.name != config.engine]
        refuse_pools(tasks.pools, [item.name for item in engines if getattr(item.make(), "serves_pools", False)])
    if config.train.guard == "rollback" and traits.roll_back is None:
        raise ConfigError(
            f"train.guard=rollback: the {config.engine} engine does not go back to an earlier checkpoint. Use stop."
        )
    if training:
        _check_stages(config, tasks, traits)
    if config.model is None and any(each.data.train or each.data.eval for each in tasks.by_name.values()):
        raise UsageError(
            "Data of your own needs a model of your own: the built-in tiny model knows only the words of the built-in "
            "data. Give one with --model (a folder or a hub id)."
        )
    completed_config = engine.prepare(_with_sections(config, registry))
    for each in completed_config.by_stage():
        _algorithms(each, registry, traits)
        make_prompts(each, registry)
        if training:
            _check_goals(each.train.until, tasks)
    return replace(resolved, config=_with_sections(completed_config, registry))


def _check_stages(config: RunConfig, tasks: Tasks, traits: EngineTraits) -> None:
    """Refuse a stage that contradicts itself, that the tasks cannot give, or that the engine cannot train."""
    stages = config.by_stage()
    if len(stages) > 1 and not traits.trains_stages:
        raise ConfigError(f"stages: the {config.engine} engine trains one stage, and there are {len(stages)}.")
    if config.stages:
        refuse_unread(config.train, list(dict.fromkeys(each.train.method for each in stages)))
    for stage in stages:
        train = stage.train
        if train.method not in traits.methods:
            raise ConfigError(
                f"train.method={train.method}: the {config.engine} engine has {', '.join(traits.methods)}. "
                "Train the stage with the local engine, and go on with its checkpoint: --model RUN/checkpoints/latest"
            )
        method = method_of(train)
        Where(train.where)
        if not method.plays:
            check_source(train, tasks)
        if train.method == OPD:
            check_teachers(stage, tasks.by_name)
        if traits.uses_algorithms and train.advantage == GAE:
            _refuse_several_sequences(tasks)
    if any(each.train.kl > 0 for each in stages[1:]):
        raise ConfigError(
            "stages: train.kl > 0 compares with the start model, which only the first stage still has. Set train.kl=0, "
            "or train the stages as runs of their own: --model RUN/checkpoints/latest"
        )


def _check_goals(goals: Mapping[str, float], tasks: Tasks) -> None:
    sliced = any("/" in name.removeprefix(SAMPLED) for name in goals)
    slices = [name for sample in tasks.held_out(required=False) for name in sample.slices] if sliced else []
    check_goals(goals, [*tasks.scorers.weights, tasks.success], slices)


def _with_sections(config: RunConfig, registry: Registry) -> RunConfig:
    """The configuration with all keys of the plugins' sections: those that it names, and those of plugins in use."""
    sections = {name: section.model_dump(mode="json") for name, section in registry.sections(config).items()}
    named = {name.rpartition(":")[2]: name for name in config.plugins}  # a distribution stays in front of its name
    return config.model_copy(update={"plugins": {named.get(name, name): data for name, data in sections.items()}})


def _refuse_other_engines(config: RunConfig, registry: Registry) -> None:
    """Refuse a configuration that sets keys of an engine which does not run."""
    for engine, section in registry.engine_sections().items():
        data = {} if engine == config.engine_name else config.plugins.get(engine, {})
        if given := validate_section(section, data, engine).model_dump(exclude_defaults=True):
            raise UsageError(
                f"{', '.join(f'{engine}.{name}' for name in given)}: the {config.engine_name} engine has none of "
                f"these. Add --engine {engine}, or drop them."
            )


def _refuse_several_sequences(tasks: Tasks) -> None:
    if any(each.has_agent or each.rollout.context != "keep" for each in tasks.by_name.values()):
        raise ConfigError(
            "train.advantage=gae needs attempts of one sequence: those of an agent, or with rollout.context, have "
            "several. Use another advantage."
        )


def explain(resolved: Resolved) -> str:
    """The resolved configuration as text, and the engine's own configuration that follows from it."""
    config, engine = resolved.config, resolved.traits.explain
    text = dump_yaml(written_config(config, resolved.registry))
    return text if engine is None else f"{text}\n# {config.engine}\n{engine(config, resolved.tasks)}"
