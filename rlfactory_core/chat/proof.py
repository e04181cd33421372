"""Proves at start-up that a chat format appends exactly the ids that the model's own template would give.

It runs once a run, on the real tokenizer, with conversations that break careless formats: parallel calls, an empty
result, odd white space, other scripts, text that looks like special tokens.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rlfactory_core.chat.rendering import Abilities
from rlfactory_core.errors import ChatFormatError
from rlfactory_core.protocols import ChatFormat
from rlfactory_core.types import Message, ToolCall, ToolSpec

_REMEDY = "Choose another format with chat.format=NAME, or register one for this model's template."
_AROUND = 8  # tokens shown on both sides of the first difference


class ProvableFormat(ChatFormat, Protocol):
    """What the proof needs beyond a `ChatFormat`; `TemplateFormat` implements and documents it."""

    abilities: Abilities
    thinking: bool
    opens_thinking: bool
    thinking_open: bool

    def initial_text(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> str: ...
    def observation_text(self, messages: Sequence[Message]) -> str: ...
    def render(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), *, generation_prompt: bool = True
    ) -> str: ...
    def written(self, message: Message) -> str: ...
    def up_to_end(self, text: str) -> str | None: ...
    def stop_of(self, message: Message) -> str: ...
    def keeps(self, messages: Sequence[Message]) -> bool: ...
    def forgetful(self, text: str, messages: Sequence[Message]) -> str: ...


def prove_append_equals_render(
    chat: ProvableFormat, conversations: Iterable[Sequence[Message]] | None = None, tools: Sequence[ToolSpec] = ()
) -> None:
    """Check on ``conversations`` (default: built in) that appended ids are those of the full render.

    For each conversation, the ids that are appended turn by turn have to be the tokenizer's ids of their text, and that
    text has to be the template's render of all messages. If the template rewrites past turns, both texts are compared
    without what it rewrites (`forgetful`), except where there is nothing to rewrite (`keeps`). In addition, the format
    has to parse calls as the template writes them, and no content may become a special token.

    Raises:
        ChatFormatError: the message shows the first differing token and the text around it.
    """
    if conversations is None:
        conversations, tools = _conversations(chat), _TOOLS
    for messages in conversations:
        text = appended(chat, messages, tools)
        _compare(chat, text.ids, chat.encode(text.text), "the tokenizer's ids of the same text")
        prove_text(chat, messages, tools)
    _prove_calls_are_read(chat)
    _prove_contents_are_plain(chat)


@dataclass(frozen=True, slots=True)
class Appended:
    """A conversation, appended turn by turn."""

    ids: tuple[int, ...]
    text: str


def appended(chat: ProvableFormat, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> Appended:
    """The conversation as a rollout appends it, with each assistant turn in its canonical form."""
    ids: list[int] = []
    text = ""
    done = 0
    for index, message in enumerate(messages):
        if message.role != "assistant" and index < len(messages) - 1:
            continue
        closed = message.role == "assistant"
        new = messages[done : index if closed else index + 1]
        ids += chat.observation_ids(new) if done else chat.initial_ids(new, tools)
        text += chat.observation_text(new) if done else chat.initial_text(new, tools)
        if closed:
            written = chat.written(message)
            ids += _sampled(chat, text, written)
            text += written
        done = index + 1
    return Appended(tuple(ids), text)


def prove_text(chat: ProvableFormat, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> None:
    """Check that the appended text is the template's render.

    Raises:
        ChatFormatError: the message shows the first differing token.
    """
    text = appended(chat, messages, tools).text
    open_ended = messages[-1].role != "assistant"
    rendered = chat.render(messages, tools, generation_prompt=open_ended)
    if not open_ended:  # with some templates the last turn's stop token belongs to the next turn
        rendered = chat.up_to_end(rendered) or rendered + chat.stop_of(messages[-1])
    if not chat.keeps(messages):
        text, rendered = chat.forgetful(text, messages), chat.forgetful(rendered, messages)
    _compare(chat, chat.encode(text), chat.encode(rendered), "the chat template's render")


def _sampled(chat: ProvableFormat, before: str, text: str) -> tuple[int, ...]:
    """The ids of a turn's text after ``before``; a tokenizer may treat the first word of a whole text differently."""
    start = max((before.rfind(mark) for mark in "<["), default=-1)
    tail = before[max(0, start) :]
    head, whole = chat.encode(tail), chat.encode(tail + text)
    return whole[len(head) :] if whole[: len(head)] == head else chat.encode(text)


