"""The rollout loop: the model samples a turn, the turn is parsed, its calls are made, until the episode ends.

All engines use it, so that the same sampled ids give the same trajectory. A `Speaker` asks the model for its turns: in
tokens, which are never decoded and encoded again (`rollout`), or in messages (`chat_rollout`).
"""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import count
from typing import Any, Protocol, TypeVar

from rlfactory_core.clients.base import ChatClient
from rlfactory_core.config.sections import RolloutConfig
from rlfactory_core.context import ToolContext
from rlfactory_core.errors import BackendError, PluginError
from rlfactory_core.images import NAME
from rlfactory_core.protocols import ChatFormat, Env, EnvStart, EnvStep, Sampler, Vision
from rlfactory_core.rollout.history import KEEP, SUMMARIZE, SUMMARIZED, History, with_notes
from rlfactory_core.types import (
    Fault,
    FaultKind,
    Group,
    Message,
    Sample,
    SamplingParams,
    StopReason,
    ToolResult,
    ToolSpec,
    Trajectory,
    Turn,
)
from rlfactory_core.utils.aio import gather_all
from rlfactory_core.utils.seeds import derive_seed

_log = logging.getLogger(__name__)
T = TypeVar("T")
MakeEnv = Callable[[Sample, ToolContext], Env]


@dataclass(frozen=True, slots=True)
class RolloutLimits:
    """The limits of one attempt; see `config.RolloutConfig`."""

    max_turns: int
    max_tool_calls: int  # over the trajectory
    max_turn_tokens: int  # sampled in one turn
    max_tokens: int  # context and sampled, over the trajectory

    @classmethod
    def of(cls, config: RolloutConfig) -> RolloutLimits:
        return cls(config.max_turns, config.max_tool_calls, config.max_turn_tokens, config.max_tokens)


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

    def sampling(self, turn: int, room: int, stop_token_ids: tuple[int, ...] = ()) -> SamplingParams:
        """The parameters for a turn, with a seed derived from the episode's.

        Args:
            room: tokens left for the trajectory.
        """
        limit, seed = min(self.limits.max_turn_tokens, room), derive_seed(self.seed, turn)
        return SamplingParams(limit, self.temperature, self.top_p, stop_token_ids, seed)


class Speaker(Protocol):
    """Asks a model for the turns of one episode."""

    def start(self, start: EnvStart) -> None: ...

    async def shorten(self, number: int) -> Turn | None:
        """Change what turn ``number`` sees of earlier ones. A turn is a summary, which the environment never sees."""
        ...

    async def say(self, number: int) -> Turn | None:
        """Turn ``number`` (from 0), without the environment's response; None if no token fits into the budget.

        Raises:
            BackendError: the model's server does not answer; an infra fault ends and masks the trajectory.
        """
        ...

    def hear(self, messages: Sequence[Message]) -> None:
        """Take the environment's response to the last turn."""
        ...

    async def close(self) -> None: ...


async def rollout(episode: Episode, chat: ChatFormat, sampler: Sampler) -> Trajectory:
    """One attempt at a sample.

    If a token budget cuts a turn, the trajectory ends with ``LENGTH``; the turn's message is parsed, but its calls are
    not made. An observation after which no token fits ends it in the same way, and is not part of the ids. If a turn
    has more calls than ``max_tool_calls`` leaves, none of them is made, and the trajectory ends with ``TOOL_BUDGET``.
    If the prompt fills ``max_tokens``, the trajectory has no turns. If ``episode.history``
    changes what a later turn sees, that turn begins a row, and ``max_tokens`` holds for each row.

    Args:
        sampler: gets the same list of ids at each turn, longer each time; it must not keep or change it.

    Raises:
        ValueError: the sampler returned different numbers of ids and log-probs.
        PluginError: the environment does not keep the contract of `protocols.Env`.
        Exception: whatever the sampler or a custom environment raises.
    """
    return await play_episode(episode, _TokenSpeaker(episode, chat, sampler))


async def chat_rollout(episode: Episode, client: ChatClient) -> Trajectory:
    """One attempt at a sample in messages, for a model that only a server knows; it stops as `rollout` does.

    Its turns have no token ids, so the trajectory can be scored and read, but not trained on. ``max_tokens`` is
    compared with the server's token count of the last prompt and answer, so one observation may exceed it. If the
    server reports no counts, only ``max_turn_tokens`` holds. If the client fails, the trajectory ends with an infra
    fault, which masks it.
    """
    return await play_episode(episode, _MessageSpeaker(episode, client))


async def rollout_group(episode: Episode, attempts: int, play: Callable[[Episode], Awaitable[Trajectory]]) -> Group:
    """Play all attempts at one sample concurrently.

    Attempt i is the episode with the seed ``derive_seed(seed, sample.id, i)`` and the session ``"<session>/<i>"``. If
    one raises, the others are cancelled and awaited.
    """
    sample, seed, session = episode.sample, episode.seed, episode.session
    trajectories = await gather_all(
        play(replace(episode, attempt=i, seed=derive_seed(seed, sample.id, i), session=f"{session}/{i}"))
        for i in range(attempts)
    )
    return Group(sample, tuple(trajectories))


