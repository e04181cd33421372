"""A conversation with a model and a task's tools, turn by turn, in which turns can be changed.

The run's own loop plays it. `_Held` stands between the loop and the model, and lets the model answer when the user says
so. To go back, the episode begins anew in a fresh environment: the turns that stay are given again and not sampled, and
their calls are made again, because tools and environments may keep state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Protocol, TypeVar

from rlfactory_core.chat.parsers.hermes import parse_hermes
from rlfactory_core.clients.base import ChatClient, Completion
from rlfactory_core.errors import UsageError
from rlfactory_core.protocols import ChatFormat, Env, EnvStart, EnvStep, Sampler
from rlfactory_core.rollout import Episode
from rlfactory_core.rollout.env_calls import ask_env
from rlfactory_core.tasks.runtime import TaskRuntime
from rlfactory_core.tiny import calls_text
from rlfactory_core.types import Message, Sample, SampledTokens, SamplingParams, ToolResult, ToolSpec, Trajectory
from rlfactory_core.utils.seeds import derive_seed

Answer = TypeVar("Answer")  # `SampledTokens` of an engine, `Completion` of a server


@dataclass(frozen=True, slots=True)
class Draw:
    """How the model shall say a turn."""

    temperature: float = 0.0  # 0 is greedy
    seed: int = 0


@dataclass(frozen=True, slots=True)
class PlayedTurn:
    """A turn for a reader."""

    text: str  # as the model wrote it, without the token that ends a turn
    message: Message
    edited: bool = False
    results: tuple[ToolResult, ...] = ()
    heard: tuple[Message, ...] = ()  # what the environment said to it


class _Held(Generic[Answer]):
    """Gives the kept answers, then lets the model answer one question at a time."""

    def __init__(self, kept: Sequence[Answer]) -> None:
        self.said: list[Answer] = []
        self.waiting = 0  # questions that nobody has answered; an agent can ask several at once
        self.changed = asyncio.Event()
        self._kept: list[Answer] = list(kept)
        self._orders: asyncio.Queue[Draw] = asyncio.Queue()

    def tell(self, draw: Draw) -> None:
        self._orders.put_nowait(draw)

    async def answer(self, ask: Callable[[Draw], Awaitable[Answer | None]]) -> Answer | None:
        if self._kept:
            found: Answer | None = self._kept.pop(0)
        else:
            self.waiting += 1
            self.changed.set()
            draw = await self._orders.get()
            self.waiting -= 1
            found = await ask(draw)
        if found is not None:
            self.said.append(found)
        self.changed.set()
        return found


class PlayModel(Protocol[Answer]):
    """What a conversation asks for its turns."""

    def play(self, runtime: TaskRuntime, episode: Episode, held: _Held[Answer]) -> Awaitable[Trajectory]:
        """One attempt, in which ``held`` decides when the model answers."""
        ...

    def read(self, answer: Answer, tools: Sequence[ToolSpec]) -> tuple[str, Message]:
        """A turn's text, and what it means."""
        ...

    def write(self, text: str, tools: Sequence[ToolSpec]) -> Answer:
        """The turn that the user writes instead of the model."""
        ...


class TokenPlayModel:
    """The model of an engine; a turn is its tokens."""

    def __init__(self, chat: ChatFormat, sampler: Sampler) -> None:
        self._chat, self._sampler = chat, sampler

    def play(self, runtime: TaskRuntime, episode: Episode, held: _Held[SampledTokens]) -> Awaitable[Trajectory]:
        return runtime.rollout(episode, self._chat, _HeldSampler(self._sampler, held))

    def read(self, answer: SampledTokens, tools: Sequence[ToolSpec]) -> tuple[str, Message]:
        ids = answer.token_ids
        shown = ids[:-1] if ids and ids[-1] in self._chat.stop_token_ids else ids
        return self._chat.decode(shown), self._chat.parse(ids, tools)

    def write(self, text: str, tools: Sequence[ToolSpec]) -> SampledTokens:
        ids = (*self._chat.encode(text), self._chat.stop_token_ids[0])
        return SampledTokens(ids, (0.0,) * len(ids), "stop")


