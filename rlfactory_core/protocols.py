"""Behaviour: what a part must do to take its place. Implementations need not inherit from these.

Nothing here knows an engine, a model family or a task.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from rlfactory_core.stopping import StopButton
from rlfactory_core.tool_context import ToolContext
from rlfactory_core.types import (
    Group,
    Message,
    SampledTokens,
    SamplingParams,
    Score,
    StopReason,
    ToolCall,
    ToolResult,
    ToolSpec,
    Trajectory,
    Verdict,
)

if TYPE_CHECKING:
    from rlfactory_core.config import RunConfig
    from rlfactory_core.plugins.registry import Registry
    from rlfactory_core.reporting.folder import RunFolder
    from rlfactory_core.reporting.progress import Progress
    from rlfactory_core.task import Task

__all__ = [
    "ChatFormat",
    "Engine",
    "EngineRun",
    "Env",
    "EnvStart",
    "EnvStep",
    "GroupScorer",
    "Opened",
    "PoolRequest",
    "Pooled",
    "RewardScorer",
    "Sampler",
    "Tool",
    "ToolManager",
    "ToolSource",
    "Verifier",
]


@runtime_checkable
class Tool(Protocol):
    """One callable tool. ``call`` may raise `ToolError` to say no; any other exception is a tool fault too."""

    spec: ToolSpec
    idempotent: bool  # may be retried
    stateful: bool  # results depend on more than the arguments: never cached
    version: str  # a part of the cache's key: what else than the arguments decides; empty: cannot be told, not on disk
    deadline_s: float | None  # the tool's own, where the configuration gives none by name; None: that of all tools

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> str: ...

    async def close(self) -> None: ...


@runtime_checkable
class ToolSource(Protocol):
    """Gives tools that are known only once something runs, such as MCP servers; stands among a task's ``tools``."""

    async def open(self, taken: Collection[str], group: str = "") -> Sequence[Tool]:
        """Start it.

        Args:
            taken: names of other tools, which these do not have.
            group: processes of a machine that open the same source in the same group may share what runs; empty: this
                process is alone.

        Raises:
            UsageError: what the user can mend, such as a server's configuration.
            BackendError: it does not start or answer, with its own words.
        """
        ...

    async def close(self) -> None:
        """Called once, also after a failed `open`."""
        ...


class ToolManager(Protocol):
    """Owns the tools' life cycle and the one call contract: validation, deadlines, limits, fault attribution."""

    @property
    def specs(self) -> tuple[ToolSpec, ...]: ...

    async def invoke(self, calls: Sequence[ToolCall], context: ToolContext) -> tuple[ToolResult, ...]:
        """All calls of a turn in parallel; results in the calls' order. Never raises for what the model wrote."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class EnvStart:
    """How an episode begins."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()


@dataclass(frozen=True, slots=True)
class EnvStep:
    """What the environment answers to an assistant message."""

    messages: tuple[Message, ...] = ()  # the observation; may be empty only when done
    stop: StopReason | None = None  # set: the episode is over
    reward: float = 0.0
    results: tuple[ToolResult, ...] = ()


class Env(Protocol):
    """A single-use episode."""

    async def start(self) -> EnvStart: ...

    async def step(self, message: Message) -> EnvStep: ...

    async def close(self) -> None: ...


