"""The default environment: tools around a sample, no state of its own."""

from __future__ import annotations

from collections.abc import Callable

from rlfactory_core.protocols import EnvStart, EnvStep, ToolManager
from rlfactory_core.tool_context import ToolContext
from rlfactory_core.types import FaultKind, Message, Sample, StopReason, ToolResult


def has_answer_tag(content: str) -> bool:
    """Whether a whole ``<answer>…</answer>`` stands in the text."""
    start = content.find("<answer>")
    return start >= 0 and "</answer>" in content[start:]


class ToolEnv:
    """Runs the calls of each turn through the tool manager; a turn without calls ends the episode.

    An infra fault ends it too: the trajectory is left out of the update, so going on is pointless. How many calls a
    trajectory may make is the rollout's affair.

    Args:
        final_answer: tells from a turn's content whether it answers (``FINAL_ANSWER``) or just stops calling
            (``NO_TOOL_CALL``).
    """

    def __init__(
        self,
        sample: Sample,
        manager: ToolManager,
        context: ToolContext,
        *,
        final_answer: Callable[[str], bool] = has_answer_tag,
    ) -> None:
        self._sample = sample
        self._manager = manager
        self._context = context
        self._final_answer = final_answer

    async def start(self) -> EnvStart:
        return EnvStart(self._sample.messages, self._manager.specs)

    async def step(self, message: Message) -> EnvStep:
        if not message.tool_calls:
            answered = self._final_answer(message.content)
            return EnvStep(stop=StopReason.FINAL_ANSWER if answered else StopReason.NO_TOOL_CALL)
        results = await self._manager.invoke(message.tool_calls, self._context)
        failed = any(result.fault is FaultKind.INFRA for result in results)
        return EnvStep(
            messages=tuple(map(_observation, results)), stop=StopReason.FAULT if failed else None, results=results
        )

    async def close(self) -> None:
        """The manager outlives the episode."""


def _observation(result: ToolResult) -> Message:
    return Message("tool", result.content, tool_call_id=result.call_id, name=result.name)
