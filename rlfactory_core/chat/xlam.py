"""xLAM 2 (Salesforce): calls as a bare JSON list at the beginning of a turn, ``[{"name": …, "arguments": {…}}, …]``.

The templates, one with Llama 3's turns and one with ChatML's, show the tools in the system message and leave out text
beside calls. A list within other text, in a code fence or between tags is content, where vLLM's parser finds calls. A
list that is not closed holds no calls and is one error.
"""

from __future__ import annotations

import re

from rlfactory_core.chat.parsers.json_calls import read_call_list
from rlfactory_core.chat.parsers.turn import Parser, Syntax, Turn, read_or_refuse
from rlfactory_core.chat.template import TemplateFormat

_BEGINS = re.compile(r'\s*(?=\[\s*\{\s*"name"\s*:)')


def _read_lists(turn: Turn, position: int) -> int:
    while found := _BEGINS.match(turn.text, position):
        position = read_or_refuse(turn, _LIST, found.end())
    return position


def _read_list(turn: Turn, start: int) -> int:
    found = read_call_list(turn, start)
    return turn.add(*found.calls, end=found.end)


_LIST = Syntax("", _read_list, '[{"name": "NAME", "arguments": {…}}, …]', re.compile(r'\[\s*\{\s*"name"\s*:'))
parse_xlam = Parser((), at_start=_read_lists)


class XlamFormat(TemplateFormat):
    """xLAM 2: calls as a bare JSON list."""

    name = "xlam"
    marks = ("Salesforce xLAM",)
    stops = ("<|eot_id|>", "<|im_end|>", "<|end_of_text|>", "<|endoftext|>")
    parser = parse_xlam
    beside = False