class ChatFormat(Protocol):
    """One model family: how messages become token ids and sampled ids become messages."""

    name: str
    stop_token_ids: tuple[int, ...]

    def initial_ids(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> tuple[int, ...]:
        """The whole prompt, generation prompt included."""
        ...

    def observation_ids(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """What the chat template puts between a sampled stop token and the next sampled id."""
        ...

    def parse(self, sampled_ids: Sequence[int], tools: Sequence[ToolSpec] = ()) -> Message:
        """Never raises: what is not a call becomes text or a `ToolCall` with an ``error``.

        Args:
            tools: what the model was offered; families that write arguments without types need the schemas.
        """
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, special tokens included, for people to read."""
        ...

    def prove(self) -> None:
        """Show on this tokenizer that appending turn by turn gives the ids of the full render.

        Raises:
            ChatFormatError: at the first differing token. A family whose template rewrites history says what it does.
        """
        ...

    def encode(self, text: str) -> tuple[int, ...]:
        """The ids of a text in which special tokens are meant as such: demonstrations, proofs, counting."""
        ...


class Sampler(Protocol):
    """Gives tokens. Token-in, token-out: ids are never decoded on the way."""

    async def sample(self, ids: Sequence[int], params: SamplingParams, *, session: str) -> SampledTokens:
        """Continue ``ids``.

        ``session`` names the trajectory: a sampler may keep its cache under that name, and the next call's ids then
        begin with all the ids of this call and its answer.
        """
        ...

    async def release(self, session: str) -> None:
        """The trajectory is over; unknown sessions are ignored."""
        ...


class RewardScorer(Protocol):
    """Gives a trajectory its (unweighted) score. Raise `VerifierError` where it cannot be found out."""

    async def score(self, trajectory: Trajectory) -> Score: ...


class GroupScorer(Protocol):
    """Scores all attempts at one sample against each other; one score per trajectory, in order."""

    async def score_group(self, group: Group) -> Sequence[Score]: ...


class Verifier(Protocol):
    """Finds out by executing or asking. ``passed=None`` or `VerifierError`: could not be found out."""

    async def verify(self, trajectory: Trajectory) -> Verdict: ...


@runtime_checkable
class Opened(Protocol):
    """What a scorer, group scorer or verifier has besides where it holds something, such as connections or a client."""

    async def open(self, task: Task) -> None:
        """Called once, after the task is open and before anything is scored; what the task offers may be used.

        Raises:
            UsageError: the task or the options do not fit, in words for the user.
            BackendError: a service that scoring needs does not answer.
        """
        ...

    async def close(self) -> None:
        """Called once, before the task is closed, also after a failed `open`."""
        ...


@dataclass(frozen=True, slots=True)
class PoolRequest:
    """A model that a scorer wants served by the engine, apart from the one that is trained."""

    model: str  # a folder or a hub id
    gpus: int  # of each node
    tensor_parallel: int  # GPUs that one server spans


@runtime_checkable
class Pooled(Protocol):
    """What a scorer, group scorer or verifier has besides where an engine may serve a model for it."""

    @property
    def pool(self) -> PoolRequest | None:
        """None: it needs none, as it is configured."""
        ...

    def use_pool(self, urls: Sequence[str], model: str) -> None:
        """Called before `Opened.open` where ``pool`` is not None.

        Args:
            urls: OpenAI-compatible addresses.
            model: the served model's id.
        """
        ...


@dataclass(frozen=True, slots=True)
class EngineRun:
    """One run, as an engine gets it.

    Args:
        resume: go on from the folder's latest checkpoint.
        stop: to be armed by a loop that looks at it; asked once the user, or a part of the run, wants a stop
            after the step under way.
    """

    config: RunConfig
    registry: Registry
    folder: RunFolder
    progress: Progress
    resume: bool = False
    stop: StopButton = field(default_factory=StopButton)


class Engine(Protocol):
    """Owns the weights and the training loop; writes metrics, trajectories and checkpoints into the run's folder."""

    def prepare(self, config: RunConfig) -> RunConfig:
        """The configuration completed for this machine (device, worker processes).

        Raises:
            UsageError: what this engine cannot do, before anything costly happens.
        """
        ...

    def train(self, run: EngineRun) -> dict[str, Any]:
        """Train, evaluate before and after; returns what ``summary.json`` holds.

        Raises:
            RunStopped: the user or a part of the run stopped it; everything up to the last whole step is saved.
        """
        ...

    def evaluate(self, run: EngineRun) -> dict[str, Any]:
        """Only evaluate; returns the flat map of the results."""
        ...
