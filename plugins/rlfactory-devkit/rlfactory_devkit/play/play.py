"""A conversation with a model and a task's tools, turn by turn, in which turns can be changed.

To go back, the episode begins anew in a fresh environment: the turns that stay are not sampled again, but their calls
are made again, because tools and environments may keep state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from rlfactory_core.chat.parsers import parse_hermes
from rlfactory_core.errors import UsageError
from rlfactory_core.protocols import EnvStep, Model, Sampled
from rlfactory_core.tasks import StepwiseEpisode, TaskRuntime
from rlfactory_core.tiny import calls_text
from rlfactory_core.types import Message, Sample, SamplingParams, ToolResult, ToolSpec, Trajectory
from rlfactory_core.utils.seeds import derive_seed


@dataclass(frozen=True, slots=True)
class Draw:
    """How the model samples a turn."""

    temperature: float = 0.0  # 0 is greedy
    seed: int = 0

    def of(self, params: SamplingParams) -> SamplingParams:
        return replace(params, temperature=self.temperature, seed=derive_seed(params.seed, self.seed))


@dataclass(frozen=True, slots=True)
class PlayedTurn:
    """A turn for a reader."""

    text: str  # as the model wrote it, without the token that ends a turn
    message: Message
    edited: bool = False
    results: tuple[ToolResult, ...] = ()
    observed: tuple[Message, ...] = ()  # the environment's response


def _text(model: Model, answer: Sampled) -> str:
    """A turn's text as the model wrote it; that of a server's model is written as Qwen and Hermes write it."""
    message = answer.message
    if model.chat is None:
        return "\n".join(part for part in (message.content, calls_text(message)) if part)
    ids = answer.token_ids
    return model.chat.decode(ids[:-1] if ids and ids[-1] in model.chat.stop_token_ids else ids)


def _written(model: Model, text: str, tools: Sequence[ToolSpec]) -> Sampled:
    """The turn that the user writes in the model's place."""
    if model.chat is None:
        return Sampled(parse_hermes(text, tools))
    ids = (*model.chat.encode(text), model.chat.stop_token_ids[0])
    return Sampled(model.chat.parse(ids, tools), token_ids=ids, logprobs=(0.0,) * len(ids))


class Play:
    """A conversation; call `begin` first and `close` last."""

    def __init__(self, runtime: TaskRuntime, model: Model) -> None:
        self.runtime = runtime
        self.sample = Sample("", "")
        self.own = False  # whether the question is the user's, so that nothing can score the answer
        self._model = model
        self._edited: frozenset[int] = frozenset()
        self._steps: StepwiseEpisode | None = None

    async def begin(self, sample: Sample, *, own: bool = False, turns: Sequence[tuple[str, bool]] = ()) -> None:
        """Start a conversation about a sample.

        Args:
            own: the question is the user's own.
            turns: with which it begins: the text of each as in `PlayedTurn`, and whether the user has changed it.
        """
        tools = self.tools or self.runtime.manager.specs
        self.sample, self.own = sample, own
        self._edited = frozenset(number for number, (_, edited) in enumerate(turns) if edited)
        await self._play([_written(self._model, text, tools) for text, _ in turns])

    async def step(self, draw: Draw) -> None:
        """The model samples its next turn, and the environment answers.

        Raises:
            UsageError: the conversation has ended.
        """
        if self._steps is None or self.ended is not None:
            raise UsageError("The conversation has ended. Go back, change a turn, ask further, or take another sample.")
        await self._steps.step(lambda request: self._model.answer(replace(request, params=draw.of(request.params))))

    async def back(self, turn: int) -> None:
        """Go back to before a turn, counted from 1.

        Raises:
            UsageError: there is no such turn.
        """
        kept = self._answers[: self._index(turn)]
        self._edited = frozenset(each for each in self._edited if each < len(kept))
        await self._play(kept)

    async def edit(self, turn: int, text: str) -> None:
        """Replace a turn, counted from 1, by a text of the user's, and drop those after it.

        Raises:
            UsageError: there is no such turn.
        """
        at = self._index(turn)
        kept = [*self._answers[:at], _written(self._model, text, self.tools)]
        self._edited = frozenset(each for each in self._edited if each < at) | {at}
        await self._play(kept)

    async def further(self, text: str) -> None:
        """Ask something more after the end; the whole conversation becomes the prompt.

        Raises:
            UsageError: it has not ended, or the task's environment or an agent makes prompts of its own.
        """
        if self.ended is None:
            raise UsageError("The conversation has not ended: let the model finish, or begin with a question.")
        if self._start is None or self.prompt != self.sample.messages:
            raise UsageError("The prompts of this task are its own, so nothing can be said after the end.")
        asked = replace(self.sample, prompt=(*self.messages(), Message("user", text)), answer=None)
        await self.begin(asked, own=True)

    async def close(self) -> None:
        """End the episode, with its environment."""
        if self._steps is not None:
            await self._steps.close()

    @property
    def ended(self) -> Trajectory | None:
        """The whole attempt once it has ended, scored unless the question is the user's own."""
        return self._steps.trajectory if self._steps else None

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools that the model is offered."""
        return self._start.tools if self._start else ()

    @property
    def prompt(self) -> tuple[Message, ...]:
        """The messages before the first turn."""
        return self._start.messages if self._start else self.sample.messages

    def turns(self) -> list[PlayedTurn]:
        """The turns so far."""
        steps = self._steps.env.steps if self._steps and self._steps.env else []
        found = []
        for number, answer in enumerate(self._answers):
            step = steps[number] if number < len(steps) else EnvStep()
            found.append(
                PlayedTurn(
                    _text(self._model, answer), answer.message, number in self._edited, step.results, step.messages
                )
            )
        return found

    def messages(self) -> list[Message]:
        """The whole conversation, the prompt included."""
        return [*self.prompt, *(each for turn in self.turns() for each in (turn.message, *turn.observed))]

    @property
    def _start(self) -> Any:
        return self._steps.env.begun if self._steps and self._steps.env else None

    @property
    def _answers(self) -> Sequence[Sampled]:
        return self._steps.answers if self._steps else ()

    def _index(self, turn: int) -> int:
        count = len(self._answers)
        if not 1 <= turn <= count:
            raise UsageError(f"There is no turn {turn}. {'No turn has been played' if not count else f'1 to {count}'}.")
        return turn - 1

    async def _play(self, kept: Sequence[Sampled]) -> None:
        await self.close()
        self._steps = StepwiseEpisode(self.runtime, self.sample, "play", self._model, kept, scored=not self.own)
        await self._steps.begin()
