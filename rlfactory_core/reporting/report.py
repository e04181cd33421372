"""``report.html``: one self-contained page about a run, made from its folder alone.

The page is a list of sections; each is a function of the run's data, so a plugin can add its own (`plugin_sections`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlfactory_core.reporting.charts import Chart, Line
from rlfactory_core.reporting.folder import RunFolder, write_atomic
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
)

if TYPE_CHECKING:
    from jinja2 import Environment


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page. ``html`` is trusted: escape what comes from data or models."""

    title: str
    html: str

    @classmethod
    def of_charts(cls, title: str, *charts: Chart) -> Section | None:
        """Charts side by side; those without a point are left out, and None is left of nothing."""
        drawn = [html for chart in charts if (html := chart.html())]
        return cls(title, f'<div class="charts">{"".join(drawn)}</div>') if drawn else None

    @classmethod
    def of_table(
        cls, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], note: str = ""
    ) -> Section | None:
        """A table of texts, which are escaped here; None where it has no rows.

        Args:
            columns: headings; the first is that of what each row is about.
            rows: as many cells each.
            note: a line below it.
        """
        return cls(title, _macro("table", columns, rows, note)) if rows else None


SectionMaker = Callable[[RunData], Section | None]
"""Gives None where the run has nothing to show for it."""


