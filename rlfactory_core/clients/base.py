"""What a rollout in messages needs of a model, whatever serves it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from rlfactory_core.types import Message, SamplingParams, ToolSpec

__all__ = ["ChatClient", "Completion"]


@dataclass(frozen=True, slots=True)
class Completion:
    """One assistant turn, as a server gives it. Token counts are 0 where the server does not say."""

    message: Message
    finish: Literal["stop", "length"] = "stop"
    prompt_tokens: int = 0
    sampled_tokens: int = 0


class ChatClient(Protocol):
    """Gives assistant turns."""

    async def complete(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], params: SamplingParams
    ) -> Completion | None:
        """The next turn of a conversation; None where the conversation is longer than the model's context.

        Raises:
            BackendError: no answer in time, retries included, or none that can be read.
        """
        ...
