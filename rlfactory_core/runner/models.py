"""What ``--model`` names, besides a model folder and a hub id: a run, a GGUF file, the folder of an adapter."""

from __future__ import annotations

import os
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from rlfactory_core.engines.adapters import AdapterFolder, is_adapter, read_adapter
from rlfactory_core.engines.gguf.header import is_gguf
from rlfactory_core.errors import CheckpointError, ConfigError
from rlfactory_core.reporting.folder import RUNS, RunFolder
from rlfactory_core.settings import merge
from rlfactory_core.training.checkpoints import BEST, LATEST


def find_run(model: str) -> RunFolder | None:
    """The run that a model's name stands for: its folder, or its name under ``runs/``; None: another kind of model.

    Raises:
        UsageError: there is no such run or model, and the name is almost that of a run.
    """
    for path in (Path(model), RUNS / model):
        if (path / "config.yaml").is_file():
            return RunFolder(path)
    runs = [path.name for path in RUNS.glob("*/") if path.name]
    meant = Path(model).parent == RUNS or get_close_matches(model, runs, cutoff=0.85)
    if not Path(model).exists() and meant:
        return RunFolder.open(model)
    return None


def checkpoint_of(run: RunFolder, which: str = "") -> Path:
    """A checkpoint's model folder.

    Args:
        which: ``best``, ``latest`` or a step's number. Without it: the best one, if evaluations between steps have
            marked one, else the latest.

    Raises:
        CheckpointError: the run does not have it.
    """
    names = {"": (BEST, LATEST), BEST: (BEST,), LATEST: (LATEST,)}.get(which, (f"step-{which}",))
    for name in names:
        folder = run.checkpoints / name
        if (folder / "config.json").is_file():
            # The links of the training itself change when it goes on.
            return run.checkpoints / os.readlink(folder) if name in (BEST, LATEST) and folder.is_symlink() else folder
    known = sorted((path.name for path in run.checkpoints.glob("step-*")), key=lambda name: (len(name), name))
    if which and known:
        raise CheckpointError(f"{run.path} has no checkpoint '{which}'; it has {', '.join(known)}.")
    raise CheckpointError(
        f"{run.path} has no checkpoint: the run ended before its first one, or it is an evaluation. "
        "Name another run, or a model folder."
    )


def with_model(given: Mapping[str, Any]) -> dict[str, Any]:
    """What is given, with the model as engines take it: a folder by its absolute path, or a hub id.

    A run gives its checkpoint. An adapter gives its base model, and the keys of ``train.lora``. A GGUF file stays one.

    Raises:
        ConfigError: ``train.lora`` has other keys than the adapter.
        CheckpointError: the run has no checkpoint.
        ModelError: the adapter cannot be trained further.
    """
    model = given.get("model")
    if not isinstance(model, str):
        return dict(given)
    path = Path(model).expanduser()
    if (run := find_run(model)) is not None:
        path = checkpoint_of(run)
    elif not path.is_dir() and not is_gguf(model):
        return dict(given)  # a hub id
    found = os.path.abspath(path)
    if not is_adapter(path):
        return {**given, "model": found}
    return _with_adapter(given, read_adapter(Path(found)))


def with_teacher(train: Mapping[str, Any]) -> dict[str, Any]:
    """A stage's keys, with its teachers as engines take them, see `with_model`.

    Raises:
        CheckpointError: a run has no checkpoint.
        ConfigError: a teacher is an adapter.
    """
    teacher = train.get("teacher")
    if isinstance(teacher, str) and teacher:
        return {**train, "teacher": _teacher(teacher)}
    if isinstance(teacher, Mapping):
        return {**train, "teacher": {task: _teacher(str(name)) for task, name in teacher.items()}}
    return dict(train)


def _teacher(name: str) -> str:
    if "://" in name:
        return name
    if is_adapter(Path(name).expanduser()):
        raise ConfigError(
            f"train.teacher={name} is an adapter, which a teacher cannot be. Merge it: rlfactory export, or give the "
            "address of a server that has it."
        )
    return str(with_model({"model": name})["model"])


def _with_adapter(given: Mapping[str, Any], adapter: AdapterFolder) -> dict[str, Any]:
    asked = (given.get("train") or {}).get("lora") or {}
    other = {key: value for key, value in asked.items() if adapter.lora.get(key, value) != value}
    if other:
        texts = [f"train.lora.{key}={value} (the adapter has {adapter.lora[key]})" for key, value in other.items()]
        raise ConfigError(
            f"The training goes on on the adapter {adapter.lora['adapter']}, and {', '.join(texts)}. Leave them out."
        )
    return merge(given, {"model": adapter.base, "train": {"lora": adapter.lora}})
