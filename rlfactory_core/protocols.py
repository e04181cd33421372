"""The interfaces of the parts that a plugin can replace. An implementation need not inherit from them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from rlfactory_core.context import ToolContext
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
    Turn,
    Verdict,
)

__all__ = [
    "ChatFormat",
    "ChatFormatFactoryTraits",
    "ChatFormatTraits",
    "Env",
    "EnvStart",
    "EnvStep",
    "GroupScorer",
    "Model",
    "NeedsModelPool",
    "PoolRequest",
    "Request",
    "RewardFactoryTraits",
    "RewardScorer",
    "Sampled",
    "Sampler",
    "ScorerTraits",
    "Tool",
    "ToolManager",
    "ToolSource",
    "Verifier",
    "Vision",
]


@runtime_checkable
class Tool(Protocol):
    """A tool that the model can call."""

    spec: ToolSpec
    idempotent: bool  # whether a call may be retried
    stateful: bool  # whether results depend on more than the arguments; if so, they are never cached
    version: str  # a part of the cache's key that changes with the tool; if empty, results are not cached on disk
    deadline_s: float | None  # seconds for a call, unless the configuration has an override; None: the general deadline

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        """The result for the model.

        Raises:
            ToolError: the tool refuses the call; the model sees the message. Another exception is a fault, too, but
                its message is only logged.
        """

    async def close(self) -> None: ...


@runtime_checkable
class ToolSource(Protocol):
    """A source of tools that are known only after its start, such as MCP servers; an item of a task's ``tools``."""

    async def open(self, taken: Collection[str], group: str = "") -> Sequence[Tool]:
        """Start the source.

        Args:
            taken: names of other tools, which the new tools must not have.
            group: processes of one machine that open the same source in the same group may share its servers; empty:
                this process shares nothing.

        Raises:
            UsageError: the user can correct the cause, such as a server's configuration.
            BackendError: the source does not start or answer; the message has its error output.
        """

    async def close(self) -> None:
        """Called once, also after a failed `open`."""


class ToolManager(Protocol):
    """Owns the tools and makes their calls: validation, deadlines, limits, attribution of faults."""

    @property
    def specs(self) -> tuple[ToolSpec, ...]: ...

    async def invoke(self, calls: Sequence[ToolCall], context: ToolContext) -> tuple[ToolResult, ...]:
        """Make all calls of a turn in parallel; the results have the calls' order. A wrong call raises nothing."""

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class EnvStart:
    """The first observation of an episode."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    info: Mapping[str, Any] = field(default_factory=dict)  # as in `EnvStep`
    state: str = ""  # likewise


@dataclass(frozen=True, slots=True)
class EnvStep:
    """The environment's response to an assistant message."""

    messages: tuple[Message, ...] = ()  # the observation; may be empty only at the end
    stop: StopReason | None = None  # if set, the episode is over
    reward: float = 0.0
    results: tuple[ToolResult, ...] = ()
    info: Mapping[str, Any] = field(default_factory=dict)  # state for scorers as JSON data: `Trajectory.info`
    state: str = ""  # names the state in which the next turn begins; train.advantage=gigpo compares turns by it
    tools: tuple[ToolSpec, ...] | None = None
    """All that the model is offered from the next turn on; None: as before. Other tools begin a `types.Row`, whose
    prompt is the whole conversation with them; the task says so with `Task.changes_tools`."""


class Env(Protocol):
    """One episode; an object is used once.

    A `BackendError` of `start` or `step` is an infra fault: it ends the episode, which is played again or masked.
    An attribute ``deadline_s`` limits the seconds of ``start`` and of each ``step`` in place of the run's
    ``rollout.env_deadline_s``; calls that end by themselves have `math.inf`.
    """

    async def start(self) -> EnvStart: ...

    async def step(self, message: Message) -> EnvStep: ...

    async def close(self) -> None: ...


