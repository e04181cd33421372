"""Clients of model servers, for evaluation, model tools and judges."""

from rlfactory_core.clients.base import ChatClient, Completion
from rlfactory_core.clients.openai import OpenAIClient

__all__ = ["ChatClient", "Completion", "OpenAIClient"]
