"""Parses an assistant turn into thinking, content and calls; shared by every call syntax of this folder.

A syntax defines how a call begins and how it is read. Its readers raise `MalformedError` where a text that begins like
a call is none, and add no call then. Parsing takes time linear in the text, evaluates nothing, and never raises.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlfactory_core.types import Message, ToolCall, ToolSpec

# A turn with more than this is noise; the rest is not read, because each call would cost time and an observation.
MAX_CALLS = 64
MAX_TAGS = 512
_MAX_NAME = 128  # characters
_SPACE = re.compile(r"\s*")
_JSON_NAME = re.compile(r'"name"\s*:\s*"([^"\\]{1,128})"')


class MalformedError(Exception):
    """A text that begins like a call is not one.

    Args:
        reason: what is wrong, for the model.
        at: where the search for the end of the malformed text begins.
        name: of the tool, if it is known.
    """

    def __init__(self, reason: str, at: int, name: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.at = at
        self.name = name


class Text(str):
    """A text in which JSON errors do not count lines, which would take quadratic time over many bad calls."""

    __slots__ = ()

    def count(self, *_: Any) -> int:
        return 0

    def rfind(self, *_: Any) -> int:
        return 0


@dataclass(frozen=True, slots=True)
class CallObject:
    """A whole call; ``end`` is where it ends in the text."""

    name: str
    arguments_text: str
    arguments: dict[str, Any]
    end: int


@dataclass(slots=True)
class TurnReader:
    """What has been read of ``text`` so far; ``tools`` are the offered tools by name."""

    text: str
    tools: Mapping[str, ToolSpec] = field(default_factory=dict)
    content: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    started: bool = False  # whether there is anything but white space and thinking
    num_read: int = 0  # calls, including those that turned out to be thinking

    def __post_init__(self) -> None:
        self.text = Text(self.text)

    def add_text(self, text: str) -> None:
        self.content.append(text)
        self.started = self.started or bool(text.strip())

    def add_call(self, name: str, arguments_text: str, arguments: Mapping[str, Any]) -> None:
        self._add(name, arguments_text, arguments, None)

    def add(self, *calls: CallObject, end: int | None = None, close: str = "", what: str = "JSON object") -> int:
        """Add calls that were read; returns the position behind the last one.

        Args:
            end: of the text that was read, if it is not that of the last call.
            close: has to follow there.
            what: was read, for the error.
        """
        end = calls[-1].end if end is None else end
        if close:
            end = behind(self, close, end, calls[-1].name, what)
        for call in calls:
            self._add(call.name, call.arguments_text, call.arguments, None)
        return end

    def refuse(self, body: str, reason: str, form: str, name: str = "") -> None:
        """Add a malformed call; its error tells the model the reason and the right form."""
        if not name and (match := _JSON_NAME.search(body)):
            name = match.group(1)
        error = f"Invalid tool call: {reason}. Write {form}."
        self._add(name if is_name(name) else "", body.strip(), None, error)

    def _add(self, name: str, text: str, arguments: Mapping[str, Any] | None, error: str | None) -> None:
        self.calls.append(ToolCall(f"call_{len(self.calls)}", name, text, arguments, error))
        self.started = True
        self.num_read += 1

    def read_thinking(self, start: int, close: re.Pattern[str]) -> int:
        """Read a thinking block from ``start``; a block that is never closed takes the rest of the text."""
        end = close.search(self.text, start)
        self.reasoning.append(self.text[start : end.start() if end else len(self.text)])
        return end.end() if end else len(self.text)

    def turn_into_thinking(self, before: str) -> None:
        """Turn everything so far, and then ``before``, into thinking."""
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


ReadCalls = Callable[[TurnReader, int], int]
"""Reads calls from a position of the text, adds them to the turn, and returns where they end."""


@dataclass(frozen=True, slots=True)
class Syntax:
    """One way to write calls."""

    opener: str  # the literal text that begins a call
    read: ReadCalls  # from after the opener
    form: str  # how a call is written correctly, for error messages
    resume: re.Pattern[str]  # where a malformed call ends: after a match of the group ``close``, before any other match
    close: str = ""  # the text that has to follow a call, if its absence is an error


def between(opener: str, close: str, read: ReadCalls, body: str, also: Sequence[str] = ()) -> Syntax:
    """The syntax of calls between two tags.

    Args:
        body: how what stands between them is written, for error messages.
        also: further texts before which a malformed call ends.
    """
    resume = "|".join(map(re.escape, (opener, *also))) + f"|(?P<close>{re.escape(close)})"
    return Syntax(opener, read, f"{opener}{body}{close}", re.compile(resume), close)


@dataclass(frozen=True, slots=True)
class Parser:
    """Parses one assistant turn without its stop token, by the syntaxes of a family.

    Calls within a thinking block do not count, and a block that is never closed takes the rest of the text. Text before
    a closing tag without an opening tag is reasoning, its calls included, because the generation prompt may have opened
    the block (``thinking_open``: it did). Ids are ``call_0``, ``call_1``, … in the order of the text.
    """

    syntaxes: tuple[Syntax, ...]
    thinking: tuple[str, str] = ("<think>", "</think>")  # the tags around a thinking block
    markup: Sequence[str] = ()  # literal texts around calls that are ignored
    at_start: ReadCalls = lambda turn, position: position
    """Reads calls that count only if nothing but thinking comes before them."""

    def __call__(self, text: str, tools: Sequence[ToolSpec] = (), *, thinking_open: bool = False) -> Message:
        turn = TurnReader(text, {tool.name: tool for tool in tools})
        by_opener = {syntax.opener: syntax for syntax in self.syntaxes}
        think, unthink = self.thinking
        tags = re.compile("|".join(re.escape(tag) for tag in (*self.thinking, *by_opener, *self.markup)))
        close = re.compile(re.escape(unthink))  # not str.find: that takes 25 times as long for 10 times the text
        position = self.at_start(turn, turn.read_thinking(0, close) if thinking_open else 0)
        for _ in range(MAX_TAGS):
            match = tags.search(turn.text, position)
            if match is None:
                break
            tag, before, position = match.group(), turn.text[position : match.start()], match.end()
            if tag == unthink:
                turn.turn_into_thinking(before)
                position = self.at_start(turn, position)
                continue
            turn.add_text(before)
            if tag == think:
                position = turn.read_thinking(position, close)
                position = position if turn.started else self.at_start(turn, position)
            elif tag in by_opener:
                position = read_or_refuse(turn, by_opener[tag], position)
        turn.add_text(turn.text[position:])
        return turn.message()


def read_or_refuse(turn: TurnReader, syntax: Syntax, start: int) -> int:
    """Read a call from after its opener, or add a malformed one; returns where reading goes on."""
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


def read_bare(begins: re.Pattern[str], syntax: Syntax, turn: TurnReader, position: int) -> int:
    """Read calls without an opener, as long as one begins at the position; returns where reading goes on."""
    while found := begins.match(turn.text, position):
        position = read_or_refuse(turn, syntax, found.end())
    return position


def read_block(turn: TurnReader, start: int, close: str, read: Callable[[TurnReader, int], CallObject]) -> int:
    """Read one or more calls up to ``close``, each with ``read``, and add them; returns where the block ends."""
    found: list[CallObject] = []
    position = skip_space(turn.text, start)
    while not (found and turn.text.startswith(close, position)):
        if turn.num_read + len(found) >= MAX_CALLS:
            raise MalformedError(f"a turn holds at most {MAX_CALLS} calls", position)
        found.append(read(turn, position))
        position = skip_space(turn.text, found[-1].end)
    return turn.add(*found, end=position, close=close)


def behind(turn: TurnReader, close: str, end: int, name: str, what: str = "JSON object") -> int:
    """The position after ``close``, which has to follow a call that ends at ``end``."""
    after = skip_space(turn.text, end)
    if not turn.text.startswith(close, after):
        raise MalformedError(f"text follows the call's {what}", end, name)
    return after + len(close)


def skip_space(text: str, start: int) -> int:
    match = _SPACE.match(text, start)
    return match.end() if match else start


def named(begins: re.Pattern[str], text: str, start: int, problem: str) -> re.Match[str]:
    """The match of a call's beginning, whose first group is the tool's name; ``problem`` says that there is none."""
    found = begins.match(text, start)
    if found is None or not is_name(found[1]):
        raise MalformedError(problem, start)
    return found


def is_name(text: object) -> bool:
    """Whether this can be a tool's name; the tool manager answers a call of an unknown one."""
    return isinstance(text, str) and 0 < len(text) <= _MAX_NAME and text.isprintable() and not text.isspace()
