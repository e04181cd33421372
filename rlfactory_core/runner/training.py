"""Trains: starts a run or resumes one, and writes its folder and its report."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlfactory_core.algo.guard import began
from rlfactory_core.config import RunConfig
from rlfactory_core.errors import RunStopped, UsageError
from rlfactory_core.plugins.registry import Registry
from rlfactory_core.reporting.folder import RunFolder
from rlfactory_core.reporting.progress import Progress, count_text
from rlfactory_core.reporting.report import plugin_sections, write_report
from rlfactory_core.runner.checking import check
from rlfactory_core.runner.fitting import fitted
from rlfactory_core.runner.folders import (
    data_changes,
    plugin_changes,
    plugin_label,
    removed_if_empty,
    save_config,
    save_run,
)
from rlfactory_core.runner.resolved import Resolved, look_up
from rlfactory_core.runner.resolving import run_config, saved_config, written_config
from rlfactory_core.settings import merge, parse_override
from rlfactory_core.training.record import STAGE
from rlfactory_core.utils.interrupt import StopRequest, stop_on_interrupt

ROLLED_BACK = "rolled_back"  # in summary.json
LOWER = 0.5  # times the learning rates of a run that is rolled back
_OF_ADAPTERS = ("rank", "alpha", "targets", "base_bits")  # of train.lora; with others it is another model


def run(prepared: Resolved, progress: Progress) -> RunFolder:
    """Train, then write ``summary.json`` and ``report.html``.

    Raises:
        RlfactoryError: the run cannot go on; a folder that holds nothing yet is removed again.
        RunStopped: stopped with Ctrl-C, or by a part of the run, between two steps.
    """
    prepared = fitted(prepared, progress)
    folder = RunFolder.create(plugin_label(prepared.config.plugin), prepared.config.out)
    with removed_if_empty(folder), folder.locked():
        save_run(prepared.config, prepared.registry, folder)
        return _train(prepared, folder, progress, resume=False)


def resume(name: str, overrides: Sequence[str], progress: Progress) -> RunFolder:
    """Go on with a run from its latest checkpoint, with its own configuration.

    A plugin or a data file that has changed causes a warning, or an error if the engine ``refuses_changed_plugins``.

    Args:
        overrides: changes, such as ``train.steps=200`` for a longer run.

    Raises:
        UsageError: there is no such run, it is finished or in use, or its configuration does not fit any more.
        CheckpointError: it has no checkpoint.
    """
    folder = RunFolder.open(name)
    with folder.locked():
        return _resume(folder, overrides, progress)


def resume_or_start(prepared: Resolved, given: Mapping[str, Any], progress: Progress) -> RunFolder:
    """Start the run in ``out``, go on with it, or leave it as it is if it is finished: for a job that is begun again.

    A run that has no checkpoint yet begins anew. Of its keys ``train.steps`` alone may have changed.

    Args:
        given: the keys that the command gives, which have to be the run's own.

    Raises:
        UsageError: ``out`` is not given, or has a run with other keys.
    """
    out = prepared.config.out
    if out is None:
        raise UsageError("--resume-or-start needs the run's folder, by which it finds it again: --out FOLDER")
    folder, steps = RunFolder(out), prepared.config.by_stage()[-1].train.steps
    if not folder.config.is_file():
        if out.is_dir() and not any(path.is_file() for path in out.rglob("*")):  # killed before it wrote anything
            shutil.rmtree(out)
        return run(prepared, progress)
    _refuse_other_keys(folder, given, written_config(prepared.config, prepared.registry))
    if not (folder.checkpoints / "latest").exists():
        with folder.locked():
            progress.say(f"{out} has no checkpoint yet: the run begins anew")
            shutil.rmtree(out)
        return run(prepared, progress)
    summary = folder.read_summary()
    done, ended = _steps_done(summary), (summary.get("ended") or {}).get("by", "steps")
    if folder.report.exists() and (ended != "steps" or steps <= done):
        progress.say(f"{out} is finished: it has done {count_text(done, 'step')}")
        return folder
    return resume(str(out), [f"train.steps={prepared.config.train.steps}"], progress)


def _refuse_other_keys(folder: RunFolder, given: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    saved = folder.read_config()
    for path in _leaves(given):
        name = ".".join(path)
        mine, theirs = _at(now, path), _at(saved, path)
        if mine != theirs and name not in ("out", "train.steps"):
            raise UsageError(
                f"The run in {folder.path} has {name}={theirs}, and this command has {name}={mine}. Give the command "
                f"another --out, or change the run's key: rlfactory run --resume {folder.path} {name}={mine}"
            )


def _leaves(given: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if not isinstance(given, Mapping):
        yield path
        return
    for key, value in given.items():
        yield from _leaves(value, (*path, str(key)))


def _at(data: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        data = data.get(key) if isinstance(data, Mapping) else None
    return data


def _resume(folder: RunFolder, overrides: Sequence[str], progress: Progress) -> RunFolder:
    saved = folder.read_config()
    data = merge(saved, *(parse_override(override) for override in overrides))
    registry = Registry()
    config = saved_config(data, registry)
    before = run_config(saved, registry)
    _refuse_finished(folder, config, before)
    _refuse_other_model(folder, config, before)
    prepared = check(look_up(config, registry))
    changes = [*plugin_changes(registry, folder), *data_changes(prepared.config, registry, folder)]
    if changes and prepared.traits.refuses_changed_plugins:
        raise UsageError(
            f"{' '.join(changes)} The {config.engine} engine goes on only with the same files: put them back, or begin "
            f"a new run from what is trained so far: --model {folder.checkpoints / 'latest'}"
        )
    for change in changes:
        progress.say(f"warning: {change} The steps from here on run with what is installed now.")
    save_run(prepared.config, registry, folder)
    try:
        return _train(prepared, folder, progress, resume=True)
    except UsageError:  # the engine cannot do it: the run stays as it was
        folder.write_config(saved)
        raise


def _refuse_finished(folder: RunFolder, config: RunConfig, before: RunConfig) -> None:
    """Refuse to resume a finished run unless what ended it has changed."""
    summary = folder.read_summary()
    ended, train, done = summary.get("ended") or {}, config.by_stage()[-1].train, _steps_done(summary)
    if not folder.report.exists():
        return
    goals = [(each.by_stage()[-1].train.until, each.by_stage()[-1].train.patience) for each in (config, before)]
    if ended.get("by", "steps") != "steps" and goals[0] == goals[1]:
        raise UsageError(
            f"{folder.path} is finished: the training {ended['text']}. To train it longer all the same: "
            f"rlfactory run --resume {folder.path} train.until= train.patience=0 --steps {max(2 * done, train.steps)}"
        )
    if train.steps <= done:
        of_stage = " in its last stage" if len(config.stage_keys) > 1 else ""
        raise UsageError(
            f"{folder.path} is finished: it has done {count_text(done, 'step')}{of_stage}. "
            f"To train it longer: rlfactory run --resume {folder.path} --steps {2 * done or 100}"
        )


def _refuse_other_model(folder: RunFolder, config: RunConfig, before: RunConfig) -> None:
    """Refuse another start model or other adapters than the checkpoints are made with."""
    moved = before.model is not None and Path(before.model).is_absolute() and not Path(before.model).exists()
    if config.model != before.model and not moved:
        raise UsageError(
            f"model={config.model}: the run in {folder.path} trains {before.model or 'the tiny model of its task'}. "
            f"Leave the model as it is, or begin a new run: rlfactory run --model {config.model} …"
        )
    for key in _OF_ADAPTERS:  # which are the same in all stages
        mine, theirs = (getattr(each.train.lora, key, None) for each in (config, before))
        if mine != theirs:
            raise UsageError(
                f"train.lora.{key}={mine}: the checkpoints in {folder.path} have {theirs}, and are another model "
                "with that. Leave train.lora as it is, or begin a new run from what is trained so far: "
                f"--model {folder.checkpoints / 'latest'}"
            )


def _steps_done(summary: Mapping[str, Any]) -> int:
    """The steps of a finished run, or if it has stages, of the last one."""
    steps = int(summary.get("steps", 0))
    stages = summary.get("stages")
    return steps + 1 - int(stages[-1]["first"]) if stages else steps


def _train(prepared: Resolved, folder: RunFolder, progress: Progress, *, resume: bool) -> RunFolder:
    progress.say(f"{'resuming' if resume else 'run'} {folder.path}")
    waits = any(each.train.until or each.train.patience for each in prepared.config.by_stage())
    if waits and not prepared.config.eval.every:
        progress.say("train.until and train.patience wait for evaluations between steps; there are none: eval.every=0")
    with stop_on_interrupt(progress.say) as stop:
        try:
            summary = prepared.engine.train(prepared.at(folder, progress, resume=resume, stop=stop))
        except RunStopped as stopped:
            if (back := _rolled_back(prepared, folder, stop, progress)) is not None:
                return _train(back, folder, progress, resume=True)
            write_report(folder, plugin_sections(prepared.registry.registered("report_section")))
            saved = (folder.checkpoints / "latest").exists()
            resumed = f"Go on with: rlfactory run --resume {folder.path}"
            ended = RunStopped(f"{stopped} {resumed if saved else 'Start it anew: there is no checkpoint.'}")
            ended.exit_code = stop.exit_code
            raise ended from None
    folder.write_summary(summary | ({ROLLED_BACK: back} if (back := folder.read_summary().get(ROLLED_BACK)) else {}))
    write_report(folder, plugin_sections(prepared.registry.registered("report_section")))
    return folder


def _rolled_back(run: Resolved, folder: RunFolder, stop: StopRequest, progress: Progress) -> Resolved | None:
    """The run as ``train.guard=rollback`` lets it go on after the guard has stopped it, once; None if it does not.

    What the guard finds began some steps before; a good checkpoint is older than those.
    """
    config, go_back = run.config, run.traits.roll_back
    if config.train.guard != "rollback" or go_back is None or stop.interrupted or not stop.warning:
        return None
    last = folder.read_metrics()[-1]
    found = int(last["step"] or 0)
    before = found - began(last)
    step = go_back(folder, before)
    if step is None:
        progress.say(f"train.guard=rollback: no checkpoint is older than step {before}; see checkpoint.every.")
        return None
    number = int(last.get(STAGE) or 1) - 1
    train = config.by_stage()[number].train
    lr = LOWER * train.lr
    config = config.with_stage(number, {"lr": lr, "muon_lr": LOWER * train.muon_lr})
    config = config.model_copy(update={"train": config.train.model_copy(update={"guard": "stop"})})
    save_config(config, run.registry, folder)
    why = stop.warning
    folder.write_summary({**folder.read_summary(), ROLLED_BACK: {"from": found, "to": step, "lr": lr, "why": why}})
    progress.say(f"{why} The run goes back to step {step}, and on with train.lr={lr:g}.")
    return check(look_up(config, run.registry))
