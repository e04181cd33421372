"""Evaluates a run, a model or an endpoint on a plugin's task."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

from rlfactory_core.clients.openai import OpenAIClient
from rlfactory_core.config import RunConfig
from rlfactory_core.config.loading import merge
from rlfactory_core.engines.base import EngineRun
from rlfactory_core.engines.endpoint import evaluate_endpoint
from rlfactory_core.errors import BackendError, CheckpointError
from rlfactory_core.plugins.registry import Registry
from rlfactory_core.reporting.folder import RUNS, RunFolder
from rlfactory_core.reporting.progress import Progress
from rlfactory_core.runner.folders import lock_plugins, plugin_label, removed_if_empty, save_config
from rlfactory_core.runner.resolving import check, find_parts, load_recipe, resolve_task
from rlfactory_core.types import Fault
from rlfactory_core.utils.display import without_credentials

ATTEMPTS = 4  # the default per sample at temperature 1; enough for pass@2 and pass@4


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What an evaluation found."""

    folder: RunFolder
    plugin: str
    model: str
    seconds: float
    results: Mapping[str, float]  # as in summary.json's eval.after


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
        model: a run (its folder, or its name under ``runs/``), a model folder or hub id, or with ``api`` a served
            model's id. A run gives its latest checkpoint and, for the same plugin, its configuration. None: the task's
            own tiny model, or the only model that is served.
        api: the address of an OpenAI-compatible server.
        file: the ``--config`` file.
        overrides: ``key=value`` texts and nested plain data; later ones win.
        judge: the address of a judge, see `with_judge`.
        recipe: a plugin's recipe; the file overrides it, and it overrides the run's configuration.

    Raises:
        UsageError: the arguments or the configuration are invalid; raised before anything costly happens.
        CheckpointError: the run has no checkpoint.
        BackendError: the endpoint, or a service that the tools need, does not answer at the start. Or every trajectory
            was masked; then the folder has been saved.
    """
    started = time.perf_counter()
    run = _run_of(model)
    named = {"plugin": plugin, "model": _model(run, model, api)}
    given = {key: value for key, value in named.items() if value is not None}
    first = {"eval": {"sampled": True, "attempts": ATTEMPTS}, **given}
    registry = Registry()
    ready = load_recipe(recipe, registry) if recipe else {}
    base = merge(_base(run, plugin or ready.get("plugin")), ready)
    parts = find_parts(registry, *resolve_task(registry, file, [first, *overrides], base, judge))
    client = None
    evaluate: Callable[[EngineRun], dict[str, Any]]
    if api is not None:
        config = parts.config
        client = OpenAIClient(api, None if run else model, concurrency=config.rollout.slots)
        engine, evaluate = "endpoint", partial(evaluate_endpoint, client)
    else:
        prepared = check(parts)
        parts, config = prepared.parts, prepared.config
        engine, evaluate = config.engine, prepared.engine.evaluate
    folder = RunFolder.create(f"{plugin_label(config.plugin)}-eval", config.out)
    with removed_if_empty(folder):
        save_config(config, registry, folder)
        lock_plugins(registry, folder)
        results = evaluate(EngineRun(config, registry, folder, progress, made=parts))
        seconds = round(time.perf_counter() - started, 3)
        done = Evaluation(folder, config.plugin, _model_name(config, client), seconds, results)
        faults = _faults(done)
        folder.write_summary(_summary(done, engine, config, faults))
    _check_measured(done, faults)
    return done


def _model(run: RunFolder | None, model: str | None, api: str | None) -> str | None:
    """The value of ``model`` in the configuration; None: it is not changed."""
    if api is not None:
        return without_credentials(api) if run or model is None else model
    return model if run is None else _checkpoint(run)


def _model_name(config: RunConfig, client: OpenAIClient | None) -> str:
    """The model's name for a reader, which a client may know only after the evaluation."""
    return f"{client.model} at {client.base_url}" if client else config.model or "the plugin's own tiny model"


def _run_of(model: str | None) -> RunFolder | None:
    """The run that ``--model`` names; None if it names something else.

    Raises:
        UsageError: there is no such run or model, and the name is almost that of a run.
    """
    if model is None:
        return None
    for path in (Path(model), RUNS / model):
        if (path / "config.yaml").is_file():
            return RunFolder(path)
    runs = [path.name for path in RUNS.glob("*/") if path.name]
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
    """A run's configuration without the keys of its training and its machine; empty for another plugin."""
    config = run.read_config() if run else {}
    if not config or (plugin is not None and plugin_label(plugin) != plugin_label(config["plugin"])):
        return {}
    # A tiny model ran in float32 wherever it ran; a model that is named would get the device's own.
    dtype = "float32" if config.get("model") is None and config.get("dtype") == "auto" else config.get("dtype", "auto")
    train = {**(config.get("train") or {}), "workers": 0, "lora": None}  # adapters are merged into the checkpoint
    return {**config, "out": None, "loggers": [], "device": "auto", "dtype": dtype, "train": train}


def _faults(done: Evaluation) -> list[Fault]:
    stored = done.folder.read_trajectories("eval-after")
    return [fault for each in stored for fault in each.trajectory.faults]


def _summary(done: Evaluation, engine: str, config: RunConfig, faults: Sequence[Fault]) -> dict[str, Any]:
    return {
        "plugin": done.plugin,
        "engine": engine,
        "model": done.model,
        "seed": config.seed,
        "steps": 0,
        "seconds": done.seconds,
        "faults": dict(Counter(fault.kind.value for fault in faults)),
        "eval": {"after": dict(done.results)},
    }


def _check_measured(done: Evaluation, faults: Sequence[Fault]) -> None:
    """A greedy pass in which every trajectory was masked has measured nothing."""
    if "reward" in done.results:
        return
    reasons = Counter(f"{fault.source}: {fault.message}" for fault in faults)
    reason = f" Most often: {reasons.most_common(1)[0][0]}" if reasons else ""
    raise BackendError(
        f"Nothing was measured: every trajectory was masked by a fault.{reason} "
        f"Look at them with: rlfactory trace {done.folder.path}"
    )
