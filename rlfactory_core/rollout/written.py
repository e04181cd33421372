"""A model whose turns are written for it, and an environment whose answers are recorded: how a demonstration is played.

Both are played by the same `rollout` as a policy, so that a demonstration has the ids, rows and masks of an attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from rlfactory_core.errors import ChatFormatError
from rlfactory_core.plugins.attributes import optional_attributes
from rlfactory_core.protocols import ChatFormat, ChatFormatTraits, EnvStart, EnvStep, Request, Sampled
from rlfactory_core.rollout.history import DROPPED_THINKING
from rlfactory_core.types import Message, StopReason, ToolSpec, Trajectory, Turn

Write = Callable[[Request], Message]
"""Gives the next turn of a conversation, such as `Task.solve` or a trace."""


class WrittenModel:
    """A `protocols.Model` whose turns somebody writes; log-probs are 0, since nothing sampled them.

    Args:
        chat: gives the ids of the texts; None: conversations have no ids.
    """

    def __init__(self, write: Write, chat: ChatFormat | None = None) -> None:
        self.chat = chat
        self.too_long: tuple[int, int] | None = None  # the tokens of the first turn that was longer than allowed; those
        self._write = write

    async def answer(self, request: Request) -> Sampled | None:
        """See `protocols.Model`; None, so that the trajectory ends before it, for a turn that is longer than allowed.

        Raises:
            ChatFormatError: the format cannot write the turn, or reads other calls in it.
        """
        message = self._write(request)
        if self.chat is None:
            return Sampled(message)
        ids = written_ids(self.chat, message)
        if len(ids) > request.params.max_tokens:
            self.too_long = self.too_long or (len(ids), request.params.max_tokens)
            return None
        read = self.chat.parse(ids, request.tools)
        if any(each in self.chat.stop_token_ids for each in ids[:-1]):
            raise ChatFormatError(f"the turn {message.content[:80]!r} holds a token that ends a turn.")
        for what, written, found in zip(_PARTS, _parts(message), _parts(read), strict=True):
            if written != found:
                raise ChatFormatError(
                    f"chat format {self.chat.name!r} writes the {what} {written!r:.200} so that it reads "
                    f"{found!r:.200}: a model would learn another turn."
                )
        return Sampled(read, "stop", len(request.ids), len(ids), ids, (0.0,) * len(ids))

    async def release(self, session: str) -> None:
        """Nothing is kept."""


class RecordedEnv:
    """An `Env` that answers each turn with what a trace has behind it; no tool is called.

    Args:
        messages: of the whole conversation, which ends with a turn of the assistant.
    """

    def __init__(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> None:
        self._parts = _between_turns(messages)
        self._tools = tuple(tools)

    async def start(self) -> EnvStart:
        return EnvStart(self._parts[0], self._tools)

    async def step(self, turn: Message) -> EnvStep:
        self._parts = self._parts[1:]
        if len(self._parts) > 1:
            ids = [call.id for call in turn.tool_calls]  # as the chat format reads them, in the order of the results
            results = (replace(each, tool_call_id=key) for key, each in zip(ids, self._parts[0], strict=False))
            return EnvStep(messages=(*results, *self._parts[0][len(ids) :]))
        return EnvStep(stop=StopReason.ENV_DONE if turn.tool_calls else StopReason.NO_TOOL_CALL)

    async def close(self) -> None:
        """Nothing is open."""


def written_text(chat: ChatFormat, message: Message) -> str:
    """A turn as the format writes it, with its stop token.

    Raises:
        ChatFormatError: the format cannot write turns.
    """
    write = optional_attributes(chat, ChatFormatTraits, f"The chat format '{chat.name}'").written
    if write is None:
        raise ChatFormatError(
            f"Chat format '{chat.name}' cannot write turns: it needs a method written(message) -> str, the text "
            "of a turn with its stop token."
        )
    return write(message)


def written_ids(chat: ChatFormat, message: Message) -> tuple[int, ...]:
    """The ids of a turn as a model of the family samples it, with its stop token; see `written_text`."""
    ids = chat.encode(written_text(chat, message))
    if message.reasoning and not chat.parse(ids).reasoning:  # its template has no thinking, which is then a text
        answer = written_text(chat, replace(message, reasoning=""))
        ids = chat.encode(f"<think>\n{message.reasoning}\n</think>\n\n{answer}")
    return ids


def _between_turns(messages: Sequence[Message]) -> list[tuple[Message, ...]]:
    """The prompt, and what follows each turn of the assistant."""
    parts: list[list[Message]] = [[]]
    for message in messages:
        if message.role == "assistant":
            parts.append([])
        else:
            parts[-1].append(message)
    return [tuple(part) for part in parts]


def only_learnt(trajectory: Trajectory, learnt: Sequence[bool]) -> Trajectory:
    """The trajectory with those turns alone; a model sees the others as a part of what it reads.

    Args:
        learnt: for each turn, and for further ones that were not played.
    """
    if all(learnt[: len(trajectory.turns)]):
        return trajectory
    turns: list[Turn] = []
    ids: tuple[int, ...] = ()  # of the row, before the next turn that is learnt
    heard: tuple[Message, ...] = ()  # of the conversation, likewise
    row, begins = 0, ""
    for number, turn in enumerate(trajectory.turns):
        if not number or turn.row != trajectory.turns[number - 1].row:
            ids, begins = (), turn.fork
            row = turns[-1].row + 1 if turns else 0
            heard = heard if turn.fork == DROPPED_THINKING else ()
        heard += turn.observed or (() if number else trajectory.sample.messages)
        ids += turn.context_ids
        if learnt[number]:
            fork = begins if row and (not turns or turns[-1].row < row) else ""
            turns.append(replace(turn, context_ids=ids, observed=heard, row=row, fork=fork))
            ids, heard = (), ()
        else:
            ids, heard = ids + turn.sampled_ids, (*heard, turn.message)
    return replace(trajectory, turns=tuple(turns))


_PARTS = ("calls", "reasoning", "content")


def _parts(message: Message) -> tuple[object, str, str]:
    """What has to be the same in a turn that is written and read again; templates trim its texts."""
    calls = [(call.name, call.arguments and dict(call.arguments)) for call in message.tool_calls]
    return calls, message.reasoning.strip(), message.content.strip()
