"""One run as its page shows it, brought up to date from its folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlfactory_core.errors import ConfigError
from rlfactory_core.reporting import ReportSection, RunData, RunFolder, live_sections, scorers
from rlfactory_ui.metrics_file import MetricsFile, Row

_RATE_STEPS = 20  # of the last steps, for the time that is left
_WARN_STEPS = 5  # so many steps in a row before a warning


class LiveRun:
    """Keeps what was read, so that a look at a long run reads only what is new."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self._metrics = MetricsFile(folder.metrics)
        self._config: tuple[int, Mapping[str, Any]] = (0, {})
        self._scorers: tuple[str, ...] = ()

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

    def sections(self) -> list[ReportSection]:
        """The report's charts, as far as the run has come."""
        return live_sections(self.data())

    def seconds_left(self) -> float | None:
        """From the last steps; None if it is not known."""
        rows = [row for row in self.rows()[-_RATE_STEPS:] if row.get("step_s")]
        if not rows:
            return None
        left = self._configured("steps") - int(rows[-1].get("step") or 0)
        return left * sum(row["step_s"] or 0.0 for row in rows) / len(rows) if left > 0 else None

    def warnings(self) -> list[str]:
        """What the run has warned of, and faults in each of its last steps."""
        found = [str(text) for text in self.folder.read_summary().get("warnings") or ()]
        rows = self.rows()[-_WARN_STEPS:]
        lasting = [kind for kind in ("agent", "infra") if all(row.get(f"faults/{kind}") for row in rows)]
        text = "Each of the last {} steps had {} faults."
        return found + [text.format(_WARN_STEPS, kind) for kind in lasting if len(rows) == _WARN_STEPS]

    def _configured(self, key: str) -> int:
        """A number of the configuration's section ``train``; 0 if it is not known."""
        return int((self.config.get("train") or {}).get(key) or 0)
