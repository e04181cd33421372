"""A run whose names are looked up: what its configuration stands for, and how an engine gets it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rlfactory_core.algo.advantages import GAE, Advantage
from rlfactory_core.algo.losses import PolicyLoss
from rlfactory_core.algo.losses.nll import nll
from rlfactory_core.algo.stages import STAGE_METHODS
from rlfactory_core.config import RunConfig
from rlfactory_core.engines.base import Engine, EngineRun, EngineTraits, Stage, WholeEngine
from rlfactory_core.engines.gguf.header import is_gguf
from rlfactory_core.plugins.attributes import optional_attributes
from rlfactory_core.plugins.fingerprint import Fingerprint
from rlfactory_core.plugins.registry import Registry
from rlfactory_core.reporting.folder import RunFolder
from rlfactory_core.reporting.progress import Progress
from rlfactory_core.runner.making import make_chat, make_prompts, make_tasks
from rlfactory_core.tasks.setup import Tasks
from rlfactory_core.tasks.task import Task
from rlfactory_core.training.run import Training
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
        return traits_of(self.engine, self.config)

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
        registry, config = self.registry, with_sections(self.config, self.registry)
        if is_gguf(config.model) and (Path(str(config.model)).is_file() or not resume):  # a checkpoint does without it
            from rlfactory_core.engines import local_model

            config = config.model_copy(update={"model": local_model(str(config.model), progress)})
        traits = traits_of(engine or self.engine, config)
        stages = [
            Stage(each, make_prompts(each, registry), *algorithms(each, registry, traits)) for each in config.by_stage()
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


def traits_of(engine: WholeEngine, config: RunConfig) -> EngineTraits:
    return optional_attributes(engine, EngineTraits, f"The engine '{config.engine}'")


def algorithms(
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


def look_up(config: RunConfig, registry: Registry, made: Mapping[str, Task] = {}) -> Resolved:
    """Find what the names of a configuration stand for; ``made`` are the tasks that are made already."""
    tasks = make_tasks(config, registry, made)
    make_prompts(config, registry)
    make_chat(config.chat, registry)
    return Resolved(config, registry, tasks)


def with_sections(config: RunConfig, registry: Registry) -> RunConfig:
    """The configuration with all keys of the plugins' sections: those that it names, and those of plugins in use."""
    sections = {name: section.model_dump(mode="json") for name, section in registry.sections(config).items()}
    named = {name.rpartition(":")[2]: name for name in config.plugins}  # a distribution stays in front of its name
    return config.model_copy(update={"plugins": {named.get(name, name): data for name, data in sections.items()}})
