"""Clients of model servers, for evaluation, model tools and judges."""

from rlfactory_core.clients.openai import OpenAIClient, ServerModel
from rlfactory_core.clients.replies import MAX_BYTES, bounded_request
from rlfactory_core.clients.teacher import ServerTeacher
from rlfactory_core.clients.wire import REASONING_KEYS

__all__ = ["MAX_BYTES", "REASONING_KEYS", "OpenAIClient", "ServerModel", "ServerTeacher", "bounded_request"]
