"""Clients of model servers, for evaluation, model tools and judges."""

from rlfactory_core.clients.base import ServerModel
from rlfactory_core.clients.openai import OpenAIClient
from rlfactory_core.clients.replies import MAX_BYTES, bounded_request

__all__ = ["MAX_BYTES", "OpenAIClient", "ServerModel", "bounded_request"]
