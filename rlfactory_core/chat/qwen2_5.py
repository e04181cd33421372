"""Qwen2.5: the turns and calls of Qwen3 without thinking, and a system prompt of its own where there is none.

Its template rewrites nothing.
"""

from __future__ import annotations

from rlfactory_core.chat.qwen3 import Qwen3Format


class Qwen25Format(Qwen3Format):
    """A `ChatFormat`; see `TemplateFormat` for arguments and errors."""

    name = "qwen2.5"

    @staticmethod
    def matches(chat_template: str) -> bool:
        own = "You are Qwen, created by Alibaba Cloud" in chat_template and "<think>" not in chat_template
        return own and Qwen3Format.matches(chat_template)
