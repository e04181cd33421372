"""The interface of a model that answers in messages, whatever serves it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from rlfactory_core.types import Message, SamplingParams, ToolSpec

__all__ = ["ChatClient", "Completion"]


@dataclass(frozen=True, slots=True)
class Completion:
    """One assistant turn from a server. Token counts are estimated if the server does not report them."""

    message: Message
    finish: Literal["stop", "length"] = "stop"
    prompt_tokens: int = 0
    sampled_tokens: int = 0


class ChatClient(Protocol):
    """A model that writes assistant turns."""

    async def complete(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], params: SamplingParams
    ) -> Completion | None:
        """The next turn of a conversation; None if the conversation exceeds the model's context.

        Raises:
            BackendError: there is no answer in time, retries included, or it cannot be read.
        """