class _HeldSampler:
    def __init__(self, sampler: Sampler, held: _Held[SampledTokens]) -> None:
        self._sampler, self._held, self.release = sampler, held, sampler.release

    async def sample(self, ids: Sequence[int], params: SamplingParams, *, session: str) -> SampledTokens:
        def ask(draw: Draw) -> Awaitable[SampledTokens]:
            return self._sampler.sample(ids, _drawn(params, draw), session=session)

        said = await self._held.answer(ask)
        assert said is not None
        return said


class ServedPlayModel:
    """A model behind a server; a turn is a message, and its text is written as Qwen and Hermes write it."""

    def __init__(self, client: ChatClient) -> None:
        self._client = client

    def play(self, runtime: TaskRuntime, episode: Episode, held: _Held[Completion]) -> Awaitable[Trajectory]:
        return runtime.chat_rollout(episode, _HeldClient(self._client, held))

    def read(self, answer: Completion, tools: Sequence[ToolSpec]) -> tuple[str, Message]:
        message = answer.message
        return "\n".join(part for part in (message.content, calls_text(message)) if part), message

    def write(self, text: str, tools: Sequence[ToolSpec]) -> Completion:
        return Completion(parse_hermes(text, tools))


class _HeldClient:
    def __init__(self, client: ChatClient, held: _Held[Completion]) -> None:
        self._client, self._held = client, held

    async def complete(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], params: SamplingParams
    ) -> Completion | None:
        return await self._held.answer(lambda draw: self._client.complete(messages, tools, _drawn(params, draw)))


def _drawn(params: SamplingParams, draw: Draw) -> SamplingParams:
    return replace(params, temperature=draw.temperature, seed=derive_seed(params.seed, draw.seed))


@dataclass(slots=True)
class _Watched:
    """Remembers what an environment said."""

    env: Env
    prompt: EnvStart | None = None
    steps: list[EnvStep] = field(default_factory=list)

    async def start(self) -> EnvStart:
        self.prompt = await ask_env(self.env, "start", EnvStart)
        return self.prompt

    async def step(self, message: Message) -> EnvStep:
        step = await ask_env(self.env, "step", EnvStep, message)
        self.steps.append(step)
        return step

    async def close(self) -> None:
        await ask_env(self.env, "close", object)


