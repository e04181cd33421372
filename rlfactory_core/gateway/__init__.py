"""The endpoint through which an agent that is not ours plays a task: in any framework, in any language."""

from rlfactory_core.gateway.agent import Agent, AgentError, AgentResult
from rlfactory_core.gateway.server import Endpoint

__all__ = ["Agent", "AgentError", "AgentResult", "Endpoint"]
