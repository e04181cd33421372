"""From what the user asked for to a finished run: configuration, plugin, engine, folder, report."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rlfactory_core.config import RewardConfig, RunConfig
from rlfactory_core.config_load import dump_yaml, load_yaml, merge, parse_override, resolve_config, validate_section
from rlfactory_core.demonstrated import tiny_defaults
from rlfactory_core.errors import RunStopped, UsageError
from rlfactory_core.generic_task import NAME as GENERIC
from rlfactory_core.judge_option import with_judge
from rlfactory_core.plugins.fingerprint import Fingerprint
from rlfactory_core.plugins.registry import Registry
from rlfactory_core.protocols import Engine, EngineRun
from rlfactory_core.reporting.folder import RunFolder
from rlfactory_core.reporting.loggers import check_loggers
from rlfactory_core.reporting.plugin_sections import plugin_sections
from rlfactory_core.reporting.progress import Progress, count_text
from rlfactory_core.reporting.report import write_report
from rlfactory_core.stopping import stop_on_interrupt
from rlfactory_core.task import make_task
from rlfactory_core.task_runtime import TaskRuntime

__all__ = ["Prepared", "prepare", "resolve", "resume", "run"]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A run that is ready to start."""

    config: RunConfig
    registry: Registry
    engine: Engine


def prepare(
    file: Path | None,
    overrides: Sequence[str | Mapping[str, Any]],
    judge: str | None = None,
    recipe: str | None = None,
) -> Prepared:
    """Resolve the configuration, load the plugin and let the engine check it.

    Args:
        file: the ``--config`` file.
        overrides: ``key=value`` texts and nested plain data; later ones win.
        judge: where a judge is that is added to the rewards, see `with_judge`.
        recipe: a plugin's recipe, which stands below the file.

    Raises:
        UsageError: whatever does not fit, before anything costly happens.
    """
    registry = Registry()
    base = load_recipe(recipe, registry) if recipe else {}
    return check(resolve(registry, file, overrides, base, judge), registry)


def load_recipe(name: str, registry: Registry) -> dict[str, Any]:
    """The configuration that a plugin brings under this name, as plain data.

    Raises:
        PluginError: no plugin brings it; the message has the nearest name.
        ConfigError: its file cannot be read.
    """
    return load_yaml(Path(registry.find(name, "recipe").make()))


def resolve(
    registry: Registry,
    file: Path | None,
    overrides: Sequence[str | Mapping[str, Any]],
    base: Mapping[str, Any] = {},
    judge: str | None = None,
) -> RunConfig:
    """The whole configuration, on top of the task's own defaults; no engine has seen it yet.

    Args:
        base: plain data below the file, such as a recipe or the configuration of an earlier run.
        judge: where a judge is that is added to the rewards, see `with_judge`.
    """
    over = (parse_override(item) if isinstance(item, str) else item for item in overrides)
    given = merge(base, load_yaml(file) if file else {}, *over)
    given["plugin"] = plugin = given.get("plugin") or _generic(given)
    if not isinstance(plugin, str):
        raise UsageError(
            "No plugin is named. Say which task, for example --plugin search, or bring data, and tools as MCP servers: "
            "--data train.jsonl --mcp mcp.json"
        )
    task = make_task(registry.task(plugin), given.get("task") or {}, 0)
    # As the task reads its own options: relative paths, for one, would not hold in another folder.
    given["task"] = task.config.model_dump(mode="json", exclude_unset=True)
    defaults = tiny_defaults(task) if given.get("model") is None else task.defaults
    adapt = getattr(registry.find(str(given.get("engine", "local")), "engine").factory, "adapt", None)
    config = resolve_config(adapt(defaults) if adapt else defaults, None, [given])
    config = config if judge is None else with_judge(config, task.rewards, judge, registry)
    settled = tuple(_settled(reward, registry) for reward in config.rewards or ()) or config.rewards
    return config.model_copy(update={"rewards": settled})


