"""Families whose calls are parameters in tags, each between tags of the family's own.

- `MinimaxFormat` is MiniMax M2. Its template drops thinking before the last user message.
- `DsmlFormat` is DeepSeek-V3.2 and V4, whose tags hold the mark ``｜DSML｜``. DeepSeek publishes code and no template;
  the templates that llama.cpp wrote for it drop thinking before the last user message. That of V3.2 writes an empty
  block before a turn without thinking, and only its closing tag in past turns.
- `SeedOssFormat` is Seed-OSS, with Qwen3-Coder's functions between ``<seed:tool_call>`` tags. Its template keeps
  thinking. It writes lists and objects in past calls as Python, which is read back as text.
"""
# ruff: noqa: RUF001, RUF002 - the bars in DeepSeek's tokens look like others

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

from rlfactory_core.chat.hermes import HermesFormat
from rlfactory_core.chat.parsers.invoke import invoke_syntax
from rlfactory_core.chat.parsers.qwen3_coder import BODY, read_tagged_function
from rlfactory_core.chat.parsers.turn import Syntax, read_turn
from rlfactory_core.chat.template import TemplateFormat
from rlfactory_core.types import Message, ToolSpec

_MARK = "｜DSML｜"
_SEED_OPEN, _SEED_CLOSE = "<seed:tool_call>", "</seed:tool_call>"


class MinimaxFormat(TemplateFormat):
    """MiniMax M2: calls as named parameters between ``<minimax:tool_call>`` tags."""

    name = "minimax-m2"
    marks = ("<minimax:tool_call>", "]~b]")
    stops = ("[e~[",)
    block = re.compile(r"(?<=\]~b\]ai\n)<think>\n.*?</think>\n\n", re.DOTALL)
    keeps = HermesFormat.keeps
    forgetful = HermesFormat.forgetful

    def parse_text(self, text: str, tools: Sequence[ToolSpec]) -> Message:
        return parse_minimax(text, tools, thinking_open=self.thinking_open)


class DsmlFormat(MinimaxFormat):
    """DeepSeek-V3.2 and V4: calls as named parameters in tags with the mark ``｜DSML｜``."""

    name = "deepseek-v3.2"
    marks = (_MARK, "<｜Assistant｜>")
    stops = ("<｜end▁of▁sentence｜>",)
    block = re.compile(r"(?:<think>(?:(?!</think>).)*)?</think>", re.DOTALL)

    def parse_text(self, text: str, tools: Sequence[ToolSpec]) -> Message:
        return parse_dsml(text, tools, thinking_open=self.thinking_open)

    def past_prompt(self, prompt: str) -> str:
        return re.sub("<think></think>$", "</think>", prompt)


class SeedOssFormat(TemplateFormat):
    """Seed-OSS: Qwen3-Coder's functions between ``<seed:tool_call>`` tags."""

    name = "seed-oss"
    marks = (_SEED_OPEN, "<seed:think>")
    stops = ("<seed:eos>",)

    def knows_thinking(self) -> bool:
        return True

    def parse_text(self, text: str, tools: Sequence[ToolSpec]) -> Message:
        return parse_seed_oss(text, tools, thinking_open=self.thinking_open)


def parse_minimax(text: str, tools: Sequence[ToolSpec] = (), *, thinking_open: bool = False) -> Message:
    """Read one assistant turn; see `read_turn` for thinking and limits, and `invoke_syntax` for calls."""
    return read_turn(text, tools, _MINIMAX, thinking_open=thinking_open)


def parse_dsml(text: str, tools: Sequence[ToolSpec] = (), *, thinking_open: bool = False) -> Message:
    """Read one assistant turn; see `read_turn` for thinking and limits, and `invoke_syntax` for calls.

    Blocks of both versions are read, ``function_calls`` and ``tool_calls``.
    """
    return read_turn(text, tools, *_DSML, thinking_open=thinking_open)


def parse_seed_oss(text: str, tools: Sequence[ToolSpec] = (), *, thinking_open: bool = False) -> Message:
    """Read one assistant turn; see `read_turn` for thinking and limits, and `parse_qwen3_coder` for values."""
    return read_turn(text, tools, _SEED_OSS, thinking=("<seed:think>", "</seed:think>"), thinking_open=thinking_open)


_MINIMAX = invoke_syntax("<minimax:tool_call>", "</minimax:tool_call>")
_DSML = tuple(invoke_syntax(f"<{_MARK}{tag}>", f"</{_MARK}{tag}>", _MARK) for tag in ("function_calls", "tool_calls"))
_SEED_OSS = Syntax(
    _SEED_OPEN,
    partial(read_tagged_function, opener=_SEED_OPEN, close=_SEED_CLOSE),
    f"{_SEED_OPEN}{BODY}{_SEED_CLOSE}",
    re.compile(f"{_SEED_OPEN}|(?P<close>{_SEED_CLOSE})"),
    close=_SEED_CLOSE,
)
