"""A conversation with a run's checkpoint, a model or an endpoint, which follows its user's orders."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from rlfactory_core.cache import write_atomically
from rlfactory_core.clients import OpenAIClient
from rlfactory_core.errors import UsageError, nearest
from rlfactory_core.plugins import Registry
from rlfactory_core.protocols import Sampler
from rlfactory_core.reporting import RunFolder, json_text
from rlfactory_core.reporting.progress import Progress
from rlfactory_core.runner import ModelChoice, check, model_name
from rlfactory_core.tasks import OpenTasks, open_tasks
from rlfactory_core.types import Message, Sample
from rlfactory_devkit.play.play import Draw, Play, PlayedTurn

_OURS: Mapping[str, Any] = {
    "engine": "local",
    "train": {"workers": 1},
    "rollout": {"deterministic": False, "retries": 0},
}
"""One conversation needs one process, and a call that fails is shown rather than made again."""

_LISTED = 500  # samples that are named to choose from; `sample` takes any
_MESSAGES = TypeAdapter(tuple[Message, ...])


@dataclass(frozen=True, slots=True)
class PlayFiles:
    """
    Args:
        kept: the state of the conversation, which goes on from there; None: it begins anew each time.
        demonstrations: to which `save` adds conversations; None: ``demonstrations.jsonl`` of the run, or of the working
            directory.
    """

    kept: Path | None = None
    demonstrations: Path | None = None


class Conversation:
    """Follows the user's orders, and shows where the conversation stands.

    Args:
        model: its name for a reader.
        samples: whose questions can be asked.
    """

    def __init__(self, play: Play, model: str, samples: Sequence[Sample], files: PlayFiles) -> None:
        self.play, self.model = play, model
        self._samples, self._files = samples, files
        self._draws = 0  # each turn that is drawn anew has another seed
        self._orders: Mapping[str, Callable[..., Awaitable[None]]] = {
            "show": self._stay,
            "step": self._step,
            "go": self._go,
            "again": self._again,
            "back": play.back,
            "edit": play.edit,
            "ask": self._ask,
            "say": play.further,
            "sample": self._sample,
            "save": self._save,
        }

    async def open(self) -> None:
        """Begin with the first sample, or go on with what is kept."""
        file = self._files.kept
        try:
            kept = json.loads(file.read_text(encoding="utf-8")) if file else None
        except (OSError, ValueError):
            kept = None
        if kept is None:
            await self._sample()
            return
        sample = next((each for each in self._samples if each.id == kept["sample"]), self._samples[0])
        if kept["own"]:
            sample = replace(sample, prompt=_MESSAGES.validate_python(kept["asked"]), answer=None)
        turns = [(turn["text"], turn["edited"]) for turn in kept["turns"]]
        await self.play.begin(sample, own=kept["own"], turns=turns)

    async def do(self, order: Mapping[str, Any]) -> None:
        """
        Args:
            order: its name under ``do``, and its arguments.

        Raises:
            UsageError: there is no such order, an argument is wrong, or it does not fit now.
        """
        name = str(order.get("do", ""))
        if name not in self._orders:
            raise UsageError(f"There is no order '{name}'. {nearest(name, list(self._orders))}")
        given = {key: value for key, value in order.items() if key != "do"}
        try:
            await self._orders[name](**given)
        except TypeError as error:
            if "argument" not in str(error):
                raise
            raise UsageError(f"{name}: {str(error).partition('() ')[2]}.") from None
        if self._files.kept:
            write_atomically(self._files.kept, f"{json_text(self.view())}\n".encode(errors="backslashreplace"))

    def view(self) -> dict[str, Any]:
        """Where the conversation stands, as JSON data."""
        play, ended = self.play, self.play.ended
        score = ended.score if ended else None
        return {
            "model": self.model,
            "sample": play.sample.id,
            "answer": play.sample.answer,
            "own": play.own,
            "asked": _MESSAGES.dump_python(play.sample.messages, mode="json") if play.own else [],
            "samples": [each.id for each in self._samples[:_LISTED]],
            "prompt": [{"role": each.role, "content": each.content} for each in play.prompt],
            "tools": [tool.function_schema for tool in play.tools],
            "turns": [_turn(turn) for turn in play.turns()],
            "stop": ended.stop.value if ended else None,
            "faults": [f"{fault.kind.value}, {fault.source}: {fault.message}" for fault in ended.faults]
            if ended
            else [],
            "reward": ended.reward if ended and score else None,
            "components": dict(score.components) if score else {},
            "verdicts": {name: asdict(each) for name, each in score.verdicts.items()} if score else {},
        }

    async def _stay(self) -> None:
        """Nothing changes."""

    async def _step(self, temperature: float = 0.0) -> None:
        self._draws += 1
        await self.play.step(Draw(float(temperature), self._draws))

    async def _go(self, temperature: float = 0.0) -> None:
        await self._step(temperature)
        while self.play.ended is None:
            await self._step(temperature)

    async def _again(self, temperature: float = 1.0) -> None:
        """Draw the last turn anew."""
        await self.play.back(len(self.play.turns()))
        await self._step(temperature)

    async def _ask(self, text: str) -> None:
        *before, last = self.play.sample.messages or (Message("user", ""),)
        question = replace(last, content=text) if last.role == "user" else Message("user", text)
        if self.play.own:  # a new conversation, not one more question in the old one
            before = [message for message in before if message.role == "system"]
        await self.play.begin(replace(self.play.sample, prompt=(*before, question), answer=None), own=True)

    async def _sample(self, sample: str = "") -> None:
        """Begin with the sample of this id, or with the next one."""
        known, now = [each.id for each in self._samples], self.play.sample.id
        wanted = sample or known[(known.index(now) + 1) % len(known) if now in known else 0]
        if wanted not in known:
            raise UsageError(f"There is no held-out sample '{wanted}'. {nearest(wanted, known)}")
        await self.play.begin(self._samples[known.index(wanted)])

    async def _save(self) -> None:
        """Add the conversation to the file of demonstrations."""
        if not self.play.turns():
            raise UsageError("There is nothing to save yet: no turn has been played.")
        line = {
            "sample": self.play.sample.id,
            "messages": [_plain(message) for message in self.play.messages()],
            "tools": [tool.function_schema for tool in self.play.tools],
            "reward": self.view()["reward"],
        }
        assert self._files.demonstrations is not None
        with self._files.demonstrations.open("a", encoding="utf-8") as file:
            file.write(json_text(line) + "\n")


def converse(
    chosen: ModelChoice,
    overrides: Sequence[str | Mapping[str, Any]],
    progress: Progress,
    files: PlayFiles,
    use: Callable[[Conversation], Awaitable[None]],
) -> None:
    """Open the task and the model, and await ``use`` with a conversation.

    Raises:
        UsageError: the arguments or the configuration are invalid, or the engine's models cannot be talked to.
        BackendError: the endpoint, or a service that the tools need, does not answer.
    """
    registry = Registry()
    resolved = chosen.resolve([_OURS, *overrides], registry)
    client = chosen.client(resolved.config)
    if files.demonstrations is None:
        files = replace(files, demonstrations=(chosen.run.path if chosen.run else Path()) / "demonstrations.jsonl")

    async def talk(play: Play) -> None:
        name = model_name(resolved.config, client)
        conversation = Conversation(play, name, resolved.tasks.held_out(required=True), files)
        try:
            await conversation.open()
            await use(conversation)
        finally:
            await play.close()

    async def with_sampler(opened: OpenTasks, sampler: Sampler) -> None:
        progress.close()
        await talk(Play(opened.only, opened.only.model(sampler)))

    async def with_client(client: OpenAIClient) -> None:
        try:
            async with open_tasks(resolved.tasks, progress) as opened:
                await client.open(opened.only.manager.specs)
                progress.close()
                await talk(Play(opened.only, client))
        finally:
            await client.close()

    if client is not None:
        asyncio.run(with_client(client))
        return
    prepared = check(resolved, training=False)
    if prepared.traits.converse is None:
        raise UsageError(f"The engine '{prepared.config.engine}' has no model to talk to. Leave --engine out.")
    with tempfile.TemporaryDirectory(prefix="rlfactory-play-") as folder:
        prepared.traits.converse(prepared.at(RunFolder(Path(folder)), progress), with_sampler)


def _turn(turn: PlayedTurn) -> dict[str, Any]:
    message = turn.message
    return {
        "text": turn.text,
        "edited": turn.edited,
        "content": message.content,
        "reasoning": message.reasoning,
        "calls": [
            {"name": call.name, "arguments_text": call.arguments_text, "error": call.error}
            for call in message.tool_calls
        ],
        "results": [asdict(result) for result in turn.results],
        "observed": [_plain(each) for each in turn.observed],
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