def _settled(reward: RewardConfig, registry: Registry) -> RewardConfig:
    """With its options as the reward reads them, where it says so; see `lazy.LazyReward`."""
    settle = getattr(registry.find(reward.name, "reward_scorer", "verifier").factory, "settle", None)
    if settle is None or not reward.options:
        return reward
    known = reward.model_dump(exclude=set(reward.options), exclude_unset=True)
    return RewardConfig.model_validate({**known, **settle(reward.options)})


def _generic(given: Mapping[str, Any]) -> str | None:
    """The generic task, where the user's own data or tools stand in the place of a plugin."""
    sections = {name: given[name] for name in ("data", "tools") if isinstance(given.get(name), Mapping)}
    own = [("data", "train"), ("data", "eval"), ("tools", "mcp")]
    return GENERIC if any(sections.get(section, {}).get(key) for section, key in own) else None


def explain(prepared: Prepared) -> str:
    """What a run would be, as text: the resolved configuration, and what its engine makes of it."""
    text = dump_yaml(prepared.config.model_dump(mode="json"))
    engine = getattr(prepared.engine, "explain", None)
    return (
        text if engine is None else f"{text}\n# {prepared.config.engine}\n{engine(prepared.config, prepared.registry)}"
    )


def check(config: RunConfig, registry: Registry) -> Prepared:
    """Find everything that a resolved configuration names, and let the engine complete and check it."""
    check_loggers(config.loggers)
    find_parts(config, registry)
    engine: Engine = registry.find(config.engine, "engine").make()
    config = with_sections(config, registry)
    if not getattr(engine, "serves_pools", False):
        TaskRuntime(config, registry).refuse_pools()
    return Prepared(engine.prepare(config), registry, engine)


def find_parts(config: RunConfig, registry: Registry) -> None:
    """Load the plugins that give the parts named by a configuration or its task, so that they are locked, too.

    Raises:
        PluginError: no plugin gives one of them.
        UsageError: the MCP servers' configuration cannot be read, or needs something that is not there.
    """
    task = make_task(registry.task(config.plugin), config.task, config.seed)
    for name in task.rewards if config.rewards is None else [reward.name for reward in config.rewards]:
        registry.find(name, "reward_scorer", "verifier")
    registry.find(config.tools.manager, "tool_manager")
    if config.tools.mcp is not None:
        _check_servers(config.tools.mcp)
    if config.env is not None:
        registry.find(config.env, "env")
    if config.chat.format != "auto":
        registry.find(config.chat.format, "chat_format")


def with_sections(config: RunConfig, registry: Registry) -> RunConfig:
    """With the plugins' own sections whole: those that it names, and those of the plugins in use.

    Raises:
        UsageError: as `Registry.sections`.
    """
    sections = {name: section.model_dump(mode="json") for name, section in registry.sections(config).items()}
    named = {name.rpartition(":")[2]: name for name in config.plugins}  # a distribution stays in front of its name
    return config.model_copy(update={"plugins": {named.get(name, name): data for name, data in sections.items()}})


def _check_servers(servers: Path | Mapping[str, Any]) -> None:
    """What can be known of MCP servers without starting one."""
    from rlfactory_core.tools.mcp.compat import require_sdk
    from rlfactory_core.tools.mcp.config import read_servers
    from rlfactory_core.tools.mcp.variables import expand

    require_sdk()
    for server in read_servers(servers):
        expand(server, os.environ)


def save_config(config: RunConfig, folder: RunFolder) -> None:
    """As ``--config`` takes it for another run like this one: all but where the run stands."""
    folder.write_config({**config.model_dump(mode="json"), "out": None})


def run(prepared: Prepared, progress: Progress) -> RunFolder:
    """Train, then write ``summary.json`` and ``report.html``.

    Raises:
        RlfactoryError: the run cannot go on; a folder that holds nothing yet is removed again.
        RunStopped: stopped with Ctrl-C, or by a part of the run, between two steps.
    """
    folder = RunFolder.create(plugin_label(prepared.config.plugin), prepared.config.out)
    with removed_if_empty(folder):
        save_config(prepared.config, folder)
        lock_plugins(prepared.registry, folder)
        return _train(prepared, folder, progress, resume=False)


