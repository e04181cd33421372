"""From what the user asked for to a finished evaluation: a run, a model or an endpoint, measured on a plugin's task."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from rlfactory_core.clients.openai import OpenAIClient
from rlfactory_core.config import RunConfig
from rlfactory_core.config_load import merge
from rlfactory_core.engines.endpoint import EndpointEvaluator
from rlfactory_core.errors import BackendError, CheckpointError
from rlfactory_core.plugins.registry import Registry
from rlfactory_core.protocols import EngineRun
from rlfactory_core.reporting.folder import RUNS, RunFolder
from rlfactory_core.reporting.progress import Progress
from rlfactory_core.runner import (
    check,
    find_parts,
    load_recipe,
    lock_plugins,
    plugin_label,
    removed_if_empty,
    resolve,
    save_config,
    with_sections,
)

ATTEMPTS = 4  # per sample at temperature 1, unless told otherwise: enough for pass@2 and pass@4


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What an evaluation found."""

    folder: RunFolder
    plugin: str
    model: str
    seconds: float
    results: Mapping[str, float]  # as in summary.json's eval.after


@dataclass(frozen=True, slots=True)
class _Evaluator:
    """Who plays: an engine's ``evaluate`` or an endpoint's."""

    name: str
    evaluate: Callable[[EngineRun], dict[str, Any]]
    model: Callable[[], str]  # known at the latest when it has played


def evaluate_run(
    plugin: str | None,
    model: str | None,
    api: str | None,
    file: Path | None,
    overrides: Sequence[str | Mapping[str, Any]],
    progress: Progress,
    judge: str | None = None,
    recipe: str | None = None,
) -> Evaluation:
    """Evaluate, and leave a folder like a run's.

    Args:
        plugin: None: the run's.
        model: a run (its folder, or its name under ``runs/``: its latest checkpoint is taken and, for the same plugin,
            its configuration), a model folder or hub id, or with ``api`` a served model's id; None: the task's own tiny
            model, or the only model that is served.
        api: the address of an OpenAI-compatible server.
        file: the ``--config`` file.
        overrides: ``key=value`` texts and nested plain data; later ones win.
        judge: where a judge is that is added to the rewards, see `with_judge`.
        recipe: a plugin's recipe, which stands below the file and above the run's configuration.

    Raises:
        UsageError: whatever does not fit, before anything costly happens.
        CheckpointError: the run has no checkpoint.
        BackendError: the endpoint, or what the tools need, does not answer at the start; or, all saved, no trajectory
            at all could be played to its end.
    """
    started = time.perf_counter()
    run = _run_of(model)
    given: list[str | Mapping[str, Any]] = [{"eval": {"sampled": True, "attempts": ATTEMPTS}}]
    if plugin is not None:
        given.append({"plugin": plugin})
    named = _model(run, model, api)
    if named is not None:
        given.append({"model": named})
    registry = Registry()
    ready = load_recipe(recipe, registry) if recipe else {}
    base = merge(_base(run, plugin or ready.get("plugin")), ready)
    config = resolve(registry, file, [*given, *overrides], base, judge)
    if api is not None:
        find_parts(config, registry)
        config = with_sections(config, registry)
        evaluator = _endpoint(config, api, None if run else model)
    else:
        prepared = check(config, registry)
        config = prepared.config
        shown = config.model or "the plugin's own tiny model"
        evaluator = _Evaluator(config.engine, prepared.engine.evaluate, lambda: shown)
    folder = RunFolder.create(f"{plugin_label(config.plugin)}-eval", config.out)
    with removed_if_empty(folder):
        save_config(config, folder)
        lock_plugins(registry, folder)
        results = evaluator.evaluate(EngineRun(config, registry, folder, progress))
        seconds = round(time.perf_counter() - started, 3)
        done = Evaluation(folder, config.plugin, evaluator.model(), seconds, results)
        folder.write_summary(_summary(done, evaluator.name, config))
    _check_measured(done)
    return done


def _model(run: RunFolder | None, model: str | None, api: str | None) -> str | None:
    """What the configuration names as the model; None: it stays as it is."""
    if api is not None:
        return api if run or model is None else model
    return model if run is None else _checkpoint(run)


def _run_of(model: str | None) -> RunFolder | None:
    """The run that ``--model`` means; None where it means something else.

    Raises:
        UsageError: it means no run, and looks very much like one.
    """
    if model is None:
        return None
    for path in (Path(model), RUNS / model):
        if (path / "config.yaml").is_file():
            return RunFolder(path)
    runs = [path.name for path in RUNS.glob("*/") if path.name]
    # A slip in a run's name, and no hub id: also a path into the folder of the runs.
    meant = Path(model).parent == RUNS or get_close_matches(model, runs, cutoff=0.85)
    if not Path(model).exists() and meant:
        return RunFolder.open(model)
    return None


def _checkpoint(run: RunFolder) -> str:
    latest = run.checkpoints / "latest"
    if not (latest / "config.json").is_file():
        raise CheckpointError(
            f"{run.path} has no checkpoint: the run ended before its first one, or it is an evaluation. "
            "Name another run, or a model folder."
        )
    return str(latest)


def _base(run: RunFolder | None, plugin: str | None) -> dict[str, Any]:
    """A run's configuration without what belonged to its training and its machine; nothing for another plugin."""
    config = run.read_config() if run else {}
    if not config or (plugin is not None and plugin_label(plugin) != plugin_label(config["plugin"])):
        return {}
    # A tiny model ran in float32 wherever it ran; a model that is named would get the device's own.
    dtype = "float32" if config.get("model") is None and config.get("dtype") == "auto" else config.get("dtype", "auto")
    train = {**(config.get("train") or {}), "workers": 0, "lora": None}  # adapters are merged into the checkpoint
    return {**config, "out": None, "loggers": [], "device": "auto", "dtype": dtype, "train": train}


def _endpoint(config: RunConfig, api: str, model: str | None) -> _Evaluator:
    client = OpenAIClient(api, model, concurrency=config.rollout.slots)
    return _Evaluator("endpoint", EndpointEvaluator(client).evaluate, lambda: f"{client.model} at {client.base_url}")


def _summary(done: Evaluation, engine: str, config: RunConfig) -> dict[str, Any]:
    faults = Counter(
        fault.kind.value for stored in done.folder.read_trajectories("eval-after") for fault in stored.trajectory.faults
    )
    return {
        "plugin": done.plugin,
        "engine": engine,
        "model": done.model,
        "seed": config.seed,
        "steps": 0,
        "seconds": done.seconds,
        "faults": dict(faults),
        "eval": {"after": dict(done.results)},
    }


def _check_measured(done: Evaluation) -> None:
    """A greedy pass in which every trajectory was masked has measured nothing."""
    if "reward" in done.results:
        return
    reasons = Counter(
        f"{fault.source}: {fault.message}"
        for stored in done.folder.read_trajectories("eval-after")
        for fault in stored.trajectory.faults
    )
    reason = f" Most often: {reasons.most_common(1)[0][0]}" if reasons else ""
    raise BackendError(
        f"Nothing was measured: every trajectory was spoilt by a fault.{reason} "
        f"Look at them with: rlfactory trace {done.folder.path}"
    )
