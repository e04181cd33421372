"""An episode before it is played: the sample, its environment, and the limits and seeds of the attempt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rlfactory_core.context import ToolContext
from rlfactory_core.protocols import Env
from rlfactory_core.rollout.history import KEEP, History
from rlfactory_core.rollout.settings import RolloutConfig
from rlfactory_core.types import PROMPT, Fault, FaultKind, Sample

MakeEnv = Callable[[Sample, ToolContext], Env]


@dataclass(frozen=True, slots=True)
class RolloutLimits:
    """The limits of one attempt; see `config.RolloutConfig`."""

    max_turns: int
    max_tool_calls: int  # over the trajectory
    max_turn_tokens: int  # sampled in one turn
    max_tokens: int  # context and sampled, over the trajectory
    env_s: float = 600.0  # for an environment's start, and for each step

    @classmethod
    def of(cls, config: RolloutConfig) -> RolloutLimits:
        tokens = config.max_turn_tokens, config.max_tokens
        return cls(config.max_turns, config.max_tool_calls, *tokens, config.env_deadline_s)

    def no_room(self) -> Fault:
        """Of an attempt in which no token could be sampled. It masks the attempt: the policy has done nothing yet."""
        words = f"it leaves no room for an answer in rollout.max_tokens={self.max_tokens}, or in the model's context"
        return Fault(FaultKind.INFRA, PROMPT, words, 0)


@dataclass(frozen=True, slots=True)
class Episode:
    """One attempt at a sample, before it is played."""

    sample: Sample
    make_env: MakeEnv  # called once; the environment is always closed once
    limits: RolloutLimits
    session: str  # unique among the rollouts of a sampler; also the tool context's ``trajectory_id``
    attempt: int = 0
    temperature: float = 1.0
    top_p: float = 1.0
    seed: int = 0
    history: History = KEEP
    changes_tools: bool = True  # as `Task.changes_tools`
