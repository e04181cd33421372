"""All runs of a folder, each described from a few small readings, however long it is."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import yaml

from rlfactory_core.cache import write_atomically
from rlfactory_core.errors import UsageError
from rlfactory_core.reporting import RunFolder, eval_value, success_metric
from rlfactory_ui import processes
from rlfactory_ui.metrics_file import MetricsFile, spread

NOTES = "ui.json"  # in a run's folder: the user's own tags and note
_SCALAR = re.compile(r"^(plugin|engine|model|seed): (.+)$", re.MULTILINE)
_STEPS = re.compile(r"^train:\n(?:  .*\n)*?  steps: (\d+)$", re.MULTILINE)
_SPARK_POINTS = 24


class State(StrEnum):
    """What a run does."""

    STARTING = "starting"
    RUNNING = "running"
    FINISHED = "finished"
    STOPPED = "stopped"  # it was told to end: between two steps, or before its first result
    LOST = "lost"  # its process ended without a word
    FAILED = "failed"  # it ended before its first result


@dataclass(frozen=True, slots=True)
class RunEntry:
    """One line of the list."""

    name: str
    state: State
    plugin: str = ""
    engine: str = ""
    model: str = ""
    seed: str = ""
    metric: str = ""  # whose value before and after is the run's headline
    before: float | None = None
    after: float | None = None
    latest: float | None = None  # of the evaluations during the training
    step: int = 0
    steps: int = 0
    seconds: float | None = None
    started: float = 0.0  # seconds since the epoch
    spark: Sequence[float] = ()  # the success metric in training, over the run
    tags: Sequence[str] = ()
    note: str = ""


def is_name(name: str) -> bool:
    """Whether a folder may have it, which is then in the folder of the runs."""
    return name == Path(name).name and name not in ("", ".", "..") and "\0" not in name and len(os.fsencode(name)) < 256


@dataclass(slots=True)
class Catalogue:
    """The runs of one folder. Names outside it cannot be opened."""

    runs: Path
    _known: dict[str, tuple[Any, RunEntry]] = field(default_factory=dict)

    def folder(self, name: str) -> RunFolder:
        """
        Raises:
            UsageError: there is no such run in the folder.
        """
        path = self.runs / name
        if not is_name(name) or not (path / "config.yaml").is_file():
            raise UsageError(f"There is no run '{name}' in {self.runs}.")
        return RunFolder(path)

    def entries(self) -> list[RunEntry]:
        """The newest first."""
        found = [self.entry(RunFolder(path)) for path in self._paths()]
        names = {entry.name for entry in found}
        found += [self._launched(name) for name in processes.launches(self.runs) if name not in names]
        return sorted(found, key=lambda entry: entry.started, reverse=True)

    def _paths(self) -> list[Path]:
        if not self.runs.is_dir():
            return []
        return [path for path in self.runs.iterdir() if (path / "config.yaml").is_file()]

    def entry(self, folder: RunFolder) -> RunEntry:
        """Read again only if one of the files has changed."""
        pid = processes.holder(folder)
        files = (folder.config, folder.metrics, folder.summary, folder.report, folder.path / NOTES)
        seen = (pid, *map(_changed, files))
        known = self._known.get(folder.name)
        if known is None or known[0] != seen:
            self._known[folder.name] = known = (seen, _read(folder, pid))
        return known[1]

    def _launched(self, name: str) -> RunEntry:
        launch = processes.launched(self.runs, name)
        if launch is None:
            return RunEntry(name, State.FAILED)
        ended = State.STOPPED if launch.stopped else State.FAILED
        state = State.STARTING if launch.alive else ended
        return RunEntry(name, state, started=launch.started)

    def annotate(self, name: str, tags: Sequence[str], note: str) -> None:
        """Save the user's own tags and note."""
        text = json.dumps({"tags": list(dict.fromkeys(tags)), "note": note}, ensure_ascii=False)
        write_atomically(self.folder(name).path / NOTES, f"{text}\n".encode())

    def delete(self, name: str) -> None:
        """
        Raises:
            UsageError: there is no such run, or a process writes to it.
        """
        if (launch := processes.launched(self.runs, name)) is not None and launch.alive:
            raise UsageError(f"{name} is running. Stop it first.")
        if launch is None or (self.runs / name).exists():
            folder = self.folder(name)
            if processes.holder(folder) is not None:
                raise UsageError(f"{name} is running. Stop it first.")
            shutil.rmtree(folder.path)
        processes.forget(self.runs, name)


def _changed(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def _read(folder: RunFolder, pid: int | None) -> RunEntry:
    """From the summary where there is one; of the configuration only the lines that are shown."""
    summary = _json(folder.summary)
    text = folder.config.read_text(encoding="utf-8", errors="replace")
    facts = {key: _scalar(value) for key, value in _SCALAR.findall(text)}
    total = _STEPS.search(text)
    steps = int(total[1]) if total else 0
    metrics = MetricsFile(folder.metrics)
    metrics.update()
    rows = metrics.rows
    metric = success_metric(summary)
    step = int((rows[-1].get("step") if rows else None) or summary.get("steps") or 0)
    measured = [value for row in rows if (value := row.get(f"eval/{metric}")) is not None]
    curve = [value for row in rows if (value := row.get(metric, row.get("reward"))) is not None]
    seconds = summary.get("seconds") or None
    notes = _json(folder.path / NOTES)
    return RunEntry(
        folder.name,
        _state(folder, pid, summary),
        plugin=facts.get("plugin", ""),
        engine=facts.get("engine", "local"),
        model=str(summary.get("model") or facts.get("model") or ""),
        seed=facts.get("seed", ""),
        metric=metric,
        before=eval_value(summary, "before", metric),
        after=eval_value(summary, "after", metric),
        latest=measured[-1] if measured else None,
        step=step,
        steps=max(steps, step),
        seconds=seconds,
        started=folder.config.stat().st_mtime,
        spark=[curve[at] for at in spread(0, len(curve) - 1, _SPARK_POINTS)],
        tags=[str(tag) for tag in notes.get("tags") or []],
        note=str(notes.get("note") or ""),
    )


def _state(folder: RunFolder, pid: int | None, summary: dict[str, Any]) -> State:
    if pid is not None:
        return State.RUNNING
    if (summary.get("eval") or {}).get("after"):
        return State.FINISHED
    if folder.report.exists() and _newer(folder.report, folder.metrics):
        return State.STOPPED
    return State.LOST


def _newer(path: Path, other: Path) -> bool:
    return not other.exists() or path.stat().st_mtime >= other.stat().st_mtime


def _scalar(text: str) -> str:
    """A value of the configuration as text; ``null`` is empty."""
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        return text
    return "" if value is None else str(value)


def _json(path: Path) -> dict[str, Any]:
    """Empty where the file is missing or damaged: the list shows the others all the same."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
