"""A one-file plugin with a section of its own, a report section and an engine that trains nothing.

The section reaches the task before it is open, its reward, and the engine; each writes down what it saw.
"""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Iterable, Mapping
from typing import Any

from rlfactory_core import RunConfig, Sample, Score, Section, Task, Trajectory, hookimpl
from rlfactory_core.context import RunContext
from rlfactory_core.engines.base import EngineRun
from rlfactory_core.errors import RunStopped
from rlfactory_core.reporting import Chart, Line, RunData
from rlfactory_core.reporting import ReportSection as Part
from rlfactory_core.tasks.opening import open_tasks


class Greeting(Section):
    word: str = "hello"
    times: int = 1


class Politeness:
    async def open(self, task: Task) -> None:
        self.greeting = task.run.sections["greeting"]

    async def close(self) -> None: ...

    async def score(self, trajectory: Trajectory) -> Score:
        return Score(float(self.greeting.times))


class Greets(Task):
    class Config(Section):
        report: str = ""  # what becomes of the report section

    rewards = {"politeness": 1.0}

    def samples(self, split: str) -> Iterable[Sample]:
        return [Sample("1", self.run.sections["greeting"].word, "x")]


class Still:
    """Opens the task as a worker does, and notes who sees which greeting."""

    def prepare(self, config: RunConfig) -> RunConfig:
        return config

    def train(self, run: EngineRun) -> dict[str, Any]:
        run.folder.append_metrics(1, {"politeness": 0.5})
        if run.config.train.steps == 13:
            raise RunStopped("Stopped.")
        return {
            "plugin": run.config.plugin,
            "steps": run.config.train.steps,
            "eval": {},
            "seen": asyncio.run(_seen(run)),
        }

    def evaluate(self, run: EngineRun) -> dict[str, Any]:
        return {"reward": 1.0}


async def _seen(run: EngineRun) -> Mapping[str, Any]:
    (sample,) = run.tasks.samples("train")
    async with open_tasks(run.tasks, run.progress, RunContext(run.folder.path)) as tasks:
        scorer, _ = tasks.only.scorers["politeness"]
        carried = pickle.loads(pickle.dumps(tasks.only.task.run))
    return {
        "engine": run.sections["greeting"].model_dump(),
        "samples": sample.prompt,
        "scorer": scorer.greeting.times,
        "folder": str(carried.folder),
        "carried": carried.sections["greeting"].model_dump(),
    }


def politeness(run: RunData) -> Part | None:
    wish = run.config["task"].get("report")
    if wish == "raises":
        raise ValueError("<b>no</b> \udcff politeness")
    if wish == "misses":
        import a_package_that_is_not_there  # type: ignore[import-not-found]  # noqa: F401
    if wish:
        return {"none": None, "text": "a text", "broken": Part("Politeness", "\udcff")}[wish]  # type: ignore[return-value]
    return Part.of_charts("Politeness", Chart("Bows", [Line("bows", run.series("politeness"))]), Chart("None", []))


@hookimpl
def rlfactory_tasks(register: Any) -> None:
    register("greets", Greets)


@hookimpl
def rlfactory_reward_scorers(register: Any) -> None:
    register("politeness", Politeness)


@hookimpl
def rlfactory_engines(register: Any) -> None:
    register("still", Still)


@hookimpl
def rlfactory_config_sections(register: Any) -> None:
    register("greeting", Greeting)


@hookimpl
def rlfactory_report_sections(register: Any) -> None:
    register("politeness", politeness)
