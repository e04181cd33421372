"""Writes ``report.html``, one self-contained page about a run, from the run's folder alone.

The page is a list of sections. Each is a function of the run's data, so plugins can add their own (`plugin_sections`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from html import escape
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlfactory_core.plugins.loading import Registration
from rlfactory_core.reporting.charts import Chart, Line
from rlfactory_core.reporting.folder import RunFolder, write_atomic
from rlfactory_core.reporting.kept_images import Embedded, KeptImages
from rlfactory_core.reporting.metric_table import METRICS, PLOTS, Metric
from rlfactory_core.reporting.metrics import component_metric
from rlfactory_core.reporting.progress import number_label, number_text, seconds_text
from rlfactory_core.reporting.rescored import mean_text
from rlfactory_core.reporting.run_data import (
    RunData,
    control_results,
    eval_extras,
    eval_rows,
    faults_text,
    headline,
    success_metric,
    title,
)
from rlfactory_core.types import Trajectory
from rlfactory_core.utils.display import printable

if TYPE_CHECKING:
    from jinja2 import Environment

_MAX_IMAGE_BYTES = 4 << 20  # the page is read at once


@dataclass(frozen=True, slots=True)
class ReportSection:
    """A part of the page. ``html`` is inserted as it is, so escape texts from data or models."""

    title: str
    html: str

    @classmethod
    def of_charts(cls, title: str, *charts: Chart) -> ReportSection | None:
        """Charts side by side, without empty ones; None if all are empty."""
        drawn = [html for chart in charts if (html := chart.html())]
        return cls(title, f'<div class="charts">{"".join(drawn)}</div>') if drawn else None

    @classmethod
    def of_table(
        cls, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], note: str = ""
    ) -> ReportSection | None:
        """A table of texts, which are escaped; None if it has no rows.

        Args:
            columns: headings.
            rows: with as many cells as columns.
            note: a line below the table.
        """
        return cls(title, _macro("table", columns, rows, note)) if rows else None


SectionMaker = Callable[[RunData], ReportSection | None]
"""Returns None if the run has no data for the section."""


def write_report(folder: RunFolder, extra: Iterable[SectionMaker] = ()) -> Path:
    """Write ``report.html`` with the standard sections and then the ``extra`` ones; returns its path.

    It also works for a run that was interrupted.

    Raises:
        DataError: the folder's files are damaged.
        CheckpointError: the page cannot be written.
    """
    run = RunData.read(folder)
    made = [
        rescored(run),
        results(run),
        stages(run),
        learning(run),
        examples(run),
        *_charts(run),
        *(make(run) for make in extra),
    ]
    page = (
        page_environment()
        .get_template("report.jinja")
        .render(
            run=run,
            facts=_facts(run),
            title=title(run.summary),
            headline=headline(run.summary, len(run.metrics)),
            sections=[section for section in made if section is not None],
        )
    )
    write_atomic(folder.report, page)
    return folder.report


def live_sections(run: RunData) -> list[ReportSection]:
    """The sections of a run that goes on; its results come first once all of them are there."""
    finished = (run.summary.get("eval") or {}).get("after")
    first = (results, stages, learning) if finished else (learning, stages, results)
    made = [*(make(run) for make in first), *_charts(run)]
    return [section for section in made if section is not None]


def results(run: RunData) -> ReportSection | None:
    """Held-out success before and after, overall and by slice, and the controls."""
    rows = eval_rows(run.summary)
    if not rows:
        return None
    controls, extras = control_results(run.summary), eval_extras(run.summary)
    return ReportSection(
        "Results", _macro("results", number_label(success_metric(run.summary)), rows, controls, extras)
    )


def stages(run: RunData) -> ReportSection | None:
    """How far each stage of the training came; None if there is one."""
    if not run.stages:
        return None
    metric = success_metric(run.summary)
    ends = [first - 1 for first, _ in run.stages[1:]] + [inf]
    rows = []
    for (first, method), end in zip(run.stages, ends, strict=True):
        held_out = [value for step, value in run.series(f"eval/{metric}") if first <= step <= end]
        last = int(min(end, run.metrics[-1].get("step") or inf))
        rows.append((method, f"{first:,.0f} to {last:,}", number_text(held_out[-1]) if held_out else ""))
    return ReportSection.of_table("Stages", ("method", "steps", f"held-out {number_label(metric)} at its end"), rows)


def rescored(run: RunData) -> ReportSection | None:
    """What changed, if the trajectories of another run were scored anew."""
    found = run.summary.get("rescored")
    if not found:
        return None
    counts = ("attempts", "changed", "higher", "lower")
    columns = ("", *counts, "mean reward before", "after")
    rows = [
        [row["name"], *(f"{row[name]:,}" for name in counts), *map(mean_text, row["reward"])] for row in found["parts"]
    ]
    note = " ".join([found["text"], *found["notes"], f"The trajectories are those of {found['source']}."])
    return ReportSection.of_table("Scored anew", columns, rows, note)


def learning(run: RunData) -> ReportSection | None:
    """Held-out success by slice, and the training reward."""
    metric = success_metric(run.summary)
    label = number_label(metric)
    held_out = [_measured("overall", run, f"eval/{metric}")]
    held_out += [_measured(name.rsplit("/", 1)[1], run, name) for name in run.names(f"eval/{metric}/")]
    trained = [Line("overall", run.series(metric))]
    trained += [Line(number_label(name.split("/", 1)[1]), run.series(name)) for name in run.names(f"{metric}/")]
    return _charts_of(
        run,
        "Learning",
        *_rewards(run),
        Chart(f"Held-out {label}", held_out, "greedy, on questions that are never trained on", high=1.0),
        Chart(f"{label.capitalize()} in training", trained, "sampled, mean of a step's trajectories", high=1.0),
        *_plots("Learning", run),
    )


def _measured(label: str, run: RunData, metric: str) -> Line:
    """A held-out metric, which is measured in a few steps only."""
    return Line(number_label(label), run.series(metric), smooth=False, dots=True)


def _rewards(run: RunData) -> list[Chart]:
    """All rewards in one chart, unweighted, for example to compare a judge with the exact answer."""
    if len(run.rewards) < 2:
        return []
    names = {name: component_metric(name) for name in run.rewards}
    held_out = [_measured(name, run, f"eval/{key}") for name, key in names.items()]
    trained = [Line(number_label(name), run.series(key)) for name, key in names.items()]
    greedy = "each unweighted, greedy, on questions that are never trained on"
    sampled = "each unweighted, sampled, mean of a step's trajectories"
    return [
        Chart("Rewards, held out", held_out, greedy, high=_one(held_out)),
        Chart("Rewards in training", trained, sampled, high=_one(trained)),
    ]


def _one(lines: Sequence[Line]) -> float | None:
    """1 as the upper end of the axis if all values are in [0, 1]."""
    return 1.0 if all(0.0 <= value <= 1.0 for line in lines for _, value in line.points) else None


def _charts(run: RunData) -> list[ReportSection | None]:
    return [_charts_of(run, title, *_plots(title, run)) for title in ("Behaviour", "Speed", "Update")]


def _charts_of(run: RunData, title: str, *charts: Chart) -> ReportSection | None:
    """The charts with a mark where a stage begins."""
    return ReportSection.of_charts(title, *(replace(chart, marks=run.stages) for chart in charts))


def _plots(section: str, run: RunData) -> Iterator[Chart]:
    """The charts of a section by the table of metrics."""
    for plot in PLOTS:
        if plot.section == section:
            metrics = [metric for metric in METRICS if metric.chart == plot.title]
            lines = [line for metric in metrics for line in _lines(metric, run, smooth=plot.smooth)]
            values = {value for line in lines for _, value in line.points}
            if len(values) > plot.varies:  # a constant is known from the configuration
                yield Chart(plot.title, lines, plot.note, plot.low, plot.high, plot.unit)


def _lines(metric: Metric, run: RunData, *, smooth: bool) -> Iterator[Line]:
    """A line for each name of the metric that the run has; of a family, those that are not always 0."""
    pattern = metric.pattern
    if not pattern.groups:
        yield Line(metric.label or number_label(metric.name), run.series(metric.name), smooth)
        return
    for name in run.names(metric.name.partition("/")[0] + "/"):
        found, points = pattern.fullmatch(name), run.series(name)
        if found and any(value for _, value in points):
            yield Line(number_label(found[1]), points, smooth)


def examples(run: RunData) -> ReportSection | None:
    """Sample trajectories as chats, before and after, with their images."""
    if not run.pairs:
        return None
    embedded = Embedded(run.folder, _MAX_IMAGE_BYTES)
    html = _macro("examples", run.pairs, KeptImages(run.folder, embedded))
    if embedded.left_out:
        most = f"The page shows at most {_MAX_IMAGE_BYTES >> 20} MiB of images; the others are in trajectories/images."
        html += f'<p class="note">{most}</p>'
    return ReportSection("Sample trajectories", html)


def _facts(run: RunData) -> list[tuple[str, str]]:
    keys = ("plugin", "engine", "model", "seed")
    named = {key: run.config[key] for key in keys if run.config.get(key) is not None}
    merged = {**run.summary, **named}  # a model as the user named it, not the folder that was made of it
    facts = [(key, str(merged[key])) for key in keys if merged.get(key) is not None]
    last_step = max((row.get("step") or 0 for row in run.metrics), default=0)
    facts.append(("steps", f"{merged.get('steps', last_step):,.0f}"))
    if run.summary.get("ended"):
        facts.append(("ended", str(run.summary["ended"]["text"])))
    if back := run.summary.get("rolled_back"):
        facts.append(("went back", f"from step {back['from']} to step {back['to']}, with train.lr={back['lr']:g}"))
    facts += [("warning", text) for text in run.summary.get("warnings") or ()]
    if merged.get("seconds") is not None:
        facts.append(("time", seconds_text(merged["seconds"])))
    tokens = [(key, merged.get(key)) for key in ("sampled_tokens", "trained_tokens")]
    facts += [(number_label(key), number_text(count)) for key, count in tokens if count is not None]
    if run.summary:
        facts.append(("faults", faults_text(run.summary) or "none"))
    return facts


def _macro(name: str, *arguments: Any) -> str:
    return str(getattr(page_environment().get_template("sections.jinja").module, name)(*arguments))


@lru_cache(maxsize=1)
def page_environment() -> Environment:
    """Of the templates of pages, which escape all that they insert.

    Control characters, which could hide text or turn its direction, are shown as `printable` writes them. ``|escape``
    keeps them, for a form's field whose value comes back.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("rlfactory_core.reporting"),
        autoescape=True,
        finalize=lambda value: printable(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters.update(words=number_label, number=number_text, seconds=seconds_text)
    return environment


def plugin_sections(registered: Iterable[Registration]) -> tuple[SectionMaker, ...]:
    """The sections that plugins register as ``report_section``, for `write_report`."""
    return tuple(partial(_section, item) for item in registered)


def trajectory_sections(
    registered: Iterable[Registration], trajectory: Trajectory, config: Mapping[str, Any]
) -> list[ReportSection]:
    """What plugins show of one trajectory, who register it as ``trajectory_section``."""
    made = (_section(item, trajectory, config) for item in registered)
    return [section for section in made if section is not None]


def _section(item: Registration, *of: Any) -> ReportSection | None:
    """The plugin's section, or a note on why it failed: an error must not end a run that may have taken days."""
    try:
        section = item.make(*of)
        if section is None:
            return None
        if not isinstance(section, ReportSection):
            raise TypeError(f"expected a rlfactory_core.reporting.ReportSection or None, got {section!r}")
        f"{section.title}{section.html}".encode()  # raises here if the text cannot be written to the file
    except Exception as error:  # noqa: BLE001 - the boundary to the plugin's code
        why = f"{type(error).__name__}: {error}".encode(errors="replace").decode()
        note = f"The plugin {item.plugin} could not make this section: {why}"
        return ReportSection(item.name, f'<p class="note">{escape(note)}</p>')
    return section
