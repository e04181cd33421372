"""What an agent of the user's own gets and gives back, and the models that answer it.

The plugin rlfactory-agents has the server and plays the attempts.
"""

from rlfactory_core.gateway.agent import Agent, AgentError, AgentResult, Endpoint

__all__ = ["Agent", "AgentError", "AgentResult", "Endpoint"]
