"""Writes ``report.html``, one self-contained page about a run, from the run's folder alone.

The page is a list of sections. Each is a function of the run's data, so plugins can add their own (`plugin_sections`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlfactory_core.plugins.loading import Registration
from rlfactory_core.plugins.registry import Registry
from rlfactory_core.reporting.charts import Chart, Line
from rlfactory_core.reporting.folder import RunFolder, write_atomic
from rlfactory_core.reporting.kept_images import Embedded, KeptImages
from rlfactory_core.reporting.metrics import component_metric
from rlfactory_core.reporting.progress import number_label, number_text, seconds_text
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
class Section:
    """A part of the page. ``html`` is inserted as it is, so escape texts from data or models."""

    title: str
    html: str

    @classmethod
    def of_charts(cls, title: str, *charts: Chart) -> Section | None:
        """Charts side by side, without empty ones; None if all are empty."""
        drawn = [html for chart in charts if (html := chart.html())]
        return cls(title, f'<div class="charts">{"".join(drawn)}</div>') if drawn else None

    @classmethod
    def of_table(
        cls, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], note: str = ""
    ) -> Section | None:
        """A table of texts, which are escaped; None if it has no rows.

        Args:
            columns: headings.
            rows: with as many cells as columns.
            note: a line below the table.
        """
        return cls(title, _macro("table", columns, rows, note)) if rows else None


SectionMaker = Callable[[RunData], Section | None]
"""Returns None if the run has no data for the section."""


def write_report(folder: RunFolder, extra: Iterable[SectionMaker] = ()) -> Path:
    """Write ``report.html`` with the standard sections and then the ``extra`` ones; returns its path.

    It also works for a run that was interrupted.

    Raises:
        DataError: the folder's files are damaged.
        CheckpointError: the page cannot be written.
    """
    run = RunData.read(folder)
    made = (make(run) for make in (results, learning, examples, behaviour, speed, update, *extra))
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


def results(run: RunData) -> Section | None:
    """Held-out success before and after, overall and by slice, and the controls."""
    rows = eval_rows(run.summary)
    if not rows:
        return None
    controls, extras = control_results(run.summary), eval_extras(run.summary)
    return Section("Results", _macro("results", number_label(success_metric(run.summary)), rows, controls, extras))


def learning(run: RunData) -> Section | None:
    """Held-out success by slice, and the training reward."""
    metric = success_metric(run.summary)
    label = number_label(metric)
    held_out = [_measured("overall", run, f"eval/{metric}")]
    held_out += [_measured(name.rsplit("/", 1)[1], run, name) for name in run.names(f"eval/{metric}/")]
    trained = [Line("overall", run.series(metric))]
    trained += [Line(number_label(name.split("/", 1)[1]), run.series(name)) for name in run.names(f"{metric}/")]
    return Section.of_charts(
        "Learning",
        *_rewards(run),
        Chart(f"Held-out {label}", held_out, "greedy, on questions that are never trained on", high=1.0),
        Chart("Reward", [Line("reward", run.series("reward"))], "mean of a step's trajectories", low=None),
        Chart(f"{label.capitalize()} in training", trained, "sampled, mean of a step's trajectories", high=1.0),
        Chart(
            "Groups without a gradient",
            [Line("groups", run.series("equal_groups"))],
            "all attempts scored alike",
            unit="groups",
        ),
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


def behaviour(run: RunData) -> Section | None:
    """Calls, turns, lengths, stop reasons and faults of the trajectories."""
    stops = [Line(number_label(name.split("/", 1)[1]), _if_any(run.series(name))) for name in run.names("stop/")]
    faults = [
        Line(name.split("/", 1)[1], _if_any(run.series(name)), smooth=False)
        for name in run.names("faults/")
        if name.count("/") == 1
    ]
    forks = [Line(number_label(name.split("/", 1)[1]), _if_any(run.series(name))) for name in run.names("forks/")]
    masked = Line("masked trajectories", _if_any(run.series("masked")), smooth=False)
    return Section.of_charts(
        "Behaviour",
        Chart("Tool calls", [Line("tool calls", run.series("tool_calls"))], "per trajectory", unit="calls"),
        Chart("Calls by tool", _by_tool(run, "calls"), "per step", unit="calls"),
        Chart("Latency by tool", _by_tool(run, "latency_p95_s"), "95th percentile of a step's calls", unit="seconds"),
        Chart("Turns", [Line("turns", run.series("turns"))], "per trajectory"),
        Chart(
            "Rows",
            [Line("rows", run.series("rows")), *forks],
            "sequences per trajectory; below: why new sequences began, per step",
        ),
        Chart(
            "Length",
            [Line("sampled tokens", run.series("sampled_tokens"))],
            "sampled tokens per trajectory",
            unit="tokens",
        ),
        Chart("How trajectories end", stops, "of the step's trajectories", high=1.0, unit="share"),
        Chart("Faults", [*faults, masked], "per step; infra and verifier faults mask a trajectory out of the update"),
    )


def _by_tool(run: RunData, measure: str) -> list[Line]:
    names = [name for name in run.names("tool/") if name.endswith(f"/{measure}")]
    return [Line(name.split("/")[1], _if_any(run.series(name))) for name in names]


def speed(run: RunData) -> Section | None:
    """Throughput, where the time goes, and what the machine gives."""
    rates = [Line("sampled", run.series("sampled_tokens_s")), Line("trained", run.series("trained_tokens_s"))]
    times = [Line(name, run.series(f"{name}_s")) for name in ("step", "rollout", "update")]
    memory = [
        Line("main memory", run.series("machine/memory_gib")),
        Line("GPU", _if_any(run.series("machine/gpu_memory_gib")), smooth=False),
    ]
    return Section.of_charts(
        "Speed",
        Chart("Throughput", rates, "while sampling and while training", unit="tokens per second"),
        Chart("Time", times, "per step", unit="seconds"),
        Chart("CPU load", [Line("cores", run.series("machine/cpu_cores"))], "that the run keeps busy", unit="cores"),
        Chart("GPU load", [Line("use", run.series("machine/gpu_use"))], "of the time", high=1.0, unit="share"),
        Chart("Memory", memory, "of the GPU: the peak so far", unit="GiB"),
    )


def update(run: RunData) -> Section | None:
    """The optimizer's health."""
    shown = (
        ("loss", "", None),
        ("grad_norm", "before clipping", 0.0),
        ("entropy", "nats per token", 0.0),
        ("kl", "to the start model", None),
        ("clip_fraction", "share of tokens whose ratio is clipped", 0.0),
        ("mismatch_kl", "sampler against trainer, at the same weights", None),
        ("lr", "", 0.0),
        ("staleness", "updates that the sampling weights lag behind", 0.0),
        ("skipped", "steps whose gradient was not finite or exploded", 0.0),
    )
    charts = []
    for name, note, low in shown:
        points, title = run.series(name), number_label(name).capitalize().replace("Kl", "KL")
        if len({value for _, value in points}) > 1:  # a constant is known from the configuration
            charts.append(Chart(title, [Line(name, points)], note, low=low))
    return Section.of_charts("Update", *charts)


