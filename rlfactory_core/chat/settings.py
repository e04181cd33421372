"""The section of the configuration for the chat format."""

from __future__ import annotations

from rlfactory_core.settings import Section


class ChatConfig(Section):
    format: str = "auto"
    """The name of a registered chat format; auto: chosen by the model."""
    thinking: bool = True
    """Whether the model reasons before it answers, where its family can switch that."""
