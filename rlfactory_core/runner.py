"""From what the user asked for to a finished run: configuration, plugin, engine, folder, report."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rlfactory_core.config import RunConfig
from rlfactory_core.config_load import load_yaml, merge, parse_override, resolve_config, validate_section
from rlfactory_core.errors import RunStopped, UsageError
from rlfactory_core.plugins.registry import Registry
from rlfactory_core.protocols import Engine, EngineRun
from rlfactory_core.reporting.folder import RunFolder
from rlfactory_core.reporting.loggers import check_loggers
from rlfactory_core.reporting.progress import Progress
from rlfactory_core.reporting.report import write_report
from rlfactory_core.stopping import stop_on_interrupt


@dataclass(frozen=True, slots=True)
class Prepared:
    """A run that is ready to start."""

    config: RunConfig
    registry: Registry
    engine: Engine


def prepare(file: Path | None, overrides: Sequence[str | Mapping[str, Any]]) -> Prepared:
    """Resolve the configuration, load the plugin and let the engine check it.

    Args:
        file: the ``--config`` file.
        overrides: ``key=value`` texts and nested plain data; later ones win.

    Raises:
        UsageError: whatever does not fit, before anything costly happens.
    """
    registry = Registry()
    return check(resolve(registry, file, overrides), registry)


def resolve(
    registry: Registry, file: Path | None, overrides: Sequence[str | Mapping[str, Any]], base: Mapping[str, Any] = {}
) -> RunConfig:
    """The whole configuration, on top of the task's own defaults; no engine has seen it yet.

    Args:
        base: plain data below the file, such as the configuration of an earlier run.
    """
    over = (parse_override(item) if isinstance(item, str) else item for item in overrides)
    given = merge(base, load_yaml(file) if file else {}, *over)
    plugin = given.get("plugin")
    if not isinstance(plugin, str):
        raise UsageError("No plugin is named. Say which task, for example: --plugin search")
    task = registry.task(plugin).make(given.get("task") or {}, 0)
    tiny = task.tiny_defaults if given.get("model") is None else {}
    return resolve_config(merge(task.defaults, tiny), None, [given])


def check(config: RunConfig, registry: Registry) -> Prepared:
    """Let the engine complete and check a resolved configuration."""
    check_loggers(config.loggers)
    engine: Engine = registry.find(config.engine, "engine").make()
    return Prepared(engine.prepare(config), registry, engine)


def run(prepared: Prepared, progress: Progress) -> RunFolder:
    """Train, then write ``summary.json`` and ``report.html``.

    Raises:
        RlfactoryError: the run cannot go on; a folder that holds nothing yet is removed again.
        RunStopped: stopped with Ctrl-C after a whole step.
    """
    folder = RunFolder.create(plugin_label(prepared.config.plugin), prepared.config.out)
    with removed_if_empty(folder):
        folder.write_config(prepared.config.model_dump(mode="json"))
        lock_plugins(prepared.registry, folder)
        return _train(prepared, folder, progress, resume=False)


def resume(name: str, overrides: Sequence[str], progress: Progress) -> RunFolder:
    """Go on with a run from its latest checkpoint, with its own configuration.

    Args:
        overrides: changes, such as ``train.steps=200`` for a longer run.

    Raises:
        UsageError: there is no such run, or its configuration does not fit any more.
        CheckpointError: it has no checkpoint.
    """
    folder = RunFolder.open(name)
    data = merge(folder.read_config(), *(parse_override(override) for override in overrides))
    registry = Registry()
    config = validate_section(RunConfig, data)
    registry.task(config.plugin)
    prepared = check(config, registry)
    folder.write_config(prepared.config.model_dump(mode="json"))
    return _train(prepared, folder, progress, resume=True)


def _train(prepared: Prepared, folder: RunFolder, progress: Progress, *, resume: bool) -> RunFolder:
    progress.say(f"{'resuming' if resume else 'run'} {folder.path}")
    with stop_on_interrupt(progress.say) as stop:
        try:
            summary = prepared.engine.train(
                EngineRun(prepared.config, prepared.registry, folder, progress, resume, stop)
            )
        except RunStopped as stopped:
            raise RunStopped(f"{stopped} Go on with: rlfactory run --resume {folder.path}") from None
    folder.write_summary(summary)
    write_report(folder)
    return folder


@contextmanager
def removed_if_empty(folder: RunFolder) -> Iterator[None]:
    """A run that fails before its first result leaves no folder behind."""
    try:
        yield
    except BaseException:
        if not folder.summary.exists() and not folder.metrics.exists():
            shutil.rmtree(folder.path, ignore_errors=True)
        raise


def lock_plugins(registry: Registry, folder: RunFolder) -> None:
    """Save which plugins are in use, file by file."""
    prints = registry.fingerprints()
    folder.write_plugins_lock({print_.plugin: asdict(print_) for print_ in prints})


def plugin_label(plugin: str) -> str:
    """``./my_task.py`` and ``dist:name`` as part of a folder's name."""
    return Path(plugin).stem.rsplit(":", 1)[-1]
