"""Rollouts: the loop that generates, parses and calls tools until an episode ends, and the default environment."""

from rlfactory_core.rollout.env_calls import ask_env
from rlfactory_core.rollout.episode import Episode, RolloutLimits
from rlfactory_core.rollout.loop import rollout
from rlfactory_core.rollout.models import RepeatingModel, TokenModel, vision_of
from rlfactory_core.rollout.tool_env import ToolEnv

__all__ = ["Episode", "RepeatingModel", "RolloutLimits", "TokenModel", "ToolEnv", "ask_env", "rollout", "vision_of"]
