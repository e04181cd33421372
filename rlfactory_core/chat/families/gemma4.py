"""Gemma 4: calls as ``<|tool_call>call:NAME{KEY:VALUE,…}<tool_call|>``, with strings between ``<|"|>`` quotes.

A turn that calls tools ends where the results begin, with ``<|tool_response>``; it is sampled, and the first result
follows it. The answer goes on in the same turn of the model, and ``<turn|>`` ends it. Thinking stands between
``<|channel>thought`` and ``<channel|>``.

The templates drop thinking before the last user message, some of them also beside answers; this format keeps it. They
write text beside a call behind the results, so that it is left out of prompts. The latest one opens a thinking channel
behind results if thinking is on, and those of the large models write an empty one before an answer if it is off; past
turns show neither.

Between the tags, one or more calls may follow each other. A call that is not closed by ``<tool_call|>`` is an error,
and so is text without quotes and a call in Python's syntax, which other parsers accept.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

from rlfactory_core.chat.parsers.json_calls import Value
from rlfactory_core.chat.parsers.literals import Literals, read_literal
from rlfactory_core.chat.parsers.turn import CallObject, Parser, TurnReader, between, named, read_block
from rlfactory_core.chat.template import TemplateFormat
from rlfactory_core.types import Message

_OPEN, _CLOSE, _RESPONSE = "<|tool_call>", "<tool_call|>", "<|tool_response>"
_THINK, _UNTHINK = "<|channel>thought\n", "<channel|>"
_STRING = re.compile(r'<\|"\|>((?:(?!<\|"\|>|<\|tool_call>|<tool_call\|>).)*)<\|"\|>', re.DOTALL)
_HEAD = re.compile(r"call:([^\s{<]*)(?=\{)")
_KEY = re.compile(r"[^\s:{}\[\],<\"]+")


def _match(pattern: re.Pattern[str], group: int, text: str, start: int) -> Value | None:
    found = pattern.match(text, start)
    return Value(found[group], start, found.end()) if found else None


_LITERALS = Literals(
    lambda text, start: _match(_STRING, 1, text, start),
    lambda text, start: _match(_KEY, 0, text, start) or _match(_STRING, 1, text, start),
    {"true": True, "false": False, "null": None},
)


def _read(turn: TurnReader, start: int) -> CallObject:
    head = named(_HEAD, turn.text, start, "no call:NAME{ begins")
    found = read_literal(turn.text, head.end(), _LITERALS, head[1])
    return CallObject(head[1], turn.text[found.start : found.end], found.value, found.end)


_FORM = 'call:NAME{KEY:VALUE,…} with strings as <|"|>TEXT<|"|>'
parse_gemma4 = Parser(
    (between(_OPEN, _CLOSE, partial(read_block, close=_CLOSE, read=_read), _FORM),), thinking=(_THINK.strip(), _UNTHINK)
)


class Gemma4Format(TemplateFormat):
    """Gemma 4: calls with values between quotes of its own."""

    name = "gemma-4"
    marks = (_OPEN, "<|turn>")
    stops = ("<turn|>", _RESPONSE, "<eos>")
    parser = parse_gemma4
    block = re.compile(r"<\|channel>thought\n(?:(?:(?!<\|channel>|<turn\|>|<\|tool_call>).)*<channel\|>)?", re.DOTALL)
    beside = False
    think = "<|channel>"
    call_stop = _RESPONSE

    def keeps(self, messages: Sequence[Message]) -> bool:
        opens = self.observation_text([Message("tool", "?")]).endswith(_THINK)
        return self.thinking and not opens and not any(message.reasoning for message in messages)

    def past_prompt(self, prompt: str) -> str:
        return prompt.removesuffix(_THINK + _UNTHINK)

    def written(self, message: Message) -> str:
        text = super().written(message)
        dropped = message.reasoning and not text.startswith(_THINK)
        return f"{_THINK}{message.reasoning}\n{_UNTHINK}{text}" if dropped else text
