"""Several runs beside each other: curves, configuration, and answers to the same question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rlfactory_core.errors import UsageError
from rlfactory_core.reporting import Chart, RunData, RunFolder, eval_value, success_metric
from rlfactory_core.reporting import Line as Curve
from rlfactory_core.reporting.progress import count_text, number_label
from rlfactory_ui import trajectory_files
from rlfactory_ui.pages import kept_images, page, site_of
from rlfactory_ui.trajectory_files import Line

MOST = 6  # runs: as many as there are colours
_SHOWN = ("eval/{metric}", "{metric}", "reward", "tool_calls", "sampled_tokens", "entropy", "step_s")
_QUESTIONS = 50
AFTER = "eval-after"
FILES = ("eval-before", AFTER)


async def compared(request: Request) -> Response:
    site = site_of(request)
    names = list(dict.fromkeys(request.query_params.getlist("run")))
    every = [entry for entry in site.catalogue.entries() if entry.metric]
    if len(names) > MOST:
        raise UsageError(f"Up to {MOST} runs can be compared; got {len(names)}.")
    runs = [site.run(name) for name in names]
    data = [run.data() for run in runs]
    asked = Asked.read({name: site.catalogue.folder(name) for name in names})
    metric = success_metric(next((run.summary for run in data if run.summary.get("success")), {}))
    return page(
        request,
        "compare.jinja",
        names=names,
        every=every,
        metric=metric,
        results=asked.rows(metric, data),
        difference=asked.difference(),
        charts=[chart.html() for chart in _charts(data, metric) if chart.drawn],
        differences=_differences([run.config for run in runs]),
        **_answers(request, asked),
    )


def _charts(runs: Sequence[RunData], metric: str) -> list[Chart]:
    charts = []
    for pattern in _SHOWN:
        key = pattern.format(metric=metric)
        title = f"Held-out {number_label(metric)}" if key.startswith("eval/") else number_label(key).capitalize()
        sparse = key.startswith("eval/")
        lines = [Curve(run.name, run.series(key), smooth=not sparse, dots=sparse) for run in runs]
        charts.append(Chart(title, lines, low=None if key in ("reward", "entropy") else 0.0))
    return charts


def _differences(configs: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[str]]]:
    """The keys whose values are not the same in all runs, and these values."""
    keyed = [dict(flat(config)) for config in configs]
    keys = dict.fromkeys(key for one in keyed for key in one)
    rows = [(key, ["none" if one.get(key) is None else str(one[key]) for one in keyed]) for key in keys if key != "out"]
    return [(key, values) for key, values in rows if len(set(values)) > 1]


def flat(value: Any, path: str = "") -> list[tuple[str, Any]]:
    """The dotted keys of a configuration, with their values."""
    if isinstance(value, Mapping) and value:
        return [pair for key, each in value.items() for pair in flat(each, f"{path}.{key}" if path else str(key))]
    return [(path, value)]


@dataclass(frozen=True, slots=True)
class Asked:
    """The held-out questions of several runs, by the prompt: the same sample id may stand for other data."""

    before: Mapping[str, Mapping[str, Line]]  # run -> prompt -> its greedy attempt before training
    after: Mapping[str, Mapping[str, Line]]

    @classmethod
    def read(cls, folders: Mapping[str, RunFolder]) -> Asked:
        return cls(*({name: _questions(folder, file) for name, folder in folders.items()} for file in FILES))

    @property
    def shared(self) -> list[str]:
        """The prompts that all runs were asked after training, in the order of the first."""
        first, *others = [*self.after.values()] or [{}]
        return [asked for asked in first if all(asked in other for other in others)]

    def difference(self) -> str:
        """In words, where not all runs were asked the same; empty if they were, or if it is not known."""
        counts = {name: len(asked) for name, asked in self.after.items() if asked}
        shared = self.shared
        if len(counts) < 2 or len(counts) < len(self.after):
            return ""
        judged = sum(len({lines[asked].answer for lines in self.after.values()}) > 1 for asked in shared)
        texts = []
        if any(count != len(shared) for count in counts.values()):
            own = ", ".join(f"{name} {count:,}" for name, count in counts.items())
            texts.append(f"The held-out questions differ ({own}; {len(shared):,} in all runs).")
        if judged:
            texts.append(f"{count_text(judged, 'shared question')} with other accepted answers.")
        why = "Only results on the same questions, with the same answers, compare."
        return " ".join([*texts, why]) if texts else ""

    def rows(self, metric: str, runs: Sequence[RunData]) -> list[dict[str, Any]]:
        """Each run's held-out success on its own questions, and on those that all runs were asked if they differ."""
        shared = self.shared if self.difference() else []
        return [
            {
                "run": run.name,
                "before": eval_value(run.summary, "before", metric),
                "after": eval_value(run.summary, "after", metric),
                "shared_before": _mean(self.before[run.name], shared, metric),
                "shared_after": _mean(self.after[run.name], shared, metric),
            }
            for run in runs
        ]


def _questions(folder: RunFolder, file: str) -> dict[str, Line]:
    found: dict[str, Line] = {}
    for line in trajectory_files.lines(folder, file) if file in trajectory_files.files(folder) else ():
        found.setdefault(line.asked, line)
    return found


def _mean(lines: Mapping[str, Line], asked: Sequence[str], metric: str) -> float | None:
    values = [lines[each].scores[metric] for each in asked if each in lines and metric in lines[each].scores]
    return sum(values) / len(values) if values else None


def _answers(request: Request, asked: Asked) -> dict[str, Any]:
    """The same held-out question as each run answers it after training."""
    catalogue, shared = site_of(request).catalogue, asked.shared[:_QUESTIONS]
    wanted = request.query_params.get("asked", "")
    wanted = wanted if wanted in shared else next(iter(shared), "")
    answers = []
    for name, lines in asked.after.items() if wanted else ():
        folder = catalogue.folder(name)
        stored = trajectory_files.trajectory(folder, AFTER, lines[wanted].number)[1]
        answers.append((name, stored, kept_images(folder)))
    first = next(iter(asked.after.values()), {})
    questions = [(each, first[each].question) for each in shared]
    return {"questions": questions, "asked": wanted, "answers": answers}


ROUTES = [Route("/compare", compared)]
