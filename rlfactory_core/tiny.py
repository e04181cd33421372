"""The recipe of a task's own tiny model: what the embedded engine builds where no ``--model`` is given.

Plain data and pure functions of a task; how it is built and trained stands in ``engines/local/warmstart``.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlfactory_core.types import Message, ToolCall, ToolSpec

__all__ = [
    "Demonstration",
    "TinyModelRecipe",
    "WarmStartStage",
    "answer_text",
    "call",
    "call_text",
    "tools_prompt",
]

Demonstration = tuple[Message, ...]
"""A whole episode: user, assistant, tool, …

An assistant's calls stand in its ``tool_calls`` and are written by the chat format; or its ``content`` is its raw text,
calls included.
"""


@dataclass(frozen=True, slots=True)
class WarmStartStage:
    """One stretch of supervised training on the model's own tokens of demonstrations."""

    demonstrate: Callable[[random.Random], Demonstration]
    max_steps: int
    batch: int
    target: float = 0.0  # >0: end as soon as the held-out copy accuracy reaches this
    context_weight: float = 0.0  # loss weight of the tokens that are not the model's own


@dataclass(frozen=True, slots=True)
class TinyModelRecipe:
    """Qwen3 architecture, byte-level BPE and a short supervised warm start.

    ``probe`` gives held-out clean demonstrations; a stage with a target ends when, teacher-forced, the answers'
    and queries' tokens named by ``probe_tokens`` are predicted with that accuracy.
    """

    architecture: Mapping[str, Any]  # Qwen3Config fields
    vocabulary: Callable[[], Iterable[str]]  # texts to train the tokenizer on
    vocab_size: int
    stages: tuple[WarmStartStage, ...]
    probe: Callable[[random.Random], Demonstration]
    fingerprint: str  # of everything above that a hash cannot see: the task's version of its generators
    lr: float = 3e-3
    muon_lr: float = 0.02
    warmup_steps: int = 20
    options: Mapping[str, Any] = field(default_factory=dict)
    tools: tuple[ToolSpec, ...] | None = None  # that the model is shown; none: those among the task's ``tools``
    chat_template: str = ""  # empty: Qwen3's own
    special_tokens: tuple[str, ...] = ()  # that the template writes besides Qwen3's; the first one ends a turn


def tools_prompt(tools: Sequence[ToolSpec]) -> str:
    """What Qwen3's chat template tells the model of its tools: for ``vocabulary``, so that it becomes few tokens."""
    schemas = [{"name": t.name, "description": t.description, "parameters": dict(t.parameters)} for t in tools]
    return _TOOLS.format(tools="\n".join(json.dumps({"type": "function", "function": schema}) for schema in schemas))


def call_text(tool: str, arguments: Mapping[str, Any]) -> str:
    """A tool call as Qwen3 writes it, for demonstrations."""
    return f"<tool_call>\n{json.dumps({'name': tool, 'arguments': dict(arguments)})}\n</tool_call>"


def call(tool: str, **arguments: Any) -> ToolCall:
    """A well-formed call, for `Task.solve`."""
    text = json.dumps(arguments, ensure_ascii=False)
    return ToolCall(f"call_{tool}", tool, text, arguments)


def answer_text(answer: str) -> str:
    """A final answer in its tags; the spaces make its words the tokens that they are elsewhere."""
    return f"<answer> {answer} </answer>"


_TOOLS = """system
# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{tools}
</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{{"name": <function-name>, "arguments": <args-json-object>}}
</tool_call>"""
