"""The recipe of a task's tiny model, and the texts of calls and answers in the demonstrations that it learns from.

The engine `local` builds this model if the user names none with ``--model``; see ``engines/local/tiny``.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlfactory_core.types import Message, ToolCall, ToolSpec

__all__ = [
    "ANSWER_CLOSE",
    "ANSWER_OPEN",
    "Demonstration",
    "TinyModelRecipe",
    "WarmStartStage",
    "answer_text",
    "call",
    "call_text",
    "calls_text",
    "tools_prompt",
]

ANSWER_OPEN = "<answer>"
ANSWER_CLOSE = "</answer>"
CALL_OPEN, CALL_CLOSE = "<tool_call>", "</tool_call>"

Demonstration = tuple[Message, ...]
"""The messages of an episode: user, assistant, tool, …

An assistant message has its calls in ``tool_calls``, and the chat format writes them. Or its ``content`` is the raw
text, with the calls in it.
"""


@dataclass(frozen=True, slots=True)
class WarmStartStage:
    """One stage of supervised training on the assistant tokens of demonstrations."""

    demonstrate: Callable[[random.Random], Demonstration]
    max_steps: int
    batch: int  # demonstrations in a step
    target: float = 0.0  # if positive, the stage ends when the accuracy on the probe reaches it
    context_weight: float = 0.0  # loss weight of the other tokens after the prompt


@dataclass(frozen=True, slots=True)
class TinyModelRecipe:
    """A model of Qwen3's architecture with a byte-level BPE tokenizer, and a short supervised training.

    The accuracy on the probe is the share of assistant turns in which the model, given the true tokens before, predicts
    every token.
    """

    architecture: Mapping[str, Any]  # fields of Qwen3Config
    vocabulary: Callable[[], Iterable[str]]  # texts for training the tokenizer
    vocab_size: int
    stages: tuple[WarmStartStage, ...]
    probe: Callable[[random.Random], Demonstration]  # demonstrations that no stage shows
    fingerprint: str  # changes whenever one of the functions above changes
    lr: float = 3e-3
    muon_lr: float = 0.02
    warmup_steps: int = 20
    options: Mapping[str, Any] = field(default_factory=dict)
    tools: tuple[ToolSpec, ...] | None = None  # that the prompts show; None: the tools of the task
    chat_template: str = ""  # empty: Qwen3's own
    special_tokens: tuple[str, ...] = ()  # of the template, in addition to Qwen3's; the first one ends a turn


def tools_prompt(tools: Sequence[ToolSpec]) -> str:
    """The description of tools in Qwen3's prompt. In ``vocabulary`` it makes the tokenizer encode it in few tokens."""
    return _TOOLS.format(tools="\n".join(json.dumps(tool.function_schema) for tool in tools))


def call_text(tool: str, arguments: Mapping[str, Any] | str) -> str:
    """A tool call in the format of Qwen3 and Hermes; ``arguments`` may be JSON text."""
    text = arguments if isinstance(arguments, str) else json.dumps(dict(arguments))
    return f'{CALL_OPEN}\n{{"name": {json.dumps(tool)}, "arguments": {text}}}\n{CALL_CLOSE}'


def calls_text(message: Message) -> str:
    """The `call_text` of each call of a message, separated by line breaks."""
    return "\n".join(call_text(call.name, call.arguments or {}) for call in message.tool_calls)


def call(tool: str, **arguments: Any) -> ToolCall:
    """A valid call, for `Task.solve`."""
    text = json.dumps(arguments, ensure_ascii=False)
    return ToolCall(f"call_{tool}", tool, text, arguments)


def answer_text(answer: str) -> str:
    """A final answer in its tags. The spaces let the tokenizer split its words as in other text."""
    return f"{ANSWER_OPEN} {answer} {ANSWER_CLOSE}"


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
