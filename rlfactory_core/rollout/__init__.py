"""Rollouts: the loop that generates, parses and calls tools until an episode ends, and the default environment."""

from rlfactory_core.rollout.episode import Episode, RolloutLimits
from rlfactory_core.rollout.loop import chat_rollout, play_episode, rollout, rollout_group
from rlfactory_core.rollout.tool_env import ToolEnv

__all__ = ["Episode", "RolloutLimits", "ToolEnv", "chat_rollout", "play_episode", "rollout", "rollout_group"]
