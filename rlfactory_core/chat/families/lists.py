"""Families whose calls are a list, ``[NAME(KEY=VALUE, …), …]`` in Python or ``[{"name": …, "arguments": {…}}, …]``.

- `Lfm2Format` is LFM2 and LFM2.5 (Liquid AI), whose templates write a Python list between ``<|tool_call_start|>`` and
  ``<|tool_call_end|>``. Between these tags the models write JSON, one object or a list, if their prompt asks for it.
  The templates of LFM2.5 drop thinking before the last user message.
- `PythonicFormat` is for templates that ask for a Python list, as vLLM publishes them for Llama 3.2 and 4. They write
  all values of past calls as strings, or without quotes, and such calls could not be read back. There, this format
  writes past calls itself, with literals that keep their types.
- `XlamFormat` is xLAM 2 (Salesforce), with a JSON list. Its templates, one with Llama 3's turns and one with ChatML's,
  show the tools in the system message and leave out text beside calls.

A list that is not between tags holds calls only at the beginning of the turn or after another list, and never in LFM2.
Within other text, in a code fence or between tags of another family it is content; vLLM's parsers find calls there. A
list that is not closed holds no calls and is one error. In Python's syntax all arguments are named, and values are
strings, numbers, ``True``, ``False``, ``None`` (or JSON's words for them), lists and dictionaries.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from rlfactory_core.chat.parsers.json_calls import read_call_list, read_call_object
from rlfactory_core.chat.parsers.literals import python_text, read_python_call
from rlfactory_core.chat.parsers.turn import (
    CallObject,
    MalformedError,
    Parser,
    ReadCalls,
    Syntax,
    TurnReader,
    between,
    read_bare,
    skip_space,
)
from rlfactory_core.chat.template import TemplateFormat
from rlfactory_core.errors import ChatFormatError
from rlfactory_core.types import Message, ToolCall

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_PROBE = {"text": 'a "b"\n', "number": 1}
_START, _END = "<|python_start|>", "<|python_end|>"
_LFM2_START, _LFM2_END = "<|tool_call_start|>", "<|tool_call_end|>"
_FORM = "[NAME(KEY=VALUE, …)]"
_KEYS = ("arguments", "parameters")


def _bare(begins: str, form: str, resume: str, read: Callable[[str, int], CallObject]) -> ReadCalls:
    """Reads lists without tags: they begin as ``begins``, and a malformed one ends where ``resume`` matches."""
    syntax = Syntax("", partial(read_call_list, read=read), form, re.compile(resume))
    return partial(read_bare, re.compile(rf"\s*(?={begins})"), syntax)


def _read_tagged(close: str, turn: TurnReader, start: int) -> int:
    begin = skip_space(turn.text, start)
    if turn.text.startswith("{", begin):
        return turn.add(read_call_object(turn.text, begin, _KEYS), close=close)
    if not turn.text.startswith("[", begin):
        raise MalformedError("no list of calls begins", begin)
    in_json = turn.text.startswith("{", skip_space(turn.text, begin + 1))
    read = partial(read_call_object, arguments_keys=_KEYS) if in_json else read_python_call
    return read_call_list(turn, begin, read, close)


_BARE = _bare(r"\[\s*[A-Za-z_][\w.-]*\(", _FORM, re.escape(_START), read_python_call)
_XLAM = r'\[\s*\{\s*"name"\s*:'
parse_pythonic = Parser((between(_START, _END, partial(_read_tagged, _END), _FORM),), at_start=_BARE)
parse_lfm2 = Parser((between(_LFM2_START, _LFM2_END, partial(_read_tagged, _LFM2_END), _FORM),))
parse_xlam = Parser((), at_start=_bare(_XLAM, '[{"name": "NAME", "arguments": {…}}, …]', _XLAM, read_call_object))


def _calls_as_python(calls: Sequence[ToolCall]) -> str:
    """The list of calls; a malformed call is written as the model wrote it."""
    return "[" + ", ".join(f"{call.name}({_arguments(call)})" for call in calls) + "]"


def _arguments(call: ToolCall) -> str:
    if call.arguments is None:
        return call.arguments_text
    return ", ".join(f"{key}={python_text(value)}" for key, value in call.arguments.items())


class Lfm2Format(TemplateFormat):
    """LFM2 and LFM2.5: a Python list of calls between tags."""

    name = "lfm2"
    marks = ("<|im_start|>", "List of tools: ")
    stops = ("<|im_end|>", "<|endoftext|>")
    parser = parse_lfm2
    block = re.compile(r"(?<=<\|im_start\|>assistant\n)<think>.*?</think>\s*", re.DOTALL)

    def calls_text(self, calls: Sequence[ToolCall]) -> str:
        return f"{_LFM2_START}{_calls_as_python(calls)}{_LFM2_END}"


class PythonicFormat(TemplateFormat):
    """Llama 3.2, Llama 4 and others whose template asks for a Python list of calls."""

    name = "pythonic"
    marks = ("func_name1(",)
    beside = False  # a list within text is no call
    stops = ("<|eot|>", "<|eot_id|>", "<|eom|>", "<|eom_id|>", "<|end_of_text|>")
    parser = parse_pythonic

    def __init__(self, tokenizer: PreTrainedTokenizerFast, thinking: bool = True) -> None:
        super().__init__(tokenizer, thinking)
        if self.abilities.calls and not self._writes_what_it_reads():
            self.abilities = replace(self.abilities, calls=0)

    def calls_text(self, calls: Sequence[ToolCall]) -> str:
        return _calls_as_python(calls)

    def _writes_what_it_reads(self) -> bool:
        turn = Message("assistant", "", tool_calls=(ToolCall("call_0", "probe", "{}", _PROBE),))
        try:
            written = self.written(turn)
        except ChatFormatError:
            return False
        return [call.arguments for call in self.parse(self.encode(written)).tool_calls] == [_PROBE]


class XlamFormat(TemplateFormat):
    """xLAM 2: calls as a bare JSON list."""

    name = "xlam"
    marks = ("Salesforce xLAM",)
    stops = ("<|eot_id|>", "<|im_end|>", "<|end_of_text|>", "<|endoftext|>")
    parser = parse_xlam
    beside = False
