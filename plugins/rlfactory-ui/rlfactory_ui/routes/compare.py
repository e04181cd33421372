"""Several runs beside each other: curves, configuration, and answers to the same question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rlfactory_core.errors import UsageError
from rlfactory_core.reporting.charts import Chart, Line
from rlfactory_core.reporting.progress import number_label
from rlfactory_core.reporting.run_data import RunData
from rlfactory_ui import trajectory_files
from rlfactory_ui.pages import kept_images, page, site_of

MOST = 6  # runs: as many as there are colours
_SHOWN = ("eval/{metric}", "{metric}", "reward", "tool_calls", "sampled_tokens", "entropy", "step_s")
_QUESTIONS = 50


async def compared(request: Request) -> Response:
    site = site_of(request)
    names = list(dict.fromkeys(request.query_params.getlist("run")))
    every = [entry for entry in site.catalogue.entries() if entry.metric]
    if len(names) > MOST:
        raise UsageError(f"Up to {MOST} runs can be compared; got {len(names)}.")
    runs = [site.run(name) for name in names]
    data = [run.data() for run in runs]
    return page(
        request,
        "compare.jinja",
        names=names,
        every=every,
        charts=[chart.html() for chart in _charts(data) if chart.drawn],
        differences=_differences([run.config for run in runs]),
        **_answers(request, names),
    )


def _charts(runs: Sequence[RunData]) -> list[Chart]:
    metric = str(next((run.summary["success"] for run in runs if run.summary.get("success")), "exact_match"))
    charts = []
    for pattern in _SHOWN:
        key = pattern.format(metric=metric)
        title = f"Held-out {number_label(metric)}" if key.startswith("eval/") else number_label(key).capitalize()
        sparse = key.startswith("eval/")
        lines = [Line(run.name, run.series(key), smooth=not sparse, dots=sparse) for run in runs]
        charts.append(Chart(title, lines, low=None if key in ("reward", "entropy") else 0.0))
    return charts


def _differences(configs: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[str]]]:
    """The keys whose values are not the same in all runs, and these values."""
    flat = [dict(_flat(config)) for config in configs]
    keys = dict.fromkeys(key for one in flat for key in one)
    rows = [(key, [_text(one.get(key)) for one in flat]) for key in keys if key != "out"]
    return [(key, values) for key, values in rows if len(set(values)) > 1]


def _flat(value: Any, path: str = "") -> list[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        return [pair for key, each in value.items() for pair in _flat(each, f"{path}.{key}" if path else str(key))]
    return [(path, value)]


def _text(value: Any) -> str:
    return "none" if value is None else str(value)


def _answers(request: Request, names: Sequence[str]) -> dict[str, Any]:
    """The same held-out question as each run answers it after training."""
    site, asked = site_of(request), request.query_params.get("sample", "")
    found: dict[str, dict[str, int]] = {}
    questions: dict[str, str] = {}
    for name in names:
        folder = site.catalogue.folder(name)
        if "eval-after" in trajectory_files.files(folder):
            for line in trajectory_files.lines(folder, "eval-after"):
                found.setdefault(line.sample, {}).setdefault(name, line.number)
                questions[line.sample] = line.question
    shared = [sample for sample, by_run in found.items() if len(by_run) == len(names)][:_QUESTIONS]
    sample = asked if asked in found else next(iter(shared), "")
    folders = {name: site.catalogue.folder(name) for name in found.get(sample, {})}
    answers = [
        (name, trajectory_files.trajectory(folders[name], "eval-after", number)[1], kept_images(folders[name]))
        for name, number in found.get(sample, {}).items()
    ]
    return {"samples": [(each, questions[each]) for each in shared], "sample": sample, "answers": answers}


ROUTES = [Route("/compare", compared)]
