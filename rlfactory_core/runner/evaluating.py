"""Evaluates a run's checkpoint, a model or an endpoint on a plugin's task."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rlfactory_core.clients import OpenAIClient
from rlfactory_core.config import RunConfig
from rlfactory_core.engines.base import WholeEngine
from rlfactory_core.errors import BackendError
from rlfactory_core.plugins.registry import Registry
from rlfactory_core.reporting.eval_table import EvalTable, saved_passes
from rlfactory_core.reporting.folder import RunFolder
from rlfactory_core.reporting.progress import Progress
from rlfactory_core.runner.checking import check
from rlfactory_core.runner.fitting import fitted
from rlfactory_core.runner.folders import lock_plugins, plugin_label, removed_if_empty, save_config
from rlfactory_core.runner.models import checkpoint_of, find_run
from rlfactory_core.runner.resolved import Resolved
from rlfactory_core.runner.resolving import load_recipe, read, resolve
from rlfactory_core.settings import merge
from rlfactory_core.tasks.setup import Tasks
from rlfactory_core.tasks.task import Task
from rlfactory_core.training.evaluation import Endpoint
from rlfactory_core.training.record import run_facts
from rlfactory_core.types import Fault, Group
from rlfactory_core.utils.display import without_credentials
from rlfactory_core.version import __version__

ATTEMPTS = 4  # the default per sample at temperature 1; enough for pass@2 and pass@4


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """The model that a user wants to evaluate or to talk to, and its task.

    Args:
        plugin: None: the run's.
        model: a run (its folder, or its name under ``runs/``), a model folder or hub id, a GGUF file, an adapter's
            folder, or with ``api`` a served model's id. A run gives its checkpoint (see `checkpoint_of`) and, for the
            same plugin, its configuration. None: the task's own tiny model, or the only model that is served.
        api: the address of an OpenAI-compatible server.
        file: the ``--config`` file.
        judge: the address of a judge, see `with_judge`.
        recipe: a plugin's recipe; the file overrides it, and it overrides the run's configuration.
    """

    plugin: str | None = None
    model: str | None = None
    api: str | None = None
    file: Path | None = None
    judge: str | None = None
    recipe: str | None = None

    @property
    def run(self) -> RunFolder | None:
        """The run that ``model`` names; None if it names something else.

        Raises:
            UsageError: there is no such run or model, and the name is almost that of a run.
        """
        return None if self.model is None else find_run(self.model)

    def resolve(self, overrides: Sequence[str | Mapping[str, Any]], registry: Registry) -> Resolved:
        """The configuration, on top of that of the run, with its task.

        Args:
            overrides: ``key=value`` texts and nested plain data; later ones win.

        Raises:
            UsageError: the arguments or the configuration are invalid.
            CheckpointError: the run has no checkpoint.
        """
        run, model = self.run, self.model
        if self.api is not None and (run or model is None):
            model = without_credentials(self.api)
        elif run is not None and self.api is None:
            model = str(checkpoint_of(run))
        first = {key: value for key, value in {"plugin": self.plugin, "model": model}.items() if value is not None}
        ready = load_recipe(self.recipe, registry) if self.recipe else {}
        base = merge(_base(run, self.plugin or ready.get("plugin")), ready)
        return resolve(registry, read(self.file, [first, *overrides], base), self.judge)

    def client(self, config: RunConfig) -> OpenAIClient | None:
        """The client of the endpoint; None: an engine loads the model."""
        if self.api is None:
            return None
        return OpenAIClient(self.api, None if self.run else self.model, concurrency=config.rollout.slots)


def model_name(config: RunConfig, client: OpenAIClient | None = None) -> str:
    """The model's name for a reader; a client may know it only after its first request."""
    if client is not None:
        return f"{client.model} at {client.base_url}"
    return config.model or "the plugin's own tiny model"


def _base(run: RunFolder | None, plugin: str | None) -> dict[str, Any]:
    """A run's configuration without the keys of its training and its machine; empty for another plugin."""
    config = run.read_config() if run else {}
    if not config or (plugin is not None and plugin_label(plugin) != plugin_label(config["plugin"])):
        return {}
    # A tiny model ran in float32 wherever it ran; a model that is named would get the device's own.
    dtype = "float32" if config.get("model") is None and config.get("dtype") == "auto" else config.get("dtype", "auto")
    train = {**(config.get("train") or {}), "workers": 0, "lora": None}  # adapters are merged into the checkpoint
    return {**config, "out": None, "loggers": [], "device": "auto", "dtype": dtype, "train": train}


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What an evaluation found."""

    folder: RunFolder
    plugin: str
    model: str
    seconds: float
    results: Mapping[str, float]  # as in summary.json's eval.after
    tables: Sequence[EvalTable] = ()  # of the task: `Task.eval_tables`


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
        resolved = fitted(check(resolved, training=False), progress, training=False)
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
        tables = _tables(resolved.tasks, folder, _conditions(done, config, client))
        saved = {"tables": [table.record() for table in tables]} if tables else {}
        folder.write_summary({**folder.read_summary(), **run_facts(config), **measured, **saved})
    _check_measured(done, faults)
    return replace(done, tables=tables)


def _tables(tasks: Tasks, folder: RunFolder, conditions: str) -> list[EvalTable]:
    """The tables of the tasks that have some, with the conditions under which the numbers hold."""
    own = {
        name: each.task for name, each in tasks.by_name.items() if type(each.task).eval_tables is not Task.eval_tables
    }
    passes = saved_passes(folder) if own else {}
    tables = [table for name, task in own.items() for table in task.eval_tables(_of_task(passes, name))]
    return [replace(table, notes=(*table.notes, conditions)) for table in tables]


def _of_task(passes: Mapping[str, Sequence[Group]], name: str) -> Mapping[str, Sequence[Group]]:
    return {key: [group for group in groups if group.sample.task == name] for key, groups in passes.items()}


def _conditions(done: Evaluation, config: RunConfig, client: OpenAIClient | None) -> str:
    """What a number depends on besides the task."""
    chat = "the server's chat template" if client else f"chat format {config.chat.format}"
    thinking = "" if client or config.chat.thinking else ", without thinking"
    sampled = f", sampled at temperature 1 with {config.eval.attempts} attempts" if config.eval.sampled else ""
    limits = f"at most {config.rollout.max_turn_tokens} tokens a turn, {config.rollout.max_turns} turns"
    greedy = f"greedy (temperature 0){sampled}"
    return f"Model {done.model}; {chat}{thinking}; {greedy}; {limits}; rlfactory-core {__version__}."


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
