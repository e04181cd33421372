"""An episode before it is played: the sample, its environment, and the limits and seeds of the attempt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from rlfactory_core.context import ToolContext
from rlfactory_core.protocols import Env
from rlfactory_core.rollout.history import KEEP, History
from rlfactory_core.rollout.settings import RolloutConfig
from rlfactory_core.types import PROMPT, Fault, FaultKind, Sample, SamplingParams
from rlfactory_core.utils.seeds import derive_seed

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
        words = f"it leaves no room for an answer in rollout.max_tokens={self.max_tokens}, or in the server's context"
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

    def attempts(self, number: int) -> tuple[Episode, ...]:
        """As many attempts, of which i has the seed ``derive_seed(seed, sample.id, i)`` and ``"<session>/<i>"``."""
        return tuple(
            replace(self, attempt=i, seed=derive_seed(self.seed, self.sample.id, i), session=f"{self.session}/{i}")
            for i in range(number)
        )

    def sampling(
        self, turn: int, room: int, stop_token_ids: tuple[int, ...] = (), seed: int | None = None
    ) -> SamplingParams:
        """The parameters for a turn, with a seed derived from the episode's.

        Args:
            room: tokens left for the trajectory.
            seed: in the place of the episode's.
        """
        seed = derive_seed(self.seed if seed is None else seed, turn)
        limit = min(self.limits.max_turn_tokens, room)
        return SamplingParams(limit, self.temperature, self.top_p, stop_token_ids, seed)
