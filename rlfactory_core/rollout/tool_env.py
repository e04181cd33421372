"""The default environment, in which the model can only call tools and answer."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from rlfactory_core.context import ToolContext
from rlfactory_core.protocols import EnvStart, EnvStep, ToolManager
from rlfactory_core.tiny import ANSWER_CLOSE, ANSWER_OPEN
from rlfactory_core.types import FaultKind, Message, Sample, StopReason


def has_answer_tag(content: str) -> bool:
    """Whether the text has a closed ``<answer>…</answer>``."""
    return ANSWER_CLOSE in content.partition(ANSWER_OPEN)[2]


class ToolEnv:
    """Makes the calls of each turn with the tool manager; a turn without calls ends the episode.

    An infra fault ends it, too, because it masks the trajectory. The rollout limits the number of calls.

    Args:
        final_answer: whether the content of a turn without calls is a final answer (``FINAL_ANSWER``), else the
            episode ends with ``NO_TOOL_CALL``.
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

    @property
    def deadline_s(self) -> float | None:
        """See `protocols.Env`: each tool has a time limit. A subclass's own start or step has the run's limit."""
        is_own = type(self).start is not ToolEnv.start or type(self).step is not ToolEnv.step
        return None if is_own else inf

    async def start(self) -> EnvStart:
        return EnvStart(self._sample.messages, self._manager.specs)

    async def step(self, message: Message) -> EnvStep:
        if not message.tool_calls:
            answered = self._final_answer(message.content)
            return EnvStep(stop=StopReason.FINAL_ANSWER if answered else StopReason.NO_TOOL_CALL)
        results = await self._manager.invoke(message.tool_calls, self._context)
        failed = any(result.fault is FaultKind.INFRA for result in results)
        seen = tuple(each.message for each in results)
        return EnvStep(messages=seen, stop=StopReason.FAULT if failed else None, results=results)

    async def close(self) -> None:
        """The manager stays open for other episodes."""
