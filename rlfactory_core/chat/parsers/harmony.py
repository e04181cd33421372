"""Harmony, the syntax of gpt-oss: messages on channels, each with a header and an end.

``<|channel|>analysis<|message|>…<|end|>`` is reasoning, ``<|channel|>final<|message|>…<|return|>`` content, and a
message with a recipient a call: ``<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{…}<|call|>``,
or with ``to=`` before the channel, as the chat template writes it. ``<|start|>assistant`` stands before each message
but the first, which the generation prompt began.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

from rlfactory_core.chat.parsers.json_calls import read_object
from rlfactory_core.chat.parsers.turn import (
    MAX_TAGS,
    MalformedError,
    Syntax,
    Text,
    Turn,
    is_name,
    read_or_refuse,
    skip_space,
)
from rlfactory_core.types import Message, ToolSpec

_MESSAGE = "<|message|>"
_FUNCTIONS = "functions."
_BEGIN = re.compile(re.escape(_MESSAGE))
_END = re.compile(r"(?P<close><\|(?:end|call|return)\|>)|<\|(?:start|channel)\|>")
_OPENED = re.compile(r"\s*to=")  # the generation prompt began the header
_HEADER = re.compile(r"<\|(?:start|channel)\|>")
_ROLE = re.compile(r"<\|start\|>([^\s<]*)")
_CHANNEL = re.compile(r"<\|channel\|>\s*([^\s<]*)")
_RECIPIENT = re.compile(r"\bto=([^\s<]*)")
_NO_TOOL = ("assistant", "user", "all")
_FORM = f"<|channel|>commentary to={_FUNCTIONS}NAME <|constrain|>json{_MESSAGE}{{…}}<|call|>"


def parse_harmony(text: str, tools: Sequence[ToolSpec] = (), *, thinking_open: bool = False) -> Message:
    """Read one assistant turn.

    The text may lack its last token (``<|call|>``, ``<|return|>``), with which sampling stopped: a call at the end of
    the text is whole where its JSON is. Messages without a recipient on the commentary channel are for the user, as
    harmony says, and so is what stands on an unknown channel or outside of messages.

    Peers disagree on much; here a recipient makes a call on every channel (also ``analysis``) and without
    ``functions.``; final text behind a call stays content; and messages of other roles, tool results that the model
    made up, are dropped.

    Args:
        thinking_open: the generation prompt opened a message on the analysis channel.
    """
    turn = Turn(Text(text), {tool.name: tool for tool in tools})
    position = _read_message(turn, "<|channel|>analysis", 0) if thinking_open else 0
    for _ in range(MAX_TAGS):
        begin = _BEGIN.search(turn.text, position)
        if begin is None:
            break
        header = _header(turn, position, begin.start())
        position = _read_message(turn, header, begin.end())
    header = _header(turn, position, len(turn.text))
    recipient = _recipient(header)
    if recipient is not None:
        turn.refuse(header, f"the call is cut off before {_MESSAGE}", _FORM, recipient)
    return turn.message()


def _header(turn: Turn, start: int, end: int) -> str:
    """The header between ``start`` and ``end``; what stands before it is outside of messages."""
    if start == 0 and _OPENED.match(turn.text):
        return turn.text[:end]
    first = _HEADER.search(turn.text, start, end)
    begin = first.start() if first else end
    turn.content.append(turn.text[start:begin])
    return turn.text[begin:end]


def _read_message(turn: Turn, header: str, start: int) -> int:
    """The message whose text begins at ``start``, and where it ends."""
    role, channel = _ROLE.search(header), _CHANNEL.search(header)
    ours = role is None or role.group(1) == "assistant"
    recipient = _recipient(header)
    if ours and recipient is not None:
        return read_or_refuse(turn, Syntax("", partial(_read_call, recipient), _FORM, _END), start)
    end = _END.search(turn.text, start)
    stop = end.start() if end else len(turn.text)
    if ours and channel and channel.group(1) == "analysis":
        turn.reasoning.append(turn.text[start:stop])
    elif ours:
        turn.content += [turn.text[start:stop], "\n"]
    return _behind(end, stop)


def _recipient(header: str) -> str | None:
    """The tool that a message is for; None where it is for none."""
    found = _RECIPIENT.search(header)
    return None if found is None or found.group(1) in _NO_TOOL else found.group(1).removeprefix(_FUNCTIONS)


def _read_call(name: str, turn: Turn, start: int) -> int:
    if not is_name(name):
        raise MalformedError("the recipient is no function's name", start)
    arguments = read_object(turn.text, start, name)
    after = skip_space(turn.text, arguments.end)
    end = _END.match(turn.text, after)
    if end is None and after < len(turn.text):
        raise MalformedError("text follows the call's JSON object", arguments.end, name)
    turn.call(name, turn.text[arguments.start : arguments.end], arguments.value)
    return _behind(end, after)


def _behind(end: re.Match[str] | None, stop: int) -> int:
    return end.end() if end and end.lastgroup == "close" else stop
