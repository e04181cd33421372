"""BFCL's single-turn categories as a task, for `pretrained_learns.py`: one turn, whose calls its own checker compares.

Data and checker are those of the package ``bfcl-eval`` (Apache-2.0), which ``pip install --no-deps bfcl-eval`` brings
without its clients of other models. What is evaluated is never trained on: a quarter of the questions, by a hash of
their words, since categories share some.
"""

from __future__ import annotations

import json
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from types import ModuleType, SimpleNamespace
from typing import Any

from rlfactory_core import Message, Sample, Score, Task, ToolContext, ToolSpec, Trajectory, hookimpl
from rlfactory_core.protocols import Env, EnvStart, EnvStep, ToolManager
from rlfactory_core.tiny import call
from rlfactory_core.types import StopReason

CATEGORIES = ("simple_python", "multiple", "parallel")
LONGEST = 1800  # characters of a question's functions; longer ones, one question in twenty, are left out to save time
TYPES = {"dict": "object", "float": "number", "tuple": "array"}  # names in BFCL's schemas -> JSON schema's
MODEL = "run"  # the name under which the checker finds that our functions have underscores instead of dots


def checker() -> Any:
    """BFCL's ``ast_checker`` and the language Python.

    The checker asks a table of all models that BFCL knows, with a client for each, whether names lose their dots.
    """
    table = ModuleType("bfcl_eval.constants.model_config")
    table.MODEL_CONFIG_MAPPING = {MODEL: SimpleNamespace(underscore_to_dot=True)}  # type: ignore[attr-defined]
    sys.modules.setdefault(table.__name__, table)
    from bfcl_eval.constants.enums import Language
    from bfcl_eval.eval_checker.ast_eval.ast_checker import ast_checker

    return lambda functions, calls, truth, category: ast_checker(
        functions, calls, truth, Language.PYTHON, category, MODEL
    )


def rows(category: str) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """The questions of a category, each with the calls that are accepted."""
    data = files("bfcl_eval") / "data"
    name = f"BFCL_v4_{category}.json"
    truths = {row["id"]: row["ground_truth"] for row in _lines(data / "possible_answer" / name)}
    for row in _lines(data / name):
        yield row, truths[row["id"]]


def _lines(file: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


def tool_of(function: Mapping[str, Any]) -> ToolSpec:
    """A function as the model sees it: without dots in its name, with a schema of JSON schema's types."""
    return ToolSpec(spelt(function["name"]), function["description"], schema(function["parameters"]))


def spelt(name: str) -> str:
    return name.replace(".", "_")


def schema(value: Any) -> Any:
    if isinstance(value, list):
        return [schema(each) for each in value]
    if not isinstance(value, dict):
        return value
    found = {key: schema(each) for key, each in value.items() if key != "optional"}
    if isinstance(kind := found.get("type"), str):
        found["type"] = TYPES.get(kind, kind)
        if kind == "any":
            del found["type"]
    return found


def first(accepted: Any) -> Any:
    """The first accepted value; those within an object are lists of accepted ones again."""
    value = next(each for each in accepted if each != "")
    if isinstance(value, dict):
        return {key: first(each) for key, each in value.items() if each and each[0] != ""}
    return value


class OneTurn:
    """Shows the functions, and ends with the first turn: BFCL runs none of them."""

    def __init__(self, sample: Sample) -> None:
        self._sample = sample

    async def start(self) -> EnvStart:
        return EnvStart(self._sample.messages, tuple(map(tool_of, self._sample.metadata["functions"])))

    async def step(self, message: Message) -> EnvStep:
        return EnvStep(stop=StopReason.ENV_DONE)

    async def close(self) -> None:
        """Nothing is open."""


class RightCalls:
    """1 if BFCL's checker accepts the calls of the turn."""

    name = "right_calls"

    def __init__(self) -> None:
        self._check = checker()

    async def score(self, trajectory: Trajectory) -> Score:
        about = trajectory.sample.metadata
        calls = [call for turn in trajectory.turns for call in turn.message.tool_calls]
        if not calls or any(each.error for each in calls):
            return Score(0.0)
        written = [{each.name: dict(each.arguments or {})} for each in calls]
        found = self._check(about["functions"], written, about["truth"], trajectory.sample.slice)
        return Score(float(found["valid"]))


class KnownFunctions:
    """1 if the turn calls something, and only functions that it was shown, in the right form."""

    name = "known_functions"

    async def score(self, trajectory: Trajectory) -> Score:
        calls = [call for turn in trajectory.turns for call in turn.message.tool_calls]
        names = {spelt(function["name"]) for function in trajectory.sample.metadata["functions"]}
        return Score(float(bool(calls) and all(each.error is None and each.name in names for each in calls)))


class Bfcl(Task):
    """One question, functions, and the calls that answer it."""

    rewards = {"right_calls": 1.0, "known_functions": 0.2}

    def samples(self, split: str) -> Iterable[Sample]:
        for category in CATEGORIES:
            for row, truth in rows(category):
                held_out = zlib.crc32(row["question"][0][-1]["content"].encode()) % 4 == 0
                if held_out != (split == "eval") or len(json.dumps(row["function"])) > LONGEST:
                    continue
                about = {"functions": row["function"], "truth": truth}
                prompt = tuple(Message(each["role"], each["content"]) for each in row["question"][0])
                yield Sample(row["id"], prompt, json.dumps(truth), about, split, slice=category)

    def make_env(self, sample: Sample, manager: ToolManager, context: ToolContext) -> Env:
        return OneTurn(sample)

    def solve(self, sample: Sample, messages: Sequence[Message]) -> Message:
        calls = []
        for truth in sample.metadata["truth"]:
            ((name, accepted),) = truth.items()
            arguments = {key: first(values) for key, values in accepted.items() if values and values[0] != ""}
            calls.append(call(spelt(name), **arguments))
        return Message("assistant", "", tool_calls=tuple(calls))


@hookimpl
def rlfactory_tasks(register: Any) -> None:
    register("bfcl_task", Bfcl)


@hookimpl
def rlfactory_reward_scorers(register: Any) -> None:
    register("right_calls", RightCalls)
    register("known_functions", KnownFunctions)
