"""The model of an evaluation or a conversation: a run's checkpoint, a model, or an endpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlfactory_core.clients import OpenAIClient
from rlfactory_core.config import RunConfig
from rlfactory_core.plugins.registry import Registry
from rlfactory_core.reporting.folder import RunFolder
from rlfactory_core.runner.folders import plugin_label
from rlfactory_core.runner.models import checkpoint_of, find_run
from rlfactory_core.runner.resolving import Resolved, load_recipe, read, resolve
from rlfactory_core.settings import merge
from rlfactory_core.utils.display import without_credentials


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
    """The model's name for a reader, which a client may know only after it was asked."""
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
