"""One run as its page shows it, brought up to date from its folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlfactory_core.algo.guard import Guard
from rlfactory_core.algo.guard_signs import Finding
from rlfactory_core.errors import ConfigError
from rlfactory_core.reporting.folder import RunFolder
from rlfactory_core.reporting.progress import number_label
from rlfactory_core.reporting.report import Section, behaviour, learning, results, speed, update
from rlfactory_core.reporting.run_data import RunData, scorers
from rlfactory_ui.metrics_file import MetricsFile, Row

_RATE_STEPS = 20  # of the last steps, for the time that is left
_GUARDED = 1000  # the last steps that the guard looks at when a page is first opened
_WARN_STEPS = 5  # so many steps in a row before a warning


class LiveRun:
    """Keeps what was read, so that a look at a long run reads only what is new."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self._metrics = MetricsFile(folder.metrics)
        self._config: tuple[int, Mapping[str, Any]] = (0, {})
        self._scorers: tuple[str, ...] = ()
        self._guard: Guard | None = None
        self._followed = 0  # steps that the guard has seen
        self._found: list[Finding] = []

    @property
    def config(self) -> Mapping[str, Any]:
        """Empty if the file is damaged."""
        changed = self.folder.config.stat().st_mtime_ns
        if self._config[0] != changed:
            try:
                self._config = (changed, self.folder.read_config())
            except ConfigError:
                self._config = (changed, {})
        return self._config[1]

    def version(self) -> str:
        """Another one whenever the page would show something else."""
        files = (self.folder.metrics, self.folder.summary, self.folder.report, self.folder.config)
        return "-".join(str(path.stat().st_mtime_ns if path.exists() else 0) for path in files)

    def rows(self) -> list[Row]:
        self._metrics.update()
        return self._metrics.rows

    def data(self) -> RunData:
        """For the report's own sections."""
        self._scorers = self._scorers or scorers(self.folder)
        return RunData(
            folder=self.folder,
            name=self.folder.name,
            config=self.config,
            summary=self.folder.read_summary(),
            metrics=self.rows(),
            pairs=(),
            rewards=self._scorers,
        )

    def sections(self) -> list[Section]:
        """The report's charts, as far as the run has come; curves come first until all results are there."""
        data = self.data()
        finished = (data.summary.get("eval") or {}).get("after")
        first = (results, learning) if finished else (learning, results)
        order = (*first, behaviour, speed, update)
        return [section for make in order if (section := make(data)) is not None]

    def seconds_left(self) -> float | None:
        """From the last steps; None if it is not known."""
        rows = [row for row in self.rows()[-_RATE_STEPS:] if row.get("step_s")]
        if not rows:
            return None
        left = self._configured("steps") - int(rows[-1].get("step") or 0)
        return left * sum(row["step_s"] or 0.0 for row in rows) / len(rows) if left > 0 else None

    def warnings(self) -> Iterator[str]:
        """What a person who watches would want to be told."""
        everything = self.rows()
        if len(everything) < self._followed:  # the run went back to an earlier checkpoint
            self._guard = None
        if self._guard is None:
            self._guard, self._followed = Guard(self._weights()), max(0, len(everything) - _GUARDED)
        played = float(self._configured("prompts_per_step"))  # for the files of older versions
        for row in everything[self._followed :]:
            self._found, _ = self._guard.add({"groups": played, **row})
        self._followed = len(everything)
        for finding in self._found:
            yield finding.text
        rows = everything[-_WARN_STEPS:]
        if len(rows) < _WARN_STEPS:
            return
        faults = {
            name for row in rows for name, value in row.items() if name in ("faults/infra", "faults/agent") and value
        }
        for name in sorted(faults):
            if all(row.get(name) for row in rows):
                yield f"Each of the last {_WARN_STEPS} steps had {number_label(name.split('/')[1])} faults."

    def kept_warnings(self) -> list[str]:
        """What a run that has ended has kept."""
        return [str(text) for text in self.folder.read_summary().get("warnings") or ()]

    def _weights(self) -> dict[str, float]:
        """Of the rewards that the configuration names; a task's own are not known here."""
        rewards = self.config.get("rewards") or ()
        return {reward.get("label") or reward["name"]: float(reward.get("weight", 1.0)) for reward in rewards}

    def _configured(self, key: str) -> int:
        """A number of the configuration's section ``train``; 0 if it is not known."""
        return int((self.config.get("train") or {}).get(key) or 0)
