"""A gateway's conversation without a server, and requests in OpenAI's form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from conversations import CHAT, LIMITS, RecordingSampler, episode
from rlfactory_agents.conversation import Conversation
from rlfactory_agents.exchange import ModelAnswer
from rlfactory_agents.past import Past
from rlfactory_agents.protocols.chat_completions import ChatCompletions

from rlfactory_core.rollout import RolloutLimits, TokenModel


class Asked:
    """A conversation whose requests are OpenAI's chat completions."""

    def __init__(self, script: Sequence[str] | Callable[[int], str], limits: RolloutLimits = LIMITS) -> None:
        self.sampler = RecordingSampler(script)
        self.conversation = Conversation(episode(limits), TokenModel(CHAT, self.sampler))

    async def answers(self, *messages: dict[str, Any], **body: Any) -> tuple[ModelAnswer, ...]:
        return await self.conversation.answer(ChatCompletions().read({"messages": list(messages), **body}, Past()))

    async def ask(self, *messages: dict[str, Any], **body: Any) -> dict[str, Any]:
        """The assistant message of the answer, as an agent puts it into its history."""
        return wire(*await self.answers(*messages, **body))

    @property
    def forks(self) -> list[str]:
        return [turn.fork for turn in self.conversation.turns]

    @property
    def rows(self) -> list[int]:
        return [turn.row for turn in self.conversation.turns]


def wire(answer: ModelAnswer) -> dict[str, Any]:
    message = answer.message
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments_text}}
        for call in message.tool_calls
    ]
    return {"role": "assistant", "content": message.content, **({"tool_calls": calls} if calls else {})}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def system(text: str) -> dict[str, Any]:
    return {"role": "system", "content": text}


def result(said: dict[str, Any], text: str, index: int = 0) -> dict[str, Any]:
    """A tool's result for a call of an assistant message."""
    return {"role": "tool", "tool_call_id": said["tool_calls"][index]["id"], "content": text}