def examples(run: RunData) -> Section | None:
    """Sample trajectories as chats, before and after, with their images."""
    if not run.pairs:
        return None
    embedded = Embedded(run.folder, _MAX_IMAGE_BYTES)
    html = _macro("examples", run.pairs, KeptImages(run.folder, embedded))
    if embedded.left_out:
        most = f"The page shows at most {_MAX_IMAGE_BYTES >> 20} MiB of images; the others are in trajectories/images."
        html += f'<p class="note">{most}</p>'
    return Section("Sample trajectories", html)


def _if_any(points: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    return points if any(value for _, value in points) else ()


def _facts(run: RunData) -> list[tuple[str, str]]:
    merged = {**{key: run.config.get(key) for key in ("plugin", "engine", "model", "seed")}, **run.summary}
    facts = [(key, str(merged[key])) for key in ("plugin", "engine", "model", "seed") if merged.get(key) is not None]
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


def plugin_sections(registry: Registry) -> tuple[SectionMaker, ...]:
    """The sections that the plugins in use register, for `write_report`."""
    return tuple(partial(_section, item) for item in registry.registered("report_section"))


def trajectory_sections(registry: Registry, trajectory: Trajectory, config: Mapping[str, Any]) -> list[Section]:
    """What the plugins in use show of one trajectory."""
    made = (_section(item, trajectory, config) for item in registry.registered("trajectory_section"))
    return [section for section in made if section is not None]


def _section(item: Registration, *of: Any) -> Section | None:
    """The plugin's section, or a note on why it failed: an error must not end a run that may have taken days."""
    try:
        section = item.make(*of)
        if section is None:
            return None
        if not isinstance(section, Section):
            raise TypeError(f"expected a rlfactory_core.reporting.Section or None, got {section!r}")
        f"{section.title}{section.html}".encode()  # raises here if the text cannot be written to the file
    except Exception as error:  # noqa: BLE001 - the boundary to the plugin's code
        why = f"{type(error).__name__}: {error}".encode(errors="replace").decode()
        note = f"The plugin {item.plugin} could not make this section: {why}"
        return Section(item.name, f'<p class="note">{escape(note)}</p>')
    return section
