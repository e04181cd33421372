"""``rlfactory_task``: what inspect_ai calls a task is a dataset, a solver and a scorer, each of which is ours.

inspect_ai asks the model, counts, limits, repeats and logs. The rollout, the environment, the tools and the rewards are
those of a run, so that a score here is a reward there.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import anyio
from inspect_ai import Task, task
from inspect_ai import model as im
from inspect_ai._util.error import PrerequisiteError
from inspect_ai.dataset import MemoryDataset
from inspect_ai.dataset import Sample as Row
from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.tool import ToolCall as InspectCall
from inspect_ai.tool import ToolInfo, ToolParams
from inspect_ai.util import LimitExceededError

from rlfactory_core import Message, Sample, ToolSpec
from rlfactory_core.clients import ServerModel
from rlfactory_core.errors import BackendError, RlfactoryError, UsageError
from rlfactory_core.protocols import Request, Sampled
from rlfactory_core.rewards import accepted_answers, last_answer
from rlfactory_core.runner import TaskBench
from rlfactory_core.tasks import TaskRuntime
from rlfactory_core.types import ToolCall

STORED = "rlfactory"  # the key in inspect_ai's store of what the solver leaves to the scorer


@task
def rlfactory_task(plugin: str, split: str = "eval", **config: Any) -> Task:
    """A task of rlfactory: ``inspect eval rlfactory_environments/rlfactory_task -T plugin=search``.

    Args:
        plugin: NAME, DISTRIBUTION:NAME or a file, as for ``--plugin``.
        split: ``eval`` or ``train``.
        config: keys of the configuration of a run, such as ``rollout.max_turns``.

    Raises:
        PrerequisiteError: there is no such plugin, key or data, or an agent of its own plays the task.
    """
    try:
        opened = _OpenedTask(plugin, config)
        if opened.bench.closed.agents is not None:
            raise UsageError(f"{plugin} has a loop of its own (Task.agent), so inspect_ai cannot play its turns.")
        samples = {sample.id: sample for sample in opened.bench.rows(split)}
        if not samples:
            raise UsageError(f"{plugin} has no data for split={split}. Expected train or eval, or -T data.eval=FILE.")
    except RlfactoryError as error:
        raise PrerequisiteError(str(error)) from error

    @solver(name="rlfactory_rollout")
    def rollout() -> Solver:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            return await _play(await opened.runtime(), samples[str(state.sample_id)], state)

        return solve

    rows = [
        Row([*map(_inspected, each.messages)], target=list(accepted_answers(each)) if each.answer else "", id=each.id)
        for each in samples.values()
    ]
    return Task(MemoryDataset(rows, f"{plugin}, {split}"), solver=rollout(), scorer=rewards(), display_name=plugin)


@scorer(name="rlfactory_rewards", metrics={"*": [mean(), stderr()]})
def rewards() -> Scorer:
    """The reward that a run would train on, and each scorer's own, unweighted."""

    async def score(state: TaskState, target: Target) -> Score:
        if (found := state.store.get(STORED)) is None:
            raise ValueError("The rewards need an attempt of the task's own solver. Do not replace it with --solver.")
        return Score(**found)

    return score