class ChatFormat(Protocol):
    """Converts messages to token ids and sampled ids to messages, for one model family."""

    name: str
    stop_token_ids: tuple[int, ...]

    def initial_ids(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> tuple[int, ...]:
        """The ids of the whole prompt, with the generation prompt."""

    def observation_ids(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """The ids that the chat template puts between a sampled stop token and the next sampled id."""

    def parse(self, sampled_ids: Sequence[int], tools: Sequence[ToolSpec] = ()) -> Message:
        """The sampled turn as a message. Never raises: a malformed call becomes text or a `ToolCall` with an ``error``.

        Args:
            tools: that the model was offered; families that write arguments without types need the schemas.
        """

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, with special tokens, for people to read."""

    def prove(self) -> None:
        """Check on this tokenizer that ids appended turn by turn are those of the rendered conversation.

        Raises:
            ChatFormatError: they differ; the message shows the first differing token.
        """

    def encode(self, text: str) -> tuple[int, ...]:
        """The ids of a text, in which the names of special tokens become these tokens."""


class Vision(Protocol):
    """How the model of a chat format sees images, each of which is a run of tokens in its ids."""

    reserved: Sequence[int]  # the ids of such tokens, which the model is kept from sampling

    def images_in(self, messages: Sequence[Message]) -> tuple[str, ...]:
        """The hashes of the images that the ids of these messages show, in order."""

    def inputs(self, ids: Any, images: Sequence[Sequence[str]]) -> Mapping[str, Any]:
        """What the model's forward pass needs beside ``input_ids``, as tensors; nothing if no row shows an image.

        Args:
            ids: a tensor [rows, tokens], padded on either side.
            images: the hashes of each row's images; further ones at the end, which its ids do not show, are ignored.

        Raises:
            ModelError: the ids show other images.
        """

    def save(self, folder: Path) -> None:
        """Write the files of the image processor into a model's folder."""


@dataclass(frozen=True, slots=True)
class ChatFormatTraits:
    """Optional attributes of a chat format, with their defaults."""

    written: Callable[[Message], str] | None = None
    """The text of an assistant message as a model of the family samples it, with the stop token.

    Supervised training, demonstrations and the turns that a bench plays need it."""
    vision: Vision | None = None  # of a model that sees images


@dataclass(frozen=True, slots=True)
class ChatFormatFactoryTraits:
    """Optional attributes of a chat format's factory, with their defaults."""

    matches: Callable[[str], bool] | None = None  # whether a chat template belongs to the family; None: chosen by name
    example: Callable[[], Any] | None = None  # a small tokenizer of the family, for ``rlfactory plugins check``
    sees_images: bool = False  # for models that see images, and chosen for these only


class Sampler(Protocol):
    """Samples token ids after token ids; it never decodes and encodes them again."""

    async def sample(self, ids: Sequence[int], params: SamplingParams, *, session: str) -> SampledTokens:
        """Sample a continuation of ``ids``.

        Args:
            session: the trajectory's name, under which the sampler may keep a cache. The ids of the next call in the
                session begin with the ids of this call and its result.
        """

    async def release(self, session: str) -> None:
        """Called when the trajectory is over; unknown sessions are ignored."""


@dataclass(frozen=True, slots=True)
class Request:
    """What a model is asked for: the next turn of a conversation."""

    messages: Sequence[Message]  # all that the turn sees
    tools: Sequence[ToolSpec]  # offered to the model
    params: SamplingParams
    ids: Sequence[int] = ()  # of the messages, as the model has seen and sampled them; empty for a model without ids
    session: str = ""  # names the sequence of ids: the next request's ids begin with these and the answer's


@dataclass(frozen=True, slots=True)
class Sampled:
    """A model's answer. A model behind a server gives no ids."""

    message: Message
    finish: Literal["stop", "length"] = "stop"
    prompt_tokens: int = 0  # of a server: as it counts them, or estimated
    sampled_tokens: int = 0  # likewise
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()  # as in `SampledTokens`
    version: int = 0  # likewise
    versions: tuple[int, ...] = ()  # likewise
    images: tuple[str, ...] = ()  # the hashes of all images that the model has seen in the messages

    def turn(self, context_ids: tuple[int, ...], images: int = 0) -> Turn:
        """The turn with this answer behind a context, before which the model has seen so many ``images``."""
        return Turn(
            context_ids,
            self.token_ids,
            self.logprobs,
            self.message,
            finish=self.finish,
            version=self.version,
            versions=self.versions,
            images=self.images[images:],
        )


class Model(Protocol):
    """Answers the next turn of a conversation: what a rollout, an agent's endpoint and an evaluation ask."""

    @property
    def chat(self) -> ChatFormat | None:
        """How conversations become ids; None: only the server knows, and requests have no ids."""

    async def answer(self, request: Request) -> Sampled | None:
        """The next turn; None if the conversation exceeds the model's context.

        Raises:
            BackendError: the model's server does not answer; an infra fault ends and masks the trajectory.
        """

    async def release(self, session: str) -> None:
        """Called when a session is over; unknown ones are ignored."""


class RewardScorer(Protocol):
    """Scores a trajectory, unweighted; a number is a `Score` of that value. Raises `VerifierError` if it cannot."""

    async def score(self, trajectory: Trajectory) -> Score | float: ...


class GroupScorer(Protocol):
    """Compares all attempts at one sample; returns one score for each trajectory, in order."""

    async def score_group(self, group: Group) -> Sequence[Score | float]: ...


class Verifier(Protocol):
    """Decides whether a trajectory succeeded. If it cannot, it returns ``passed=None`` or raises `VerifierError`."""

    async def verify(self, trajectory: Trajectory) -> Verdict: ...


@dataclass(frozen=True, slots=True)
class ScorerTraits:
    """Optional attributes of a scorer, group scorer or verifier, with their defaults."""

    inline: bool = False  # it computes quickly and never waits, so it runs without an asyncio task and a deadline
    deadline_s: float | None = None  # seconds, unless the configuration gives them; None: 60 s
    live_state: bool = False  # it reads state that no stored trajectory has, so ``rlfactory rescore`` refuses it
    opinion: bool = False  # a model decides, so checks require the full score of right answers only on average
    bounds: tuple[float, float] = (0.0, 1.0)  # the lowest and the highest unweighted score
    injections: Sequence[str] = ()  # texts for ``plugins redteam``, with ``{answer}`` for a wrong answer


@dataclass(frozen=True, slots=True)
class RewardFactoryTraits:
    """Optional attributes of the factory of a scorer or verifier, with their defaults."""

    settle: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    """Returns the options to save, which have the same meaning in another folder; see `LazyReward`."""
    at: Callable[[Mapping[str, Any], str], Mapping[str, Any]] | None = None
    """Returns the options with another address of the reward's model server, for ``--judge URL``; none: as ``url``."""


@dataclass(frozen=True, slots=True)
class PoolRequest:
    """A model that the engine should serve for a scorer, in addition to the trained one."""

    model: str  # a folder or a hub id
    gpus: int  # of each node
    tensor_parallel: int  # GPUs of one server


@runtime_checkable
class NeedsModelPool(Protocol):
    """Optional interface of a scorer, group scorer or verifier whose model the engine may serve."""

    @property
    def pool(self) -> PoolRequest | None:
        """None if the scorer's configuration needs no such model."""

    def use_pool(self, urls: Sequence[str], model: str) -> None:
        """Called before `ScorerLifecycle.open` if ``pool`` is not None.

        Args:
            urls: addresses of OpenAI-compatible servers.
            model: the served model's id.
        """