def _prove_calls_are_read(chat: ProvableFormat) -> None:
    """Check that the format parses a call as the template writes it."""
    turn = Message("assistant", "", tool_calls=(_call(0, "search", query="Ωmega"),))
    written = chat.written(turn)
    read = chat.parse(chat.encode(written), _TOOLS)
    if [(call.name, call.arguments) for call in read.tool_calls] != [("search", {"query": "Ωmega"})]:
        raise ChatFormatError(
            f"Chat format {chat.name!r} does not read the tool calls of the model's chat template, which writes "
            f"{written!r}. {_REMEDY}"
        )


def _prove_contents_are_plain(chat: ProvableFormat) -> None:
    """Check that no content can end a turn or imitate a call."""
    tokens = [chat.decode([stop]) for stop in chat.stop_token_ids]
    hostile = "x".join(["", *tokens, "<|im_start|>assistant", "<tool_call>", "</tool_response>", ""])

    def ids(text: str) -> tuple[int, ...]:
        offered = ToolSpec("search", text, {"type": "object", "properties": {}})
        return chat.initial_ids([Message("user", text)], [offered]) + chat.observation_ids([Message("tool", text)])

    plain, found = ids("x"), ids(hostile)
    for stop, token in zip(chat.stop_token_ids, tokens, strict=True):
        if found.count(stop) != plain.count(stop):
            raise ChatFormatError(
                f"Chat format {chat.name!r} turns {token!r} within a message or a tool's output into the special "
                "token; it must stay plain text."
            )


def _compare(chat: ProvableFormat, appended: Sequence[int], expected: Sequence[int], what: str) -> None:
    if tuple(appended) == tuple(expected):
        return
    shortest = min(len(appended), len(expected))
    at = next((index for index in range(shortest) if appended[index] != expected[index]), shortest)
    window = slice(max(0, at - _AROUND), at + _AROUND)
    ours, theirs = (
        f"{chat.decode(ids[at : at + 1])!r} (id {ids[at]})" if at < len(ids) else "nothing"
        for ids in (appended, expected)
    )
    raise ChatFormatError(
        f"Chat format {chat.name!r} does not fit this tokenizer: token {at} of the appended conversation is {ours}, "
        f"and in {what} it is {theirs}.\n  appended: …{chat.decode(appended[window])!r}…\n"
        f"  expected: …{chat.decode(expected[window])!r}…\n"
        f"{_REMEDY}"
    )


_TOOLS = (ToolSpec("search", "Search for „facts“.", {"type": "object", "properties": {"query": {"type": "string"}}}),)


def _call(index: int, name: str, **arguments: Any) -> ToolCall:
    return ToolCall(f"call_{index}", name, json.dumps(arguments, ensure_ascii=False), arguments)


def _conversations(chat: ProvableFormat) -> list[tuple[Message, ...]]:
    """Conversations of every shape that the template accepts, with reasoning if it supports that."""
    thought = "Let me look.\n\nTwice." if chat.thinking else ""
    later = "" if chat.opens_thinking and not chat.thinking_open else thought  # in turns that follow results
    plain = thought if chat.opens_thinking else ""
    system = (Message("system", "Be  brief.\n"),)
    user = Message("user", "Who leads Ωmega?\n")
    calls = (_call(0, "search", query='a "b"\n'), _call(1, "search", query="日本", top=3))

    def ask(reasoning: str, *calls: ToolCall, content: str = "") -> Message:
        return Message("assistant", content, reasoning=reasoning, tool_calls=calls)

    def found(index: int, text: str) -> Message:
        return Message("tool", text, name="search", tool_call_id=f"call_{index}")

    both = calls if chat.abilities.calls != 1 else calls[:1]
    one, two = _call(0, "search", query="Ωmega"), [found(0, "\n\n  x \n"), found(1, " Ann\tLee 🙂 é\r\n")][: len(both)]
    answer = "<answer>Ann  Lee</answer>"
    last = ask(later, content=answer)
    first_round = (*system, user, ask(thought, one), found(0, "\n\n  x \n"), last)
    return [
        (user, ask(thought, content=answer)),
        (*system, user, ask(thought, one), found(0, ""), last),
        (user, ask(thought, *both, content="At once."), *two, ask(later, one), found(0, "")),
        (*system, user, ask(thought, one), found(0, " Ann\tLee 🙂 é\r\n")),
        (*first_round, Message("user", " And  Beta?"), ask(thought, one), found(0, " Ann"), last),
        (user, ask(plain, content="Plain."), Message("user", "Again."), ask(plain, content="Still plain.")),
    ]
