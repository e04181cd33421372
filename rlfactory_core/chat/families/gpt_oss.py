"""gpt-oss: harmony messages on channels, one call in a turn, ended by ``<|call|>``; an answer ends with ``<|return|>``.

``<|channel|>analysis<|message|>…<|end|>`` is reasoning, ``<|channel|>final<|message|>…<|return|>`` content, and a
message with a recipient a call: ``<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{…}<|call|>``,
or with ``to=`` before the channel, as the chat template writes it. ``<|start|>assistant`` stands before each message
but the first, which the generation prompt began.

The template drops the analysis of calls once an answer follows, and the analysis of past answers, whose ``<|return|>``
becomes ``<|end|>``; this format keeps them. The template writes text beside a call as analysis. ``reasoning_effort`` is
left to the template.

OpenAI's ``openai-harmony`` 0.0.8 renders and parses this family on token ids. It is not used, because it downloads its
vocabulary at first use, and knows neither a fine-tune's tokenizer nor its template.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

from rlfactory_core.chat.parsers.json_calls import read_arguments
from rlfactory_core.chat.parsers.turn import (
    MAX_TAGS,
    MalformedError,
    Syntax,
    TurnReader,
    is_name,
    read_or_refuse,
    skip_space,
)
from rlfactory_core.chat.rendering import Entry
from rlfactory_core.chat.template import TemplateFormat
from rlfactory_core.types import Message, ToolSpec

_ANALYSIS = re.compile(r"<\|channel\|>analysis<\|message\|>.*?<\|end\|><\|start\|>assistant", re.DOTALL)
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

    The text may lack its last token (``<|call|>``, ``<|return|>``), with which sampling stopped, so a call at the end
    of the text is complete if its JSON is. Messages without a recipient on the commentary channel are content for the
    user, as harmony defines, and so is text on an unknown channel or outside of messages.

    Parsers differ in other respects. Here a message with a recipient is a call on every channel (also ``analysis``),
    also without ``functions.``. Final text after a call stays content. Messages of other roles, such as tool results
    that the model invented, are dropped.

    Args:
        thinking_open: the generation prompt opened a message on the analysis channel.
    """
    turn = TurnReader(text, {tool.name: tool for tool in tools})
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


def _header(turn: TurnReader, start: int, end: int) -> str:
    """The header between ``start`` and ``end``; text before it is outside of messages and becomes content."""
    if start == 0 and _OPENED.match(turn.text):
        return turn.text[:end]
    first = _HEADER.search(turn.text, start, end)
    begin = first.start() if first else end
    turn.content.append(turn.text[start:begin])
    return turn.text[begin:end]


def _read_message(turn: TurnReader, header: str, start: int) -> int:
    """Read the message whose text begins at ``start``; returns where it ends."""
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
    """The tool that a message is addressed to, or None."""
    found = _RECIPIENT.search(header)
    return None if found is None or found.group(1) in _NO_TOOL else found.group(1).removeprefix(_FUNCTIONS)


def _read_call(name: str, turn: TurnReader, start: int) -> int:
    if not is_name(name):
        raise MalformedError("the recipient is no function's name", start)
    call = read_arguments(turn.text, start, name)
    after = skip_space(turn.text, call.end)
    end = _END.match(turn.text, after)
    if end is None and after < len(turn.text):
        raise MalformedError("text follows the call's JSON object", call.end, name)
    return turn.add(call, end=_behind(end, after))


def _behind(end: re.Match[str] | None, stop: int) -> int:
    return end.end() if end and end.lastgroup == "close" else stop


class GptOssFormat(TemplateFormat):
    """gpt-oss: harmony messages on channels, one call in a turn."""

    name = "gpt-oss"
    marks = ("<|channel|>", "<|return|>")
    stops = ("<|return|>", "<|call|>", "<|endoftext|>")
    past_ends = ("<|end|>",)
    thinks = True
    parser = staticmethod(parse_harmony)

    def entry(self, message: Message) -> Entry:
        entry = super().entry(message)
        thinking = message.reasoning
        if message.tool_calls:  # the template takes either of the two
            thinking = "\n".join(filter(None, (message.reasoning, message.content)))
            entry["content"] = ""
        if thinking:
            entry["thinking"] = thinking
        return entry

    def keeps(self, messages: Sequence[Message]) -> bool:
        turns = [message for message in messages if message.role == "assistant"]
        return all(turn.tool_calls for turn in turns) or (len(turns) == 1 and messages[-1].role == "assistant")

    def forgetful(self, text: str, messages: Sequence[Message]) -> str:
        return _ANALYSIS.sub("", text).replace("<|return|>", "<|end|>")