def resume(name: str, overrides: Sequence[str], progress: Progress) -> RunFolder:
    """Go on with a run from its latest checkpoint, with its own configuration; plugins that changed are told, or
    refused where the engine says ``refuses_changed_plugins``.

    Args:
        overrides: changes, such as ``train.steps=200`` for a longer run.

    Raises:
        UsageError: there is no such run, it is finished, or its configuration does not fit any more.
        CheckpointError: it has no checkpoint.
    """
    folder = RunFolder.open(name)
    saved = folder.read_config()
    data = merge(saved, *(parse_override(override) for override in overrides))
    registry = Registry()
    config = validate_section(RunConfig, data)
    _refuse_finished(folder, config.train.steps)
    prepared = check(config, registry)
    changes = list(plugin_changes(registry, folder))
    if changes and getattr(prepared.engine, "refuses_changed_plugins", False):
        raise UsageError(
            f"{' '.join(changes)} The {config.engine} engine goes on only with the same files: put them back, or begin "
            f"a new run from what is trained so far: --model {folder.checkpoints / 'latest'}"
        )
    for change in changes:
        progress.say(f"warning: {change} The steps from here on run with what is installed now.")
    save_config(prepared.config, folder)
    lock_plugins(registry, folder)
    try:
        return _train(prepared, folder, progress, resume=True)
    except UsageError:  # the engine cannot do it: the run stays as it was
        folder.write_config(saved)
        raise


def _refuse_finished(folder: RunFolder, steps: int) -> None:
    done = folder.read_summary().get("steps", 0)
    if folder.report.exists() and steps <= done:
        raise UsageError(
            f"{folder.path} is finished: it has done {count_text(done, 'step')}. "
            f"To train it longer: rlfactory run --resume {folder.path} --steps {2 * done or 100}"
        )


def _train(prepared: Prepared, folder: RunFolder, progress: Progress, *, resume: bool) -> RunFolder:
    progress.say(f"{'resuming' if resume else 'run'} {folder.path}")
    with stop_on_interrupt(progress.say) as stop:
        try:
            summary = prepared.engine.train(
                EngineRun(prepared.config, prepared.registry, folder, progress, resume, stop)
            )
        except RunStopped as stopped:
            write_report(folder, plugin_sections(prepared.registry))
            saved = (folder.checkpoints / "latest").exists()
            further = (
                f"Go on with: rlfactory run --resume {folder.path}"
                if saved
                else "Start it anew: there is no checkpoint."
            )
            raise RunStopped(f"{stopped} {further}") from None
    folder.write_summary(summary)
    write_report(folder, plugin_sections(prepared.registry))
    return folder


@contextmanager
def removed_if_empty(folder: RunFolder) -> Iterator[None]:
    """A run that fails before its first result leaves no folder behind."""
    try:
        yield
    except BaseException:
        if not any(path.exists() for path in (folder.summary, folder.metrics, folder.logs)):
            shutil.rmtree(folder.path, ignore_errors=True)
        raise


def lock_plugins(registry: Registry, folder: RunFolder) -> None:
    """Save which plugins are in use, file by file."""
    prints = registry.fingerprints()
    folder.write_plugins_lock({print_.plugin: asdict(print_) for print_ in prints})


def plugin_changes(registry: Registry, folder: RunFolder) -> Iterator[str]:
    """A sentence for each plugin in use that is not the one that ``plugins.lock.json`` has."""
    locked = folder.read_plugins_lock()
    for now in registry.fingerprints():
        before = Fingerprint(**locked[now.plugin]) if now.plugin in locked else None
        files = before.changed_files(now) if before else ()
        if before and (files or before.version != now.version):
            versions = f", {before.version} → {now.version}" if before.version != now.version else ""
            named = ", ".join(files[:3]) + (f" and {len(files) - 3} more" if len(files) > 3 else "")
            yield f"{now.distribution} has changed since the run began{versions}: {named or 'no file'}."


def plugin_label(plugin: str) -> str:
    """``./my_task.py`` and ``dist:name`` as part of a folder's name."""
    return Path(plugin).stem.rsplit(":", 1)[-1]
