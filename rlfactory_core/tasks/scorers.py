"""The scorers of a task: which there are, what they weigh, and their life cycle."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, runtime_checkable

from rlfactory_core.errors import UsageError
from rlfactory_core.protocols import NeedsModelPool, PoolRequest
from rlfactory_core.rewards.layer import RewardLayer
from rlfactory_core.rewards.scorers import ENV_REWARD
from rlfactory_core.tasks.task import Task
from rlfactory_core.types import Sample


@runtime_checkable
class ScorerLifecycle(Protocol):
    """Optional life cycle of a scorer that holds a resource, such as connections or a client."""

    async def open(self, task: Task) -> None:
        """Called once, after the task is open and before the first score.

        Raises:
            UsageError: the task or the options do not fit.
            BackendError: a service that scoring needs does not answer.
        """

    async def close(self) -> None:
        """Called once, before the task is closed, also after a failed `open`."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model that the engine serves for scorers."""

    urls: tuple[str, ...]  # of its OpenAI-compatible servers, each ending with /v1
    model: str  # its id there


@dataclass(frozen=True, slots=True)
class Scorers:
    """The scorers and verifiers of a task."""

    weighted: Mapping[str, tuple[Any, float]]  # scorer and weight by the reward's key
    layer: RewardLayer

    @classmethod
    def of(
        cls,
        weighted: Mapping[str, tuple[Any, float]],
        deadlines: Mapping[str, float] = {},
        copies: Mapping[str, str] = {},
    ) -> Self:
        """The scorers with a `RewardLayer` that runs them; it says what the arguments are, and what is raised."""
        return cls(weighted, RewardLayer(weighted, deadlines=deadlines, copies=copies))

    @property
    def success(self) -> str:
        """The key that means success: ``exact_match`` or ``env_reward`` if there is one, else the largest weight."""
        weighted = self.weighted
        by_weight = max(weighted, key=lambda key: weighted[key][1], default="")
        return next((key for key in ("exact_match", ENV_REWARD) if key in weighted), by_weight)

    @property
    def weights(self) -> Mapping[str, float]:
        """By the reward's key; 0: it is only measured."""
        return {key: weight for key, (_, weight) in self.weighted.items()}

    @property
    def opinions(self) -> tuple[str, ...]:
        """The keys of the scorers that a model decides."""
        return tuple(key for key, traits in self.layer.traits.items() if traits.opinion)

    @property
    def pools(self) -> Mapping[str, PoolRequest]:
        """The models that the engine should serve, by the reward's key."""
        pooled = {key: item.pool for key, (item, _) in self.weighted.items() if isinstance(item, NeedsModelPool)}
        return {key: pool for key, pool in pooled.items() if pool is not None}

    async def open(self, task: Task, served: ServedModel | None, but: Collection[str] = ()) -> None:
        """Open the scorers that have a life cycle, in order, except for the keys in ``but``; raises what they raise."""
        for key, (scorer, _) in self.weighted.items():
            if served is not None and key in self.pools:
                scorer.use_pool(served.urls, served.model)
            if isinstance(scorer, ScorerLifecycle) and key not in but:
                await scorer.open(task)

    def check(self, samples: Sequence[Sample]) -> None:
        """Let the scorers with a method ``check_samples`` see them before anything costly; raises what they raise."""
        for scorer, _ in self.weighted.values():
            if hasattr(scorer, "check_samples"):
                scorer.check_samples(samples)

    async def close(self) -> None:
        """Close the scorers that have a life cycle, opened or not."""
        for scorer, _ in self.weighted.values():
            if isinstance(scorer, ScorerLifecycle):
                await scorer.close()


def refuse_pools(pools: Collection[str], able: Sequence[str] = ()) -> None:
    """Raise a `UsageError` if a scorer needs a model served by the engine; for engines that serve none.

    Args:
        pools: the keys of such rewards.
        able: names of engines that serve models.
    """
    other = " or ".join(f"--engine {name}" for name in able) or "another engine"
    for key in pools:
        raise UsageError(
            f"rewards.{key}: placement=pool needs an engine that serves the model on GPUs of its own, and this one "
            f"does not. Use {other}, or serve the model yourself (vllm serve, or any other OpenAI-compatible server), "
            "give its address as url, and leave placement out."
        )