async def play_episode(episode: Episode, speaker: Speaker) -> Trajectory:
    """Play an episode with any speaker; the speaker and the environment are always closed once."""
    sample, limits = episode.sample, episode.limits
    started = time.perf_counter()
    context = ToolContext(episode.session, sample)
    env = episode.make_env(sample, context)
    turns: list[Turn] = []
    faults: list[Fault] = []
    info: dict[str, Any] = {}
    start, stop = EnvStart(()), StopReason.FAULT
    try:
        start = await ask_env(env, "start", EnvStart)
        info.update(start.info)
        state = start.state
        speaker.start(start)
        calls_left = limits.max_tool_calls
        for number in count():
            try:
                if number and (summary := await speaker.shorten(number)):
                    turns.append(summary)
                turn = await speaker.say(number)
            except BackendError as error:
                faults.append(Fault(FaultKind.INFRA, "model", str(error), len(turns)))
                stop = StopReason.FAULT
                break
            if turn is None:
                stop = StopReason.LENGTH
                break
            calls_left -= len(turn.message.tool_calls)
            before = time.perf_counter()
            step = await _step(env, turn, calls_left)
            tools_s = time.perf_counter() - before
            turns.append(replace(turn, results=step.results, reward=step.reward, tools_s=tools_s, state=state))
            state = step.state
            faults += _faults(step, len(turns) - 1)
            info.update(step.info)
            if step.stop is not None:
                stop = step.stop
                break
            if number + 1 >= limits.max_turns:
                stop = StopReason.MAX_TURNS
                break
            speaker.hear(step.messages)
    except BackendError as error:  # of the environment's start
        faults.append(Fault(FaultKind.INFRA, "env", str(error), 0))
    finally:
        try:
            await speaker.close()
        finally:
            try:
                await ask_env(env, "close", object)
            finally:
                await context.end()
    seconds = time.perf_counter() - started
    return Trajectory(
        sample, episode.attempt, tuple(turns), stop, tuple(faults), seconds=seconds, tools=start.tools, info=info
    )


class _TokenSpeaker:
    """A `Speaker` that asks a sampler and keeps all ids so far."""

    def __init__(self, episode: Episode, chat: ChatFormat, sampler: Sampler) -> None:
        self._episode, self._chat, self._sampler = episode, chat, sampler
        self._ids: list[int] = []
        self._context: tuple[int, ...] = ()  # what the next turn appends before it samples
        self._tools: tuple[ToolSpec, ...] = ()
        self._prompt: tuple[Message, ...] = ()
        self._messages: tuple[Message, ...] = ()  # all that the next turn sees
        self._heard: tuple[Message, ...] = ()  # the last of them, since the last turn
        self._row, self._fork = 0, ""
        self._vision: Vision | None = getattr(chat, "vision", None)
        self._seen = 0  # images in the row

    def start(self, start: EnvStart) -> None:
        self._tools, self._prompt = start.tools, start.messages
        self._messages = start.messages
        self._context = self._chat.initial_ids(start.messages, start.tools)

    async def shorten(self, number: int) -> Turn | None:
        history, ids = self._episode.history, (*self._ids, *self._context)
        if history.asks_summary(len(ids)):
            return await self._summarize(number)
        changed = history.changed(self._chat, self._episode.sample, self._messages, self._tools, ids)
        if changed is not None:
            await self._begin_row(*changed)
        return None

    async def say(self, number: int) -> Turn | None:
        return await self._sample(self._episode, number)

    async def _summarize(self, number: int) -> Turn | None:
        """Ask for a summary after all that was heard, and begin a row with it; None if no token fits."""
        self._context = self._chat.observation_ids((*self._heard, SUMMARIZE))
        seeded = replace(self._episode, seed=derive_seed(self._episode.seed, "summary"))
        turn = await self._sample(seeded, number)
        if turn is not None:
            turn = replace(turn, message=replace(turn.message, tool_calls=()))  # nobody makes them
            messages = with_notes(self._prompt, turn.message.content)
            await self._begin_row(SUMMARIZED, messages, self._chat.initial_ids(messages, self._tools))
        return turn

    async def _begin_row(self, fork: str, messages: Sequence[Message], context: tuple[int, ...]) -> None:
        await self._sampler.release(self._session)
        self._fork, self._messages, self._context = fork, tuple(messages), context
        self._ids, self._row, self._seen = [], self._row + 1, 0

    async def _sample(self, episode: Episode, number: int) -> Turn | None:
        ids, context, most = self._ids, self._context, episode.limits.max_tokens
        if len(ids) + len(context) >= most:
            return None
        ids += context
        images = self._images()
        params = episode.sampling(number, most - len(ids), self._chat.stop_token_ids)
        params = replace(params, images=images) if images else params
        before = time.perf_counter()
        sampled = await self._sampler.sample(ids, params, session=self._session)
        sample_s = time.perf_counter() - before
        if len(sampled.token_ids) != len(sampled.logprobs):
            raise ValueError(
                f"the sampler gave {len(sampled.token_ids)} ids and {len(sampled.logprobs)} log-probs; "
                "each sampled id needs its own."
            )
        ids += sampled.token_ids
        message, fork = self._chat.parse(sampled.token_ids, self._tools), self._fork
        self._messages, self._fork = (*self._messages, message), ""
        images, self._seen = images[self._seen :], len(images)
        return Turn(
            context_ids=context,
            sampled_ids=sampled.token_ids,
            logprobs=sampled.logprobs,
            message=message,
            finish=sampled.finish,
            version=sampled.version,
            versions=sampled.versions,
            sample_s=sample_s,
            row=self._row,
            fork=fork,
            images=images,
        )

    def _images(self) -> tuple[str, ...]:
        """The images of the row so far, if the model sees them."""
        if self._vision is not None:
            return self._vision.images_in(self._messages)
        if any(NAME.search(message.content) for message in self._messages):
            _say_unseen(self._chat.name)
        return ()

    def hear(self, messages: Sequence[Message]) -> None:
        self._heard = tuple(messages)
        self._messages = (*self._messages, *messages)
        self._context = self._chat.observation_ids(messages)

    async def close(self) -> None:
        await self._sampler.release(self._session)

    @property
    def _session(self) -> str:
        return f"{self._episode.session}#{self._row}" if self._row else self._episode.session