class _OpenedTask:
    """A task that is open on the event loop of an evaluation, whose end cancels its keeper, and so closes it."""

    def __init__(self, plugin: str, config: Mapping[str, Any]) -> None:
        overrides = [f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in config.items()]
        self.bench = TaskBench(plugin, overrides)
        self._loop: asyncio.AbstractEventLoop | None = None

    async def runtime(self) -> TaskRuntime:
        """The open task; raises what opening it raises."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            bench = self.bench if self._loop is None else self.bench.again()
            self._loop, self._opened = loop, loop.create_future()
            self._keeper = loop.create_task(self._keep(bench.closed))
        return await asyncio.shield(self._opened)

    async def _keep(self, runtime: TaskRuntime) -> None:
        try:
            self._opened.set_result(await runtime.open())
            await asyncio.Event().wait()
        except Exception as error:  # noqa: BLE001 - the boundary to the samples, each of which raises it
            self._opened.set_exception(error)
        finally:
            await runtime.close()


async def _play(runtime: TaskRuntime, sample: Sample, state: TaskState) -> TaskState:
    """One attempt.

    Raises:
        BackendError: a fault spoilt the attempt: an error for inspect_ai, and no wrong answer.
        LimitExceededError: a limit of inspect_ai's ended the attempt, which is scored as far as it came.
    """
    state.store.set(STORED, {"value": math.nan, "explanation": "The attempt was cancelled, as by a limit of time."})
    model = _InspectModel(state)
    attempt = runtime.play(sample, model, attempts=1, temperature=0.0, seed=state.epoch, session=state.uuid)
    playing = asyncio.ensure_future(attempt)  # outside of inspect_ai's scopes, which would cancel its clean-up as well
    try:
        (played,) = (await asyncio.shield(playing)).trajectories
    finally:
        playing.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait({playing})
    if fault := next((fault for fault in played.faults if fault.masks), None):
        raise BackendError(f"The attempt is lost, and has no score: {fault.source}: {fault.message}")
    assert played.score is not None
    reasons = [reason for verdict in played.score.verdicts.values() for reason in verdict.reasons]
    value = {"reward": played.reward, **played.score.components}
    state.store.set(STORED, {"value": value, "answer": last_answer(played), "explanation": "\n".join(reasons) or None})
    if model.exceeded is not None:
        raise model.exceeded
    return state


class _InspectModel(ServerModel):
    """The model that inspect_ai evaluates; the conversation is that of inspect_ai's state.

    A limit of inspect_ai's ends the attempt as a full context does; ``exceeded`` is its error.
    """

    def __init__(self, state: TaskState) -> None:
        self.exceeded: LimitExceededError | None = None
        self._state, self._known = state, 0  # messages of the state that are those of the attempt

    async def answer(self, request: Request) -> Sampled | None:
        """See `protocols.Model`; raises what inspect_ai's model raises."""
        state, tools = self._state, [_tool_info(tool) for tool in request.tools]
        try:
            state.messages = [*state.messages[: self._known], *map(_inspected, request.messages[self._known :])]
            config = im.GenerateConfig(max_tokens=request.params.max_tokens)
            state.output = output = await im.get_model().generate(state.messages, tools, config=config)
            state.messages.append(output.message)
        except LimitExceededError as error:
            self.exceeded = error
            return None
        self._known = len(state.messages)
        calls = tuple(map(_our_call, output.message.tool_calls or ()))
        message, usage = Message("assistant", output.message.text, tool_calls=calls), output.usage or im.ModelUsage()
        full = output.stop_reason in ("max_tokens", "model_length")
        read = usage.total_tokens - usage.output_tokens
        return Sampled(message, "length" if full else "stop", read, usage.output_tokens)


def _our_call(call: InspectCall) -> ToolCall:
    arguments = None if call.parse_error else call.arguments
    return ToolCall(call.id, call.function, json.dumps(call.arguments), arguments, call.parse_error)


def _inspected(message: Message) -> im.ChatMessage:
    """A message in inspect_ai's type."""
    if message.role == "tool":
        return im.ChatMessageTool(content=message.content, tool_call_id=message.tool_call_id, function=message.name)
    if message.role == "assistant":
        calls = [InspectCall(each.id, each.name, dict(each.arguments or {}), each.error) for each in message.tool_calls]
        return im.ChatMessageAssistant(content=message.content, tool_calls=calls or None)
    return (im.ChatMessageSystem if message.role == "system" else im.ChatMessageUser)(content=message.content)


def _tool_info(tool: ToolSpec) -> ToolInfo:
    """A tool in inspect_ai's type. What that leaves out of the arguments' JSON schema stands in the description."""
    parameters, description = ToolParams(**tool.parameters), tool.description
    if not _keeps(parameters.model_dump(exclude_none=True), tool.parameters):
        description += f"\n\nThe arguments' JSON schema: {json.dumps(tool.parameters, ensure_ascii=False)}"
    return ToolInfo(name=tool.name, description=description, parameters=parameters)


def _keeps(kept: Any, schema: Any) -> bool:
    """Whether all of a schema but titles was kept."""
    if isinstance(schema, Mapping):
        rest = {key: value for key, value in schema.items() if key != "title" or isinstance(value, dict)}
        return all(key in kept and _keeps(kept[key], value) for key, value in rest.items())
    if isinstance(schema, Sequence) and not isinstance(schema, str):
        return len(kept) == len(schema) and all(map(_keeps, kept, schema))
    return bool(kept == schema)
