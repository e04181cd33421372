"""An attempt: the user's turns one after the other, calls in the package's simulators, functions offered late."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from rlfactory_benchmarks.bfcl.data import Entry
from rlfactory_benchmarks.bfcl.official import official
from rlfactory_core.protocols import EnvStart, EnvStep
from rlfactory_core.types import FaultKind, Message, StopReason, ToolCall, ToolResult

__all__ = ["HISTORY", "Conversation"]

HISTORY = "bfcl"  # in the info of a trajectory that has reached its end: the calls of each step of each turn
_FAILED = "Error during execution: "  # how the result of a call begins that raises


class Conversation:
    """An `Env`. A question ends with the first message: the leaderboard runs none of its calls.

    As in the package's harness, a message without calls ends a turn of a conversation, and 21 messages with calls all.
    """

    def __init__(self, question: Entry) -> None:
        self._question, self._tools = question, question.shown
        self._turns: list[list[list[str]]] = [[]]
        self._open = ExitStack()
        self._name = self._open.enter_context(official().simulators())

    async def start(self) -> EnvStart:
        return EnvStart(self._question.turns[0], self._tools)

    async def step(self, message: Message) -> EnvStep:
        if message.tool_calls and self._question.conversation:
            return self._run(message.tool_calls)
        number = len(self._turns)
        if number == len(self._question.turns):
            return EnvStep(stop=StopReason.ENV_DONE, info={HISTORY: self._turns} if self._question.conversation else {})
        self._turns.append([])
        if (late := self._question.late.get(number)) is None:
            return EnvStep(self._question.turns[number])
        self._tools = (*self._tools, *late)
        added = official().handling.DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_FC
        return EnvStep((Message("user", added),), tools=self._tools)

    async def close(self) -> None:
        self._open.close()

    def _run(self, calls: Sequence[ToolCall]) -> EnvStep:
        code, row = official(), self._question.row
        readable = [call for call in calls if call.arguments is not None]
        texts = code.handling.convert_to_function_call([{call.name: dict(call.arguments or {})} for call in readable])
        self._turns[-1].append(texts)
        found, _ = code.execution.execute_multi_turn_func_call(
            texts, row["initial_config"], row["involved_classes"], self._name, row["id"],
            long_context="long_context" in self._question.category,
        )  # fmt: skip
        contents = iter(found)
        results = tuple(
            _result(call, f"{_FAILED}{call.error}" if call.arguments is None else next(contents)) for call in calls
        )
        over = len(self._turns[-1]) > code.handling.MAXIMUM_STEP_LIMIT
        return EnvStep(tuple(each.message for each in results), StopReason.MAX_TURNS if over else None, results=results)


def _result(call: ToolCall, text: str) -> ToolResult:
    fault = FaultKind.POLICY if text.startswith(_FAILED) else None
    fault = FaultKind.TOOL if text.startswith('{"error"') else fault  # a call that says no
    return ToolResult(call.id, call.name, text, fault, size_bytes=len(text.encode()))
