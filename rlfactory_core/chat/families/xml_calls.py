"""Families whose calls are parameters in tags, each between tags of the family's own.

- `MinimaxFormat` is MiniMax M2. Its template drops thinking before the last user message.
- `DsmlFormat` is DeepSeek-V3.2 and V4, whose tags hold the mark ``｜DSML｜``. DeepSeek publishes code and no template;
  the templates that llama.cpp wrote for it drop thinking before the last user message. That of V3.2 writes an empty
  block before a turn without thinking, and only its closing tag in past turns.
- `HunyuanFormat` is Hunyuan v3 (Tencent's Hy3), whose tokens end with ``:opensource``. Its template empties thinking
  before the last user message if no tools are offered, and writes the end of the last turn only if it calls tools.
- `SeedOssFormat` is Seed-OSS, with Qwen3-Coder's functions between ``<seed:tool_call>`` tags, but without line breaks
  around values. Its template keeps thinking. It writes lists and objects in past calls as Python, which is read back as
  text.

MiniMax's and DeepSeek's calls are blocks of ``<invoke name="NAME"><parameter name="KEY">VALUE</parameter>…</invoke>``,
and Hunyuan's of ``<tool_call>NAME<tool_sep><arg_key>KEY</arg_key><arg_value>VALUE</arg_value>…</tool_call>``. A block
that is not closed holds no calls and is one error. A value ends at the first end tag and is taken as it is.
DeepSeek's tags say whether a value is a string, else it is JSON; other values have the types of the offered tool's
schema (`typed`).
"""
# ruff: noqa: RUF001, RUF002 - the bars in DeepSeek's tokens look like others

from __future__ import annotations

import re
from functools import partial
from typing import Any

from rlfactory_core.chat.parsers.json_calls import read_whole, typed
from rlfactory_core.chat.parsers.tagged import BODY, VERBATIM, Arguments, read_tagged_function
from rlfactory_core.chat.parsers.turn import CallObject, Parser, Syntax, TurnReader, between, named, read_block
from rlfactory_core.chat.template import TemplateFormat
from rlfactory_core.types import ToolSpec

_MARK = "｜DSML｜"
_SEED_OPEN, _SEED_CLOSE = "<seed:tool_call>", "</seed:tool_call>"


def _invoke_syntax(opener: str, close: str, mark: str = "") -> Syntax:
    """The syntax of a block between ``opener`` and ``close``; ``mark`` stands within each tag, before its name."""
    string = ' string="true|false"' if mark else ""
    parameter = f'<{mark}parameter name="KEY"{string}>VALUE</{mark}parameter>'
    arguments = Arguments(
        re.compile(rf'<{mark}parameter name="([^"<>\n]*)"(?: string="(true|false)")?>'),
        re.compile(rf"(?P<close></{mark}parameter>\s*)|<{mark}parameter |<{mark}invoke |</{mark}invoke>"),
        f"</{mark}invoke>",
        "a parameter",
        _value,
    )
    head = re.compile(rf'<{mark}invoke name="([^"<>\n]*)">\s*')
    return _block(opener, close, head, arguments, f'<{mark}invoke name="NAME">{parameter}…</{mark}invoke>')


def _block(opener: str, close: str, head: re.Pattern[str], arguments: Arguments, body: str) -> Syntax:
    """The syntax of a block of calls; ``head`` matches a call's beginning, and its first group is the name."""
    read = partial(read_block, close=close, read=partial(_read_call, head, arguments))
    return between(opener, close, read, body)


def _read_call(head: re.Pattern[str], arguments: Arguments, turn: TurnReader, start: int) -> CallObject:
    begin = named(head, turn.text, start, "no call with a name begins")
    return arguments.read(turn, begin.end(), begin[1])


def _value(text: str, head: re.Match[str], tool: ToolSpec | None) -> Any:
    if head[2] is None:
        return typed(text, tool, head[1])
    return text if head[2] == "true" else read_whole(text)


_read_seed = partial(read_tagged_function, opener=_SEED_OPEN, close=_SEED_CLOSE, arguments=VERBATIM)
_END = ":opensource>"  # of Hunyuan's tags
_PAIRS = Arguments(
    re.compile(rf"<arg_key{_END}([^<]*)</arg_key{_END}\s*<arg_value{_END}"),
    re.compile(rf"(?P<close></arg_value{_END}\s*)|</?(?:tool_calls?|tool_sep|arg_key|arg_value){_END}"),
    f"</tool_call{_END}",
    f"<arg_key{_END}KEY</arg_key{_END}<arg_value{_END}VALUE</arg_value{_END}",
)
_NAMED = re.compile(rf"<tool_call{_END}\s*+([^<\s]*)\s*+<tool_sep{_END}\s*")
_BODY = f"<tool_call{_END}NAME<tool_sep{_END}{_PAIRS.form}…{_PAIRS.close}"
parse_hunyuan = Parser(
    (_block(f"<tool_calls{_END}", f"</tool_calls{_END}", _NAMED, _PAIRS, _BODY),),
    thinking=(f"<think{_END}", f"</think{_END}"),
)
parse_minimax = Parser((_invoke_syntax("<minimax:tool_call>", "</minimax:tool_call>"),))
parse_dsml = Parser(  # both versions' blocks
    tuple(_invoke_syntax(f"<{_MARK}{tag}>", f"</{_MARK}{tag}>", _MARK) for tag in ("function_calls", "tool_calls"))
)
_SEED = between(_SEED_OPEN, _SEED_CLOSE, _read_seed, BODY)
parse_seed_oss = Parser((_SEED,), thinking=("<seed:think>", "</seed:think>"))


class MinimaxFormat(TemplateFormat):
    """MiniMax M2: calls as named parameters between ``<minimax:tool_call>`` tags."""

    name = "minimax-m2"
    marks = ("<minimax:tool_call>", "]~b]")
    stops = ("[e~[",)
    block = re.compile(r"(?<=\]~b\]ai\n)<think>\n.*?</think>\n\n", re.DOTALL)
    parser = parse_minimax


class DsmlFormat(MinimaxFormat):
    """DeepSeek-V3.2 and V4: calls as named parameters in tags with the mark ``｜DSML｜``."""

    name = "deepseek-v3.2"
    marks = (_MARK, "<｜Assistant｜>")
    stops = ("<｜end▁of▁sentence｜>",)
    block = re.compile(r"(?:<think>(?:(?!</think>).)*)?</think>", re.DOTALL)
    parser = parse_dsml

    def past_prompt(self, prompt: str) -> str:
        return re.sub("<think></think>$", "</think>", prompt)


class HunyuanFormat(TemplateFormat):
    """Hunyuan v3: calls as keys and values in tags that end with ``:opensource``."""

    name = "hunyuan-v3"
    marks = ("hy_Assistant", ":opensource", "tool_sep")
    stops = ("<｜hy_eos:opensource｜>",)
    think = f"<think{_END}"
    block = re.compile(rf"(?<={think})(?:(?!</think{_END}).)+(?=</think{_END})", re.DOTALL)
    parser = parse_hunyuan
    thinks = True


class SeedOssFormat(TemplateFormat):
    """Seed-OSS: Qwen3-Coder's functions between ``<seed:tool_call>`` tags."""

    name = "seed-oss"
    marks = (_SEED_OPEN, "<seed:think>")
    stops = ("<seed:eos>",)
    parser = parse_seed_oss
    thinks = True
