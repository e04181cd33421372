"""`rlfactory play`: a conversation with a model and a task's tools, turn by turn, which follows its user's orders.

To go back, the episode begins anew in a fresh environment: the turns that stay are not sampled again, but their calls
are made again, because tools and environments may keep state.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from rlfactory_core.cache import write_atomically
from rlfactory_core.chat.parsers import parse_hermes
from rlfactory_core.clients import OpenAIClient
from rlfactory_core.errors import UsageError, nearest
from rlfactory_core.plugins import Registry
from rlfactory_core.protocols import EnvStart, EnvStep, Model, Request, Sampled
from rlfactory_core.reporting import RunFolder, json_text
from rlfactory_core.reporting.progress import Progress
from rlfactory_core.runner import ModelChoice, check, model_name
from rlfactory_core.tasks import StepwiseEpisode, TaskRuntime, open_tasks
from rlfactory_core.tiny import calls_text
from rlfactory_core.types import Message, Sample, ToolSpec, Trajectory
from rlfactory_core.utils.seeds import derive_seed

_OURS: Mapping[str, Any] = {
    "engine": "local",
    "train": {"workers": 1},
    "rollout": {"deterministic": False, "retries": 0},
}
"""One conversation needs one process, and a call that fails is shown rather than made again."""

DEMONSTRATIONS = "demonstrations.jsonl"
_LISTED = 500  # samples that are named to choose from; `sample` takes any
_MESSAGES = TypeAdapter(tuple[Message, ...])
ORDERS = ("show", "step", "go", "again", "back", "edit", "ask", "say", "sample", "save")


@dataclass(frozen=True, slots=True)
class PlayedTurn:
    """A turn for a reader."""

    text: str  # as the model wrote it, without the token that ends a turn
    message: Message
    edited: bool  # by the user
    step: EnvStep  # the environment's response


class Conversation:
    """Each of `ORDERS` is a method; call `open` first and `close` last.

    Args:
        name: the model's, for a reader.
        samples: whose questions can be asked.
        kept: the state of the conversation, which goes on from there; None: it begins anew each time.
        demonstrations: to which `save` adds conversations.
    """

    def __init__(
        self,
        runtime: TaskRuntime,
        model: Model,
        name: str,
        samples: Sequence[Sample],
        kept: Path | None = None,
        demonstrations: Path = Path(DEMONSTRATIONS),
    ) -> None:
        self.question = samples[0]
        self.own = False  # whether the question is the user's, so that nothing can score the answer
        self._runtime, self._model, self._name = runtime, model, name
        self._samples, self._kept, self._demonstrations = samples, kept, demonstrations
        self._draws = 0  # each turn that is drawn anew has another seed
        self._edited: frozenset[int] = frozenset()
        self._steps: StepwiseEpisode | None = None

    async def open(self) -> None:
        """Begin with the first sample, or go on with what is kept."""
        try:
            kept = json.loads(self._kept.read_text(encoding="utf-8")) if self._kept else None
        except (OSError, ValueError):
            kept = None
        if kept is None:
            await self._begin(self.question)
            return
        sample = next((each for each in self._samples if each.id == kept["sample"]), self.question)
        if kept["own"]:
            sample = replace(sample, prompt=_MESSAGES.validate_python(kept["asked"]), answer=None)
        edited = [number for number, turn in enumerate(kept["turns"]) if turn["edited"]]
        turns = [self._written(turn["text"]) for turn in kept["turns"]]
        await self._begin(sample, turns, edited, own=kept["own"])

    async def do(self, order: Mapping[str, Any]) -> None:
        """Follow an order: its name under ``do``, and its arguments. A `UsageError` says why it cannot be followed."""
        name = str(order.get("do", ""))
        if name not in ORDERS:
            raise UsageError(f"There is no order '{name}'. {nearest(name, ORDERS)}")
        try:
            await getattr(self, name)(**{key: value for key, value in order.items() if key != "do"})
        except TypeError as error:
            if "argument" not in str(error):
                raise
            raise UsageError(f"{name}: {str(error).partition('() ')[2]}.") from None
        if self._kept:
            write_atomically(self._kept, f"{json_text(self.view())}\n".encode(errors="backslashreplace"))

    async def show(self) -> None:
        """Nothing changes."""

    async def step(self, temperature: float = 0.0) -> None:
        """The model samples its next turn, at temperature 0 greedily, and the environment answers."""
        if self._steps is None or self.ended is not None:
            raise UsageError("The conversation has ended. Go back, change a turn, ask further, or take another sample.")
        self._draws += 1
        draw = self._draws

        async def reply(request: Request) -> Sampled | None:
            seed = derive_seed(request.params.seed, draw)
            params = replace(request.params, temperature=float(temperature), seed=seed)
            return await self._model.answer(replace(request, params=params))

        await self._steps.step(reply)

    async def go(self, temperature: float = 0.0) -> None:
        """Sample turns until the end."""
        await self.step(temperature)
        while self.ended is None:
            await self.step(temperature)

    async def again(self, temperature: float = 1.0) -> None:
        """Draw the last turn anew."""
        await self.back(len(self._answers))
        await self.step(temperature)

    async def back(self, turn: int) -> None:
        """Go back to before a turn, counted from 1."""
        await self._replay(self._before(turn))

    async def edit(self, turn: int, text: str) -> None:
        """Replace a turn, counted from 1, by a text of the user's, and drop those after it."""
        kept = self._before(turn)
        self._edited |= {len(kept)}
        await self._replay([*kept, self._written(text)])

    async def ask(self, text: str) -> None:
        """Begin a new conversation with a question of the user's own."""
        *before, last = self.question.messages or (Message("user", ""),)
        question = replace(last, content=text) if last.role == "user" else Message("user", text)
        if self.own:  # a new conversation, not one more question in the old one
            before = [message for message in before if message.role == "system"]
        await self._begin(replace(self.question, prompt=(*before, question), answer=None), own=True)

    async def say(self, text: str) -> None:
        """Ask something more after the end; the whole conversation becomes the prompt."""
        if self.ended is None:
            raise UsageError("The conversation has not ended: let the model finish, or begin with a question.")
        if self._start is None or self.prompt != self.question.messages:
            raise UsageError("The prompts of this task are its own, so nothing can be said after the end.")
        prompt = (*self.messages(), Message("user", text))
        await self._begin(replace(self.question, prompt=prompt, answer=None), own=True)

    async def sample(self, sample: str = "") -> None:
        """Begin with the sample of this id, or with the next one."""
        known, now = [each.id for each in self._samples], self.question.id
        wanted = sample or known[(known.index(now) + 1) % len(known) if now in known else 0]
        if wanted not in known:
            raise UsageError(f"There is no held-out sample '{wanted}'. {nearest(wanted, known)}")
        await self._begin(self._samples[known.index(wanted)])

    async def save(self) -> None:
        """Add the conversation to the file of demonstrations."""
        if not self._answers:
            raise UsageError("There is nothing to save yet: no turn has been played.")
        view = self.view()
        line = {
            "sample": self.question.id,
            "messages": [_plain(message) for message in self.messages()],
            "tools": view["tools"],
            "reward": view["reward"],
        }
        with self._demonstrations.open("a", encoding="utf-8") as file:
            file.write(json_text(line) + "\n")

    async def close(self) -> None:
        """End the episode, with its environment."""
        if self._steps is not None:
            await self._steps.close()

    def view(self) -> dict[str, Any]:
        """Where the conversation stands, as JSON data."""
        ended = self.ended
        score = ended.score if ended else None
        return {
            "model": self._name,
            "sample": self.question.id,
            "answer": self.question.answer,
            "own": self.own,
            "asked": _MESSAGES.dump_python(self.question.messages, mode="json") if self.own else [],
            "samples": [each.id for each in self._samples[:_LISTED]],
            "prompt": [{"role": each.role, "content": each.content} for each in self.prompt],
            "tools": [tool.function_schema for tool in self._tools],
            "turns": [_turn(turn) for turn in self.turns()],
            "stop": ended.stop.value if ended else None,
            "faults": [f"{each.kind.value}, {each.source}: {each.message}" for each in (ended.faults if ended else ())],
            "reward": ended.reward if ended and score else None,
            "components": dict(score.components) if score else {},
            "verdicts": {name: asdict(each) for name, each in score.verdicts.items()} if score else {},
        }

    @property
    def ended(self) -> Trajectory | None:
        """The whole attempt once it has ended, scored unless the question is the user's own."""
        return self._steps.trajectory if self._steps else None

    @property
    def prompt(self) -> tuple[Message, ...]:
        """The messages before the first turn."""
        return self._start.messages if self._start else self.question.messages

    def turns(self) -> list[PlayedTurn]:
        """The turns so far."""
        steps = self._steps.env.steps if self._steps and self._steps.env else []
        return [
            PlayedTurn(self._text(answer), answer.message, number in self._edited, step or EnvStep())
            for number, (answer, step) in enumerate(zip_longest(self._answers, steps[: len(self._answers)]))
        ]

    def messages(self) -> list[Message]:
        """The whole conversation, the prompt included."""
        return [*self.prompt, *(each for turn in self.turns() for each in (turn.message, *turn.step.messages))]

    @property
    def _start(self) -> EnvStart | None:
        return self._steps.env.begun if self._steps and self._steps.env else None

    @property
    def _tools(self) -> Sequence[ToolSpec]:
        """That the next turn is offered."""
        steps = self._steps.env.steps if self._steps and self._steps.env else []
        changed = [step.tools for step in steps if step.tools is not None]
        return changed[-1] if changed else self._start.tools if self._start else ()

    @property
    def _answers(self) -> Sequence[Sampled]:
        return self._steps.answers if self._steps else ()

    def _before(self, turn: int) -> Sequence[Sampled]:
        """The turns before one; the later ones are no longer the user's."""
        count = len(self._answers)
        if not 1 <= turn <= count:
            raise UsageError(f"There is no turn {turn}. {'No turn has been played' if not count else f'1 to {count}'}.")
        self._edited = frozenset(each for each in self._edited if each < turn - 1)
        return self._answers[: turn - 1]

    async def _begin(
        self, question: Sample, turns: Sequence[Sampled] = (), edited: Iterable[int] = (), *, own: bool = False
    ) -> None:
        self.question, self.own, self._edited = question, own, frozenset(edited)
        await self._replay(turns)

    async def _replay(self, turns: Sequence[Sampled]) -> None:
        """Begin the episode anew with these turns."""
        await self.close()
        self._steps = StepwiseEpisode(self._runtime, self.question, "play", self._model, turns, scored=not self.own)
        await self._steps.begin()

    def _written(self, text: str) -> Sampled:
        """The turn that the user writes in the model's place."""
        tools, chat = self._tools if self._start else self._runtime.manager.specs, self._model.chat
        if chat is None:
            return Sampled(parse_hermes(text, tools))
        ids = (*chat.encode(text), chat.stop_token_ids[0])
        return Sampled(chat.parse(ids, tools), token_ids=ids, logprobs=(0.0,) * len(ids))

    def _text(self, answer: Sampled) -> str:
        """A turn's text as the model wrote it; that of a server's model is written as Qwen and Hermes write it."""
        chat, ids = self._model.chat, answer.token_ids
        if chat is None:
            return "\n".join(part for part in (answer.message.content, calls_text(answer.message)) if part)
        return chat.decode(ids[:-1] if ids and ids[-1] in chat.stop_token_ids else ids)