def write_report(folder: RunFolder, extra: Iterable[SectionMaker] = ()) -> Path:
    """Write ``report.html`` with the standard sections and ``extra`` ones behind them; returns its path.

    Works on a run that was stopped at any moment.

    Raises:
        DataError: the folder's files are damaged.
        CheckpointError: the page cannot be written.
    """
    run = RunData.read(folder)
    made = (make(run) for make in (results, learning, examples, behaviour, speed, update, *extra))
    page = (
        _environment()
        .get_template("report.jinja")
        .render(
            run=run,
            facts=_facts(run),
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
    held_out = [Line("overall", run.series(f"eval/{metric}"), smooth=False, dots=True)]
    held_out += [
        Line(number_label(name.rsplit("/", 1)[1]), run.series(name), smooth=False, dots=True)
        for name in run.names(f"eval/{metric}/")
    ]
    trained = [Line("overall", run.series(metric))]
    trained += [Line(number_label(name.split("/", 1)[1]), run.series(name)) for name in run.names(f"{metric}/")]
    return Section.of_charts(
        "Learning",
        *_rewards(run),
        Chart(f"Held-out {label}", held_out, "greedy, on questions that are never trained on", high=1.0),
        Chart("Reward", [Line("reward", run.series("reward"))], "mean of a step's trajectories", low=None),
        Chart(f"{label.capitalize()} in training", trained, "sampled, mean of a step's trajectories", high=1.0),
        Chart("Groups without a gradient", [Line("groups", run.series("equal_groups"))], "all attempts scored alike"),
    )


def _rewards(run: RunData) -> list[Chart]:
    """Each reward beside the others: what a judge gives, for one, and the truth, whatever weight that has."""
    if len(run.rewards) < 2:
        return []
    names = {name: component_metric(name) for name in run.rewards}
    held_out = [
        Line(number_label(name), run.series(f"eval/{key}"), smooth=False, dots=True) for name, key in names.items()
    ]
    trained = [Line(number_label(name), run.series(key)) for name, key in names.items()]
    return [
        Chart(
            "Rewards, held out",
            held_out,
            "each unweighted, greedy, on questions that are never trained on",
            high=_one(held_out),
        ),
        Chart(
            "Rewards in training",
            trained,
            "each unweighted, sampled, mean of a step's trajectories",
            high=_one(trained),
        ),
    ]


def _one(lines: Sequence[Line]) -> float | None:
    """The upper end of the axis, where all lie on [0, 1]."""
    return 1.0 if all(0.0 <= value <= 1.0 for line in lines for _, value in line.points) else None


def behaviour(run: RunData) -> Section | None:
    """What the trajectories look like: calls, turns, lengths, ends, faults."""
    stops = [Line(number_label(name.split("/", 1)[1]), _if_any(run.series(name))) for name in run.names("stop/")]
    faults = [
        Line(name.split("/", 1)[1], _if_any(run.series(name)), smooth=False)
        for name in run.names("faults/")
        if name.count("/") == 1
    ]
    masked = Line("masked trajectories", _if_any(run.series("masked")), smooth=False)
    return Section.of_charts(
        "Behaviour",
        Chart("Tool calls", [Line("tool calls", run.series("tool_calls"))], "a trajectory"),
        Chart("Turns", [Line("turns", run.series("turns"))], "a trajectory"),
        Chart("Length", [Line("sampled tokens", run.series("sampled_tokens"))], "sampled tokens a trajectory"),
        Chart("How trajectories end", stops, "share of the step's trajectories", high=1.0),
        Chart("Faults", [*faults, masked], "a step; infra and verifier faults mask a trajectory out of the update"),
    )


def speed(run: RunData) -> Section | None:
    """Throughput and where the time goes."""
    rates = [Line("sampled", run.series("sampled_tokens_s")), Line("trained", run.series("trained_tokens_s"))]
    times = [Line(name, run.series(f"{name}_s")) for name in ("step", "rollout", "update")]
    return Section.of_charts(
        "Speed",
        Chart("Throughput", rates, "tokens a second, while sampling and while training"),
        Chart("Time", times, "seconds a step"),
    )


def update(run: RunData) -> Section | None:
    """The optimizer's health."""
    shown = (
        ("loss", "", None),
        ("grad_norm", "before clipping", 0.0),
        ("entropy", "nats a token", 0.0),
        ("kl", "to the start model", None),
        ("clip_fraction", "share of tokens whose ratio is clipped", 0.0),
        ("mismatch_kl", "sampler against trainer, at the same weights", None),
        ("lr", "", 0.0),
        ("staleness", "updates that the sampling weights lag behind", 0.0),
        ("skipped", "steps whose gradient was not finite or exploded", 0.0),
    )
    charts = []
    for name, note, low in shown:
        points = run.series(name)
        constant = len({value for _, value in points}) < 2
        if not constant:  # a flat line is said by the configuration
            charts.append(
                Chart(number_label(name).capitalize().replace("Kl", "KL"), [Line(name, points)], note, low=low)
            )
    return Section.of_charts("Update", *charts)


def examples(run: RunData) -> Section | None:
    """Sample trajectories as chats, before and after."""
    return Section("Sample trajectories", _macro("examples", run.pairs)) if run.pairs else None


def _if_any(points: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    return points if any(value for _, value in points) else ()


def _facts(run: RunData) -> list[tuple[str, str]]:
    """The run's particulars: label and value."""
    merged = {**{key: run.config.get(key) for key in ("plugin", "engine", "model", "seed")}, **run.summary}
    facts = [(key, str(merged[key])) for key in ("plugin", "engine", "model", "seed") if merged.get(key) is not None]
    last_step = max((row.get("step") or 0 for row in run.metrics), default=0)
    facts.append(("steps", f"{merged.get('steps', last_step):,.0f}"))
    if merged.get("seconds") is not None:
        facts.append(("time", seconds_text(merged["seconds"])))
    tokens = [(key, merged.get(key)) for key in ("sampled_tokens", "trained_tokens")]
    facts += [(number_label(key), number_text(count)) for key, count in tokens if count is not None]
    if run.summary:
        facts.append(("faults", faults_text(run.summary) or "none"))
    return facts


def _macro(name: str, *arguments: Any) -> str:
    return str(getattr(_environment().get_template("sections.jinja").module, name)(*arguments))


def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("rlfactory_core.reporting"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters.update(words=number_label, number=number_text, seconds=seconds_text)
    return environment
