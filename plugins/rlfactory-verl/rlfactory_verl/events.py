"""Passes progress and stop requests through files, because verl's trainer runs in another process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rlfactory_core.errors import RunStopped
from rlfactory_core.reporting import write_atomic
from rlfactory_core.reporting.progress import Progress, StageState

EVENTS, STOP = ".events.jsonl", ".stop"  # in the run's folder while it runs; the second requests a stop


class EventProgress(Progress):
    """A `Progress` that writes one JSON line for each call."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def stage(self, name: str, total: int | None = None, unit: str = "") -> None:
        super().stage(name, total, unit)
        self._write(kind="stage", name=name, total=total, unit=unit)

    def advance(self, count: int = 1, **numbers: float) -> None:
        super().advance(count, **numbers)
        self._write(kind="advance", count=count, numbers=numbers)

    def say(self, text: str) -> None:
        self._write(kind="say", text=text)

    def on_end(self, stage: StageState, failed: bool) -> None: ...

    def _write(self, **event: Any) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(event) + "\n")


class StopFile:
    """Requests, from any process and machine, that verl's trainer stops after the step under way."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / STOP

    def ask(self, reason: str = "") -> None:
        """Request a stop. May be called repeatedly; the first reason counts, but for races between processes.

        Raises:
            CheckpointError: the run's folder cannot be written to.
        """
        if not self.reason:
            write_atomic(self.path, reason)

    @property
    def requested(self) -> bool:
        return self.path.exists()

    @property
    def reason(self) -> str:
        """Empty if the user requested the stop, or nobody did."""
        return self.path.read_text(encoding="utf-8") if self.path.exists() else ""

    def clear(self) -> None:
        self.path.unlink(missing_ok=True)


def stopped(what: str, stop: StopFile) -> RunStopped:
    """The error that ends a run after a stop request."""
    return RunStopped(f"{what} {stop.reason}".rstrip())


class EventReader:
    """Shows on a display what was written since the last call."""

    def __init__(self, path: Path) -> None:
        self._path, self._position = path, 0
        self.stages: list[str] = []  # the stages that have begun

    def replay(self, progress: Progress) -> None:
        """Show all new whole lines."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._position)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._position += len(line)
                self._show(progress, json.loads(line))

    def _show(self, progress: Progress, event: dict[str, Any]) -> None:
        if event["kind"] == "stage":
            self.stages.append(event["name"])
            progress.stage(event["name"], event["total"], event["unit"])
        elif event["kind"] == "advance":
            progress.advance(event["count"], **event["numbers"])
        else:
            progress.say(event["text"])
