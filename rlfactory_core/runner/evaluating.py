"""Evaluates a run, a model or an endpoint on a plugin's task."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlfactory_core.engines.base import WholeEngine
from rlfactory_core.errors import BackendError
from rlfactory_core.plugins.registry import Registry
from rlfactory_core.reporting.folder import RunFolder
from rlfactory_core.reporting.progress import Progress
from rlfactory_core.runner.choice import ModelChoice, model_name
from rlfactory_core.runner.folders import lock_plugins, plugin_label, removed_if_empty, save_config
from rlfactory_core.runner.resolving import check
from rlfactory_core.training.endpoint import Endpoint
from rlfactory_core.training.record import run_facts
from rlfactory_core.types import Fault

ATTEMPTS = 4  # the default per sample at temperature 1; enough for pass@2 and pass@4


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What an evaluation found."""

    folder: RunFolder
    plugin: str
    model: str
    seconds: float
    results: Mapping[str, float]  # as in summary.json's eval.after


def evaluate_run(chosen: ModelChoice, overrides: Sequence[str | Mapping[str, Any]], progress: Progress) -> Evaluation:
    """Evaluate, and leave a folder like a run's.

    Args:
        overrides: ``key=value`` texts and nested plain data; later ones win.

    Raises:
        UsageError: the arguments or the configuration are invalid; raised before anything costly happens.
        CheckpointError: the run has no checkpoint.
        BackendError: the endpoint, or a service that the tools need, does not answer at the start. Or every trajectory
            was masked; then the folder has been saved.
    """
    started = time.perf_counter()
    registry = Registry()
    resolved = chosen.resolve([{"eval": {"sampled": True, "attempts": ATTEMPTS}}, *overrides], registry)
    client = chosen.client(resolved.config)
    engine: WholeEngine
    if client is None:
        resolved = check(resolved, training=False)
        engine, name = resolved.engine, resolved.config.engine
    else:
        engine, name = Endpoint(client), "endpoint"
    config = resolved.config
    folder = RunFolder.create(f"{plugin_label(config.plugin)}-eval", config.out)
    with removed_if_empty(folder):
        save_config(config, registry, folder)
        lock_plugins(registry, folder)
        results = engine.evaluate(resolved.at(folder, progress, engine=engine))
        seconds = round(time.perf_counter() - started, 3)
        done = Evaluation(folder, config.plugin, model_name(config, client), seconds, results)
        faults = [fault for each in folder.read_trajectories("eval-after") for fault in each.trajectory.faults]
        measured = {
            "engine": name,
            "model": done.model,
            "steps": 0,
            "seconds": done.seconds,
            "faults": dict(Counter(fault.kind.value for fault in faults)),
            "eval": {"after": dict(done.results)},
        }
        folder.write_summary({**folder.read_summary(), **run_facts(config), **measured})
    _check_measured(done, faults)
    return done


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
