"""Rollouts: the loop that generates, parses and calls tools until an episode ends, and the default environment."""

from rlfactory_core.rollout.dialogue import (
    USER_STOP,
    DialogueEnv,
    Persona,
    SimulatedUser,
    UserReply,
    open_user,
    user_fault,
)
from rlfactory_core.rollout.env_calls import ask_env
from rlfactory_core.rollout.episode import Episode, RolloutLimits
from rlfactory_core.rollout.loop import rollout
from rlfactory_core.rollout.models import RepeatingModel, TokenModel, vision_of
from rlfactory_core.rollout.settings import UserOptions
from rlfactory_core.rollout.tool_env import ToolEnv
from rlfactory_core.rollout.written import WrittenModel

__all__ = [
    "USER_STOP",
    "DialogueEnv",
    "Episode",
    "Persona",
    "RepeatingModel",
    "RolloutLimits",
    "SimulatedUser",
    "TokenModel",
    "ToolEnv",
    "UserOptions",
    "UserReply",
    "WrittenModel",
    "ask_env",
    "open_user",
    "rollout",
    "user_fault",
    "vision_of",
]