class _MessageSpeaker:
    """A `Speaker` that asks a chat client and keeps the conversation."""

    def __init__(self, episode: Episode, client: ChatClient) -> None:
        self._episode, self._client = episode, client
        self._messages: list[Message] = []
        self._tools: tuple[ToolSpec, ...] = ()
        self._used = 0  # tokens of the whole conversation, as the server counts

    def start(self, start: EnvStart) -> None:
        self._messages += start.messages
        self._tools = start.tools

    async def shorten(self, number: int) -> Turn | None:
        return None

    async def say(self, number: int) -> Turn | None:
        left = self._episode.limits.max_tokens - self._used
        if left <= 0:
            return None
        params = self._episode.sampling(number, left)
        before = time.perf_counter()
        completion = await self._client.complete(self._messages, self._tools, params)
        sample_s = time.perf_counter() - before
        if completion is None:
            return None
        self._used = completion.prompt_tokens + completion.sampled_tokens
        self._messages.append(completion.message)
        return Turn((), (), (), completion.message, finish=completion.finish, sample_s=sample_s)

    def hear(self, messages: Sequence[Message]) -> None:
        self._messages += messages

    async def close(self) -> None:
        """The client outlives the episode."""


@cache
def _say_unseen(chat: str) -> None:
    _log.warning("The chat format %s has no images: the model reads the name of an image in its place.", chat)


async def _step(env: Env, turn: Turn, calls_left: int) -> EnvStep:
    """The environment's step, or the end if a budget has run out."""
    if turn.finish == "length":
        return EnvStep(stop=StopReason.LENGTH)
    if calls_left < 0:
        return EnvStep(stop=StopReason.TOOL_BUDGET)
    try:
        step = await ask_env(env, "step", EnvStep, turn.message)
    except BackendError as error:
        failed = ToolResult("", "env", "", FaultKind.INFRA, reason=str(error))
        return EnvStep(stop=StopReason.FAULT, results=(failed,))
    if step.stop is None and not step.messages:
        raise PluginError(
            f"{type(env).__name__}.step returned an EnvStep with neither messages nor a stop; expected what the model "
            "reads next, or why the episode is over, such as EnvStep(stop=StopReason.ENV_DONE)."
        )
    return step


async def ask_env(env: Env, name: str, expected: type[T], *arguments: Any) -> T:
    """Call a method of an environment, which an author may have written otherwise than the contract says.

    Raises:
        PluginError: the method is missing, is not async, or returns something else.
    """
    method = getattr(env, name, None)
    if method is None:
        raise PluginError(
            f"The environment is {env!r:.80}, which has no method {name}; expected async methods start, step and close."
        )
    given = method(*arguments)
    if not inspect.isawaitable(given):
        raise PluginError(f"{type(env).__name__}.{name} is not async; write `async def {name}(…)`.")
    value = await given
    if not isinstance(value, expected):
        raise PluginError(f"{type(env).__name__}.{name} returned {value!r:.80}; expected {expected.__name__}.")
    return value


def _faults(step: EnvStep, turn: int) -> list[Fault]:
    found = [
        Fault(result.fault, result.name, result.reason or result.content, turn)
        for result in step.results
        if result.fault
    ]
    if step.stop is StopReason.FAULT and not any(fault.kind is FaultKind.INFRA for fault in found):
        found.append(Fault(FaultKind.INFRA, "env", "the environment ended the episode with a fault", turn))
    return found
