"""What an agent of the user's own gets and gives back, and what plays its attempts.

The plugin rlfactory-agents has the server and plays the attempts.
"""

from rlfactory_core.gateway.agent import MODEL, Agent, AgentConfig, AgentError, AgentPlayer, AgentResult, Endpoint

__all__ = ["MODEL", "Agent", "AgentConfig", "AgentError", "AgentPlayer", "AgentResult", "Endpoint"]
