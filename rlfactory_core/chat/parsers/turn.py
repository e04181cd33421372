"""One assistant turn while it is read: thinking blocks, content and calls, for every call syntax of this folder.

A syntax brings what begins a call and how to read one; here stands what all share. Every character is looked at a
bounded number of times, nothing is evaluated, and no text makes it raise.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlfactory_core.types import Message, ToolCall, ToolSpec

# A turn with more than this is noise, whose every piece would cost time and an observation: its rest stays unread.
MAX_CALLS = 64
MAX_TAGS = 512
_MAX_NAME = 128  # characters
_SPACE = re.compile(r"\s*")
_JSON_NAME = re.compile(r'"name"\s*:\s*"([^"\\]{1,128})"')


class MalformedError(Exception):
    """What was to be a call is none.

    Args:
        reason: what is wrong, to be read by the model.
        at: where the search for the end of the spoilt text begins.
        name: of the tool that was meant, where it is known.
    """

    def __init__(self, reason: str, at: int, name: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.at = at
        self.name = name


class Text(str):
    """JSON errors count the lines before them, which over many bad calls would be quadratic in the text."""

    __slots__ = ()

    def count(self, *_: Any) -> int:
        return 0

    def rfind(self, *_: Any) -> int:
        return 0


@dataclass(slots=True)
class Turn:
    """What has been read so far of ``text``; ``tools`` are the offered ones, by name."""

    text: str
    tools: Mapping[str, ToolSpec] = field(default_factory=dict)
    content: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    started: bool = False  # whether there is more than white space and thinking
    num_read: int = 0  # calls, those included that turned out to be thinking

    def say(self, text: str) -> None:
        self.content.append(text)
        self.started = self.started or bool(text.strip())

    def call(self, name: str, arguments_text: str, arguments: Mapping[str, Any]) -> None:
        self._add(name, arguments_text, arguments, None)

    def refuse(self, body: str, reason: str, form: str, name: str = "") -> None:
        """A call that is none: the model is told the reason, and the form that would have been right."""
        if not name and (match := _JSON_NAME.search(body)):
            name = match.group(1)
        error = f"Invalid tool call: {reason}. Write {form}."
        self._add(name if is_name(name) else "", body.strip(), None, error)

    def _add(self, name: str, text: str, arguments: Mapping[str, Any] | None, error: str | None) -> None:
        self.calls.append(ToolCall(f"call_{len(self.calls)}", name, text, arguments, error))
        self.started = True
        self.num_read += 1

    def think(self, start: int, close: re.Pattern[str]) -> int:
        """A thinking block from ``start`` on; one that is never closed holds all the rest."""
        end = close.search(self.text, start)
        self.reasoning.append(self.text[start : end.start() if end else len(self.text)])
        return end.end() if end else len(self.text)

    def unthink(self, before: str) -> None:
        """All so far, ``before`` last, was thinking."""
        self.reasoning += [*self.content, before]
        self.content.clear()
        self.calls.clear()
        self.started = False

    def message(self) -> Message:
        return Message(
            "assistant",
            "".join(self.content).strip(),
            reasoning="\n".join(part.strip() for part in self.reasoning).strip(),
            tool_calls=tuple(self.calls),
        )


@dataclass(frozen=True, slots=True)
class Syntax:
    """One way to write calls."""

    opener: str  # the literal text that begins one
    read: Callable[[Turn, int], int]  # from behind the opener: puts the calls into the turn, says where they end
    form: str  # how a call is written right, for the text of errors
    resume: re.Pattern[str]  # where a malformed call ends: behind a match of the group ``close``, before any other
    close: str = ""  # what must stand behind a call, where its absence is to be told


def read_turn(
    text: str,
    tools: Sequence[ToolSpec],
    *syntaxes: Syntax,
    thinking: tuple[str, str] = ("<think>", "</think>"),
    thinking_open: bool = False,
    markup: Sequence[str] = (),
    at_start: Callable[[Turn, int], int] = lambda turn, position: position,
) -> Message:
    """Read one assistant turn, given without its stop token.

    Calls within a thinking block are not calls, and a block that is never closed holds all the rest. Text before a
    closing tag that nothing opened is reasoning, its calls included: the generation prompt may have opened it
    (``thinking_open`` says that it did). Ids are ``call_0``, ``call_1``, … in the order of the text.

    Args:
        thinking: the two tags around a thinking block.
        markup: literal texts around calls that mean nothing.
        at_start: reads calls that are such only where nothing but thinking stands before them.
    """
    turn = Turn(Text(text), {tool.name: tool for tool in tools})
    by_opener = {syntax.opener: syntax for syntax in syntaxes}
    think, unthink = thinking
    tags = re.compile("|".join(re.escape(tag) for tag in (*thinking, *by_opener, *markup)))
    close = re.compile(re.escape(unthink))  # not str.find: that takes 25 times as long for 10 times the text
    position = at_start(turn, turn.think(0, close) if thinking_open else 0)
    for _ in range(MAX_TAGS):
        match = tags.search(turn.text, position)
        if match is None:
            break
        tag, before, position = match.group(), turn.text[position : match.start()], match.end()
        if tag == unthink:
            turn.unthink(before)
            position = at_start(turn, position)
            continue
        turn.say(before)
        if tag == think:
            position = turn.think(position, close)
            position = position if turn.started else at_start(turn, position)
        elif tag in by_opener:
            position = read_or_refuse(turn, by_opener[tag], position)
    turn.say(turn.text[position:])
    return turn.message()


def read_or_refuse(turn: Turn, syntax: Syntax, start: int) -> int:
    """One call, from behind its opener on, or the refusal of what is none; where reading goes on."""
    if turn.num_read >= MAX_CALLS:
        turn.refuse(turn.text[start:], f"a turn holds at most {MAX_CALLS} calls, the rest was not read", syntax.form)
        return len(turn.text)
    try:
        return syntax.read(turn, start)
    except MalformedError as error:
        tag = syntax.resume.search(turn.text, error.at)
        stop = tag.start() if tag else len(turn.text)
        closed = tag is not None and tag.lastgroup == "close"
        reason = error.reason if closed or not syntax.close else f"the call is not closed by {syntax.close}"
        turn.refuse(turn.text[start:stop], reason, syntax.form, error.name)
        return tag.end() if tag and closed else stop


def behind(turn: Turn, close: str, end: int, name: str, what: str = "JSON object") -> int:
    """Where reading goes on behind ``close``, which must follow a call that ends at ``end``.

    Raises:
        MalformedError: it does not follow.
    """
    after = skip_space(turn.text, end)
    if not turn.text.startswith(close, after):
        raise MalformedError(f"text follows the call's {what}", end, name)
    return after + len(close)


def skip_space(text: str, start: int) -> int:
    match = _SPACE.match(text, start)
    return match.end() if match else start


def is_name(text: object) -> bool:
    """Whether this can be a tool's name; an unknown one is for the tool manager to answer."""
    return isinstance(text, str) and 0 < len(text) <= _MAX_NAME and text.isprintable() and not text.isspace()
