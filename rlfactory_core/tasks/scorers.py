"""Makes, opens and closes the scorers of a run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from inspect import isfunction
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from rlfactory_core.errors import ConfigError, UsageError
from rlfactory_core.plugins.loading import takes
from rlfactory_core.plugins.registry import Registry
from rlfactory_core.protocols import NeedsModelPool, PoolRequest
from rlfactory_core.rewards.layer import RewardLayer
from rlfactory_core.rewards.scorers import ENV_REWARD
from rlfactory_core.rewards.settings import RewardConfig
from rlfactory_core.rewards.trl import reward_of
from rlfactory_core.tasks.task import Task
from rlfactory_core.types import Sample

if TYPE_CHECKING:
    from rlfactory_core.config import RunConfig


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
class TaskScorers:
    """All scorers and verifiers of a run."""

    weighted: Mapping[str, tuple[Any, float]]  # scorer and weight by the reward's key
    layer: RewardLayer

    @classmethod
    def make(cls, config: RunConfig, registry: Registry, task: Task) -> TaskScorers:
        """Make the scorers that the configuration names, else those of the task.

        Raises:
            ConfigError: there is none, or the options of one do not fit.
            PluginError: no plugin registers one of the names.
        """
        wanted = wanted_rewards(config, task)
        weighted = {reward.key: (_make(reward, registry), reward.weight) for reward in wanted}
        deadlines = {reward.key: reward.deadline_s for reward in wanted if reward.deadline_s is not None}
        return cls(weighted, RewardLayer(weighted, deadlines=deadlines))

    @property
    def success(self) -> str:
        """The key that means success: ``exact_match`` or ``env_reward`` if there is one, else the largest weight."""
        weighted = self.weighted
        by_weight = max(weighted, key=lambda key: weighted[key][1])
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

    def refuse_pools(self, able: Sequence[str] = ()) -> None:
        """Raise a `UsageError` if a scorer needs a model served by the engine; for engines that serve none.

        Args:
            able: names of engines that serve models.
        """
        other = " or ".join(f"--engine {name}" for name in able) or "another engine"
        for key in self.pools:
            raise UsageError(
                f"rewards.{key}: placement=pool needs an engine that serves the model on GPUs of its own, and this "
                f"one does not. Use {other}, or serve the model yourself (vllm serve, or any other "
                "OpenAI-compatible server), give its address as url, and leave placement out."
            )

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


def wanted_rewards(config: RunConfig, task: Task) -> Sequence[RewardConfig]:
    """The rewards of the configuration, else those of the task.

    Raises:
        ConfigError: there is none.
    """
    wanted = config.rewards or tuple(RewardConfig(name=name, weight=weight) for name, weight in task.rewards.items())
    if not wanted:
        raise ConfigError(
            f"The run has no reward: {type(task).__name__}.rewards is empty, and at least one scorer is "
            "needed. If the environment gives the whole reward (EnvStep.reward), write rewards = {'env_reward': 0.0} "
            "and set the range of the reward: reward_bounds = (0.0, 1.0)."
        )
    if any(reward.name == ENV_REWARD and reward.weight for reward in wanted):
        raise ConfigError(
            f"The reward {ENV_REWARD} has a weight. What the environment gives (EnvStep.reward) is a part of the "
            "reward without a scorer, so a weight would count it twice. Write the weight 0, which shows it as a metric."
        )
    return wanted


def _make(reward: RewardConfig, registry: Registry) -> Any:
    registration = registry.find(reward.name, "reward_scorer", "verifier")
    try:
        made = registration.make(**reward.options)
        return reward_of(made) if isfunction(made) else made
    except TypeError as error:
        if takes(registration.factory, **reward.options):
            raise  # a bug in the scorer
        given = f"with the options {', '.join(reward.options)}" if reward.options else "without options"
        raise ConfigError(
            f"Reward '{reward.name}' cannot be made {given}: {error}. Beside name, label, weight and deadline_s, a "
            "reward takes only options of its own; those without a default have to be given."
        ) from error