class Play(Generic[Answer]):
    """A conversation; call `begin` first and `close` last."""

    def __init__(self, runtime: TaskRuntime, model: PlayModel[Answer]) -> None:
        self.runtime = runtime
        self.sample = Sample("", "")
        self.own = False  # whether the question is the user's, so that nothing can score the answer
        self.ended: Trajectory | None = None  # scored, unless the question is the user's own
        self._model: PlayModel[Answer] = model
        self._edited: frozenset[int] = frozenset()
        self._held: _Held[Answer] = _Held(())
        self._env: _Watched | None = None
        self._episode: asyncio.Task[Trajectory] | None = None

    async def begin(self, sample: Sample, *, own: bool = False, turns: Sequence[tuple[str, bool]] = ()) -> None:
        """Start a conversation about a sample.

        Args:
            own: the question is the user's own.
            turns: with which it begins: the text of each as in `PlayedTurn`, and whether the user has changed it.
        """
        tools = self.tools or self.runtime.manager.specs
        self.sample, self.own = sample, own
        self._edited = frozenset(number for number, (_, edited) in enumerate(turns) if edited)
        await self._play([self._model.write(text, tools) for text, _ in turns])

    async def step(self, draw: Draw) -> None:
        """The model says its next turn, and the environment answers.

        Raises:
            UsageError: the conversation has ended.
        """
        if self.ended is not None:
            raise UsageError("The conversation has ended. Go back, change a turn, ask further, or take another sample.")
        before = len(self._held.said)
        self._held.tell(draw)
        await self._settled(lambda: len(self._held.said) > before)

    async def back(self, turn: int) -> None:
        """Go back to before a turn, counted from 1.

        Raises:
            UsageError: there is no such turn.
        """
        kept = self._held.said[: self._index(turn)]
        self._edited = frozenset(each for each in self._edited if each < len(kept))
        await self._play(kept)

    async def edit(self, turn: int, text: str) -> None:
        """Replace a turn, counted from 1, by a text of the user's, and drop those after it.

        Raises:
            UsageError: there is no such turn.
        """
        at = self._index(turn)
        kept = [*self._held.said[:at], self._model.write(text, self.tools)]
        self._edited = frozenset(each for each in self._edited if each < at) | {at}
        await self._play(kept)

    async def further(self, text: str) -> None:
        """Ask something more after the end; all that was said becomes the prompt.

        Raises:
            UsageError: it has not ended, or the task's environment or an agent makes prompts of its own.
        """
        if self.ended is None:
            raise UsageError("The conversation has not ended: let the model finish, or begin with a question.")
        if self._env is None or self.prompt != self.sample.messages:
            raise UsageError("The prompts of this task are its own, so nothing can be said after the end.")
        asked = replace(self.sample, prompt=(*self.messages(), Message("user", text)), answer=None)
        await self.begin(asked, own=True)

    async def close(self) -> None:
        """End the episode, with its environment."""
        if self._episode is not None:
            self._episode.cancel()
            await asyncio.wait({self._episode})  # its error, if it has one, was raised where it was awaited
            self._episode = None

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """Those that the model is offered."""
        return self._env.prompt.tools if self._env and self._env.prompt else ()

    @property
    def prompt(self) -> tuple[Message, ...]:
        """What the model saw first."""
        return self._env.prompt.messages if self._env and self._env.prompt else self.sample.messages

    def turns(self) -> list[PlayedTurn]:
        """The turns so far."""
        steps = self._env.steps if self._env else []
        found = []
        for number, said in enumerate(self._held.said):
            text, message = self._model.read(said, self.tools)
            step = steps[number] if number < len(steps) else EnvStep()
            found.append(PlayedTurn(text, message, number in self._edited, step.results, step.messages))
        return found

    def messages(self) -> list[Message]:
        """The whole conversation, the prompt included."""
        found = list(self.prompt)
        for turn in self.turns():
            found += [turn.message, *turn.heard]
        return found

    def _index(self, turn: int) -> int:
        count = len(self._held.said)
        if not 1 <= turn <= count:
            raise UsageError(f"There is no turn {turn}. {'No turn has been played' if not count else f'1 to {count}'}.")
        return turn - 1

    async def _play(self, kept: Sequence[Answer]) -> None:
        await self.close()
        self._held, self._env, self.ended = _Held(kept), None, None
        episode = self.runtime.episode(self.sample, 0.0, 0, "play", None)
        make_env = episode.make_env

        def watched(sample: Sample, context: Any) -> Env:
            self._env = _Watched(make_env(sample, context))
            return self._env

        play = self._model.play(self.runtime, replace(episode, make_env=watched), self._held)
        self._episode = asyncio.ensure_future(play)
        await self._settled(lambda: True)

    async def _settled(self, advanced: Callable[[], bool]) -> None:
        """Wait until the model is asked again, or the episode has ended, which is then scored."""
        held, episode = self._held, self._episode
        assert episode is not None
        while not episode.done() and not (held.waiting and advanced()):
            held.changed.clear()
            news = asyncio.ensure_future(held.changed.wait())
            await asyncio.wait({news, episode}, return_when=asyncio.FIRST_COMPLETED)
            news.cancel()
        if episode.done():
            trajectory = episode.result()
            self.ended = trajectory if self.own else await self.runtime.rewards.score_trajectory(trajectory)
