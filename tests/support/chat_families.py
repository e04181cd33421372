"""Every chat format with the published templates of its family and a tokenizer that fits them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Any

from chat_templates import HERMES, KIMI_THINKING, MISTRAL_V3, PHI4_MINI_TEMPLATE, PLAIN_CHATML
from chat_tokenizers import GEMMA3, PHI3, PHI4_MINI, Kind, llama4_template, make_tokenizer, published
from rlfactory_devkit.tokenizers import chat_template, families, tokenizer_kinds

from rlfactory_core.builtin import rlfactory_chat_formats
from rlfactory_core.chat.select import choose_format
from rlfactory_core.chat.template import TemplateFormat
from rlfactory_core.types import Message, ToolCall, ToolSpec

# The templates of `tiny_tokenizer` stand for their families, and for layouts that trl does not bring.
KIT_TEMPLATES = {f"own_{family}": chat_template(family) for family in families()}
OWN_TEMPLATES = {
    **KIT_TEMPLATES,
    "hermes_3": HERMES,
    "kimi_thinking": KIMI_THINKING,
    "llama4_processor": llama4_template(),
    "mistral_v3": MISTRAL_V3,
    "phi4_mini": PHI4_MINI_TEMPLATE,
    "plain_chatml": PLAIN_CHATML,
}
SEARCH = ToolSpec(
    "search",
    "Find „facts“.",
    {
        "type": "object",
        "properties": {"query": {"type": "string", "description": "What to look for."}, "top": {"type": "integer"}},
        "required": ["query"],
    },
)


@dataclass(frozen=True)
class Family:
    """A chat format's name, a tokenizer, and the templates that it fits."""

    name: str
    kind: Kind
    templates: tuple[str, ...]


PUBLISHED = {  # templates that trl brings, or this folder; each family has one of the kit's, too
    "qwen2.5": ("qwen2_5", "qwen2_5_training"),
    "qwen3": (
        *("qwen3", "qwen3_training", "qwen3_instruct_2507", "qwen3_instruct_2507_training"),
        *("qwen3_vl", "qwen3_vl_training", "hermes_3"),
    ),
    "qwen3-coder": (
        *("qwen3_5_think", "qwen3_5_think_training", "qwen3_5_nothink", "qwen3_5_nothink_training"),
        *("qwen3_6", "qwen3_6_training", "qwen3_8", "qwen3_8_training", "nemotron_3_nano"),
        *("nemotron_3_super", "nemotron_3_ultra", "nemotron_3_5_lightning"),
    ),
    "llama3": ("llama3", "llama3_training", "llama3_1", "llama3_2"),
    "llama4": ("llama4_processor",),
    "mistral": ("mistral_v3",),
    "deepseek-v3": ("deepseekv3", "deepseekv3_training", "deepseek_r1_distill", "deepseek_r1_distill_training"),
    "glm-4.5": ("glm4moe", "glm4moe_training"),
    "gpt-oss": ("gptoss", "gptoss_training"),
    "kimi-k2": ("kimi_thinking",),
    "lfm2": ("lfm2", "lfm2_training", "lfm2_v2", "lfm2_v2_training", "lfm2_2_5", "lfm2_2_5_v2", "lfm2_2_5_vl"),
    "gemma-4": ("gemma4", "gemma4_v2", "gemma4_v3", "gemma4_v4", "gemma4_v5"),
    "hermes": ("qwen2_5_vl", "plain_chatml"),
}
FAMILIES = (
    *(Family(name, kind, (f"own_{name}", *PUBLISHED.get(name, ()))) for name, kind in tokenizer_kinds().items()),
    Family("hermes", GEMMA3, ("gemma", "gemma_training", "gemma3", "gemma3_training")),
    Family("hermes", PHI4_MINI, ("phi4_mini",)),
    Family("hermes", PHI3, ("phi3", "phi3_training", "phi3_5", "phi3_5_training")),
)
TEMPLATES = [(family.name, template) for family in FAMILIES for template in family.templates]


def template(name: str) -> str:
    return OWN_TEMPLATES.get(name) or published(name)


def formats() -> dict[str, Any]:
    """The core's chat formats, by name, in the order of their registration."""
    found: dict[str, Any] = {}
    rlfactory_chat_formats(lambda name, factory, *_: found.setdefault(name, factory))
    return found


@cache
def make_format(template_name: str, thinking: bool = True) -> TemplateFormat:
    """The format that a model with this template gets; do not change it."""
    kind = next(family.kind for family in FAMILIES if template_name in family.templates)
    chat = choose_format(formats(), make_tokenizer(template(template_name), kind), thinking=thinking)
    assert isinstance(chat, TemplateFormat)
    return chat


def call(index: int, name: str, **arguments: object) -> ToolCall:
    return ToolCall(f"call_{index}", name, json.dumps(arguments, ensure_ascii=False), arguments)


def result(index: int, content: str) -> Message:
    return Message("tool", content, name="search", tool_call_id=f"call_{index}")
