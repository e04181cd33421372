"""The last step of `resolving`: the engine completes a run, and what cannot be trained is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rlfactory_core.algo.advantages import GAE
from rlfactory_core.algo.stages import OPD, method_of, refuse_unread
from rlfactory_core.config import RunConfig
from rlfactory_core.engines.base import EngineTraits
from rlfactory_core.errors import ConfigError, UsageError
from rlfactory_core.plugins.registry import Registry
from rlfactory_core.reporting.loggers import check_loggers
from rlfactory_core.reporting.where import Where
from rlfactory_core.runner.making import make_prompts
from rlfactory_core.runner.resolved import Resolved, algorithms, traits_of, with_sections
from rlfactory_core.settings import validate_section
from rlfactory_core.tasks.scorers import refuse_pools
from rlfactory_core.tasks.setup import Tasks
from rlfactory_core.training.sources import check_source
from rlfactory_core.training.stopping import SAMPLED, check_goals
from rlfactory_core.training.teachers import check_teachers


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
    traits = traits_of(engine, config)
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
    completed_config = engine.prepare(with_sections(config, registry))
    for each in completed_config.by_stage():
        algorithms(each, registry, traits)
        make_prompts(each, registry)
        if training:
            _check_goals(each.train.until, tasks)
    return replace(resolved, config=with_sections(completed_config, registry))


def _check_stages(config: RunConfig, tasks: Tasks, traits: EngineTraits) -> None:
    """Refuse a stage that contradicts itself, that the tasks cannot give, or that the engine cannot train."""
    stages = config.by_stage()
    if len(stages) > 1 and not traits.trains_stages:
        raise ConfigError(f"stages: the {config.engine} engine trains one stage, and there are {len(stages)}.")
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


def _check_goals(goals: Mapping[str, float], tasks: Tasks) -> None:
    sliced = any("/" in name.removeprefix(SAMPLED) for name in goals)
    slices = [name for sample in tasks.held_out(required=False) for name in sample.slices] if sliced else []
    check_goals(goals, [*tasks.scorers.weights, tasks.success], slices)


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
    if cause := next(filter(None, (each.makes_rows for each in tasks.by_name.values())), ""):
        raise ConfigError(
            f"train.advantage=gae needs attempts of one sequence: with {cause} they have several. Use another one."
        )
