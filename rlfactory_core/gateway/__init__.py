"""Agents of the user's own: the address of the model that they get, and what they return.

The plugin rlfactory-agents has the server and plays the attempts.
"""

from rlfactory_core.gateway.agent import MODEL, Agent, AgentError, AgentResult, Endpoint
from rlfactory_core.gateway.settings import AgentConfig

__all__ = ["MODEL", "Agent", "AgentConfig", "AgentError", "AgentResult", "Endpoint"]
