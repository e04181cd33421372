"""One request to the model and its answer, in no protocol's own words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from rlfactory_core.types import Message, ToolSpec


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """What an agent asks of the model.

    Args:
        messages: if the last one is the assistant's, the answer continues it.
        max_tokens: of the answer; None: the run's limit alone holds.
        stop: texts at which the content that the agent sees is cut. The model's own tokens are not.
        n: how many answers.
        overridden: fields of the request that the run decides, or that nothing here enforces.
        offered: the tools that a request which continues this one's thread need not send again.
        instructions: how many of the first messages a request that continues this one's answer has to send again.
    """

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    n: int = 1
    overridden: tuple[str, ...] = ()
    instructions: int = 0
    offered: tuple[ToolSpec, ...] = ()

    @property
    def opening(self) -> str:
        """The text that the answer continues; empty: the answer begins anew."""
        last = self.messages[-1]
        return last.content if last.role == "assistant" else ""


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """One assistant turn, as the agent gets it."""

    message: Message
    finish: Literal["stop", "length", "tool_calls"]
    prompt_tokens: int = 0
    sampled_tokens: int = 0
    tokens: Sequence[tuple[str, float]] = field(default=(), repr=False)  # the text and log-prob of each, if known


class RequestError(Exception):
    """A request that gets no answer; each protocol has a form for it.

    Args:
        message: for the agent's author: what, got, expected, what to do.
        status: the HTTP status.
        code: for programs, such as ``context_length_exceeded``.
    """

    def __init__(self, message: str, status: int = 400, code: str = "invalid_request_error") -> None:
        super().__init__(message)
        self.status, self.code = status, code