def converse(
    chosen: ModelChoice,
    overrides: Sequence[str | Mapping[str, Any]],
    progress: Progress,
    kept: Path | None,
    demonstrations: Path | None,
    use: Callable[[Conversation], Awaitable[None]],
) -> None:
    """Open the task and the model, and await ``use`` with a conversation.

    Args:
        kept: as in `Conversation`.
        demonstrations: as in `Conversation`; None: `DEMONSTRATIONS` in the run's folder, or in the working directory.

    Raises:
        UsageError: the arguments or the configuration are invalid, or the engine's models cannot be talked to.
        BackendError: the endpoint, or a service that the tools need, does not answer.
    """
    registry = Registry()
    resolved = chosen.resolve([_OURS, *overrides], registry)
    client = chosen.client(resolved.config)
    saved = demonstrations or (chosen.run.path if chosen.run else Path()) / DEMONSTRATIONS

    async def talk(runtime: TaskRuntime, model: Model) -> None:
        progress.close()
        name = model_name(resolved.config, client)
        samples = resolved.tasks.held_out(required=True)
        conversation = Conversation(runtime, model, name, samples, kept, saved)
        try:
            await conversation.open()
            await use(conversation)
        finally:
            await conversation.close()

    async def with_client(client: OpenAIClient) -> None:
        try:
            async with open_tasks(resolved.tasks, progress) as opened:
                await client.open(opened.only.manager.specs)
                await talk(opened.only, client)
        finally:
            await client.close()

    if client is not None:
        asyncio.run(with_client(client))
        return
    prepared = check(resolved, training=False)
    if prepared.traits.converse is None:
        raise UsageError(f"The engine '{prepared.config.engine}' has no model to talk to. Leave --engine out.")
    with tempfile.TemporaryDirectory(prefix="rlfactory-play-") as folder:
        prepared.traits.converse(
            prepared.at(RunFolder(Path(folder)), progress),
            lambda opened, sampler: talk(opened.only, opened.only.model(sampler)),
        )


def _turn(turn: PlayedTurn) -> dict[str, Any]:
    message = turn.message
    return {
        "text": turn.text,
        "edited": turn.edited,
        "content": message.content,
        "reasoning": message.reasoning,
        "calls": [
            {name: getattr(call, name) for name in ("name", "arguments_text", "error")} for call in message.tool_calls
        ],
        "results": [asdict(result) for result in turn.step.results],
        "observed": [_plain(each) for each in turn.step.messages],
    }


def _plain(message: Message) -> dict[str, Any]:
    """A message as chat templates and supervised trainers expect it."""
    found: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.reasoning:
        found["reasoning_content"] = message.reasoning
    if message.tool_calls:
        found["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments or {}}}
            for call in message.tool_calls
        ]
    if message.role == "tool":
        found |= {"name": message.name, "tool_call_id": message.tool_call_id}
    return found
