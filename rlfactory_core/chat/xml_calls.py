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
from functools import partial

from rlfactory_core.chat.parsers.invoke import invoke_syntax
from rlfactory_core.chat.parsers.qwen3_coder import BODY, read_tagged_function
from rlfactory_core.chat.parsers.turn import Parser, between
from rlfactory_core.chat.template import TemplateFormat

_MARK = "｜DSML｜"
_SEED_OPEN, _SEED_CLOSE = "<seed:tool_call>", "</seed:tool_call>"

_SEED = between(_SEED_OPEN, _SEED_CLOSE, partial(read_tagged_function, opener=_SEED_OPEN, close=_SEED_CLOSE), BODY)

parse_minimax = Parser((invoke_syntax("<minimax:tool_call>", "</minimax:tool_call>"),))
parse_dsml = Parser(  # both versions' blocks
    tuple(invoke_syntax(f"<{_MARK}{tag}>", f"</{_MARK}{tag}>", _MARK) for tag in ("function_calls", "tool_calls"))
)
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


class SeedOssFormat(TemplateFormat):
    """Seed-OSS: Qwen3-Coder's functions between ``<seed:tool_call>`` tags."""

    name = "seed-oss"
    marks = (_SEED_OPEN, "<seed:think>")
    stops = ("<seed:eos>",)
    parser = parse_seed_oss

    def knows_thinking(self) -> bool:
        return True
