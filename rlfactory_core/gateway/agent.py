"""What an agent gets, the address of its model, what it gives back, and its section of the configuration."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Annotated, Any, Protocol

from pydantic import Field

from rlfactory_core.protocols import Model
from rlfactory_core.rollout import Episode
from rlfactory_core.settings import Natural, Positive, Section
from rlfactory_core.types import Sample, Trajectory
from rlfactory_core.utils.text import to_text

MODEL = "policy"  # the served model's name


class AgentConfig(Section):
    """An agent that is a program of the user's own, instead of the task's environment and tools."""

    command: str = ""
    """Such as ``python my_agent.py``; empty: the task's own loop."""
    environment: tuple[str, ...] = ()
    """Names of variables that the program gets beside those of the model's address."""
    workers: Natural = 0
    """Processes that play one attempt after the other; 0: a fresh process for each attempt."""
    concurrency: Positive = 16
    """Processes of the program at once, if each attempt has one of its own; the other attempts wait."""
    deadline_s: Annotated[float, Field(gt=0.0)] = 600.0
    """For one attempt."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of the model for one trajectory. The key names the trajectory, and is valid until it ends.

    Args:
        url: for SDKs of OpenAI's kind, such as ``http://127.0.0.1:40123/v1``.
        key: the API key, a secret.
        model: the model's name.
    """

    url: str
    key: str
    model: str = MODEL

    @property
    def anthropic_url(self) -> str:
        """For SDKs of Anthropic's kind, which add ``/v1`` themselves."""
        return self.url.removesuffix("/v1")

    @property
    def environment(self) -> dict[str, str]:
        """The variables from which SDKs read an address and a key."""
        return {
            "OPENAI_BASE_URL": self.url,
            "OPENAI_API_BASE": self.url,
            "OPENAI_API_KEY": self.key,
            "OPENAI_MODEL": self.model,
            "ANTHROPIC_BASE_URL": self.anthropic_url,
            "ANTHROPIC_API_KEY": self.key,
            "ANTHROPIC_MODEL": self.model,
            "NO_PROXY": "127.0.0.1,localhost",
            "no_proxy": "127.0.0.1,localhost",
        }


Agent = Callable[[Sample, Endpoint], Awaitable[Any]]
"""Plays one attempt: asks the model at the endpoint, and returns what `AgentResult.of` reads."""

_KEYS = {"answer", "reward", "metadata"}


class AgentPlayer(Protocol):
    """Plays attempts with one agent."""

    async def open(self) -> None:
        """Start the gateway."""

    async def close(self) -> None:
        """End what is left of the agents, and the gateway; it may be called before `open`, and repeatedly."""

    async def play(self, episode: Episode, model: Model) -> Trajectory:
        """One attempt, not scored."""


class AgentError(Exception):
    """An agent has failed by itself: it raised, exited with an error, or gave something else than an answer."""


@dataclass(frozen=True, slots=True)
class AgentResult:
    """What an agent gives back.

    Args:
        answer: that the rewards see; None: it has none.
        reward: of its own, added to the trajectory's.
        metadata: JSON data for scorers, in `Trajectory.info`.
    """

    answer: str | None
    reward: float = 0.0
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, value: Any) -> AgentResult:
        """Read a text, a number, None, a mapping with ``answer``, ``reward`` or ``metadata``, or any JSON value.

        Raises:
            AgentError: the reward is not a finite number, or the metadata not a mapping.
        """
        if isinstance(value, AgentResult):
            return value
        if not (isinstance(value, Mapping) and value and set(value) <= _KEYS):
            return cls(None if value is None else to_text(value))
        reward, metadata, answer = value.get("reward") or 0.0, value.get("metadata") or {}, value.get("answer")
        if not isinstance(reward, (int, float)) or not isfinite(reward):
            raise AgentError(f"its reward is {reward!r:.80}; expected a finite number")
        if not isinstance(metadata, Mapping):
            raise AgentError(f"its metadata is {metadata!r:.80}; expected an object")
        scored = answer is None and value.get("reward") is not None
        return cls("" if scored else None if answer is None else to_text(answer), float(reward), dict(metadata))
