"""Families whose calls are a Python list, ``[NAME(KEY=VALUE, …), …]``.

- `Lfm2Format` is LFM2 and LFM2.5 (Liquid AI), whose templates write the list between ``<|tool_call_start|>`` and
  ``<|tool_call_end|>``. The templates of LFM2.5 drop thinking before the last user message.
- `PythonicFormat` is for templates that ask for such a list at the beginning of a turn, as vLLM publishes them for
  Llama 3.2 and 4. They write all values of past calls as strings, or without quotes, and such calls could not be read
  back. There, this format writes past calls itself, with literals that keep their types.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rlfactory_core.chat.parsers.literals import python_text
from rlfactory_core.chat.parsers.pythonic import LFM2_END, LFM2_START, parse_lfm2, parse_pythonic
from rlfactory_core.chat.template import TemplateFormat
from rlfactory_core.errors import ChatFormatError
from rlfactory_core.types import Message, ToolCall

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_PROBE = {"text": 'a "b"\n', "number": 1}


def calls_as_python(calls: Sequence[ToolCall]) -> str:
    """The list of calls; a call that is malformed stands as it was written."""
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
        return f"{LFM2_START}{calls_as_python(calls)}{LFM2_END}"


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
        return calls_as_python(calls)

    def _writes_what_it_reads(self) -> bool:
        turn = Message("assistant", "", tool_calls=(ToolCall("call_0", "probe", "{}", _PROBE),))
        try:
            written = self.written(turn)
        except ChatFormatError:
            return False
        return [call.arguments for call in self.parse(self.encode(written)).tool_calls] == [_PROBE]
