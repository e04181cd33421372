"""Which prompts reach the model and leave room for an answer, found out before the first of them is played.

A prompt that fills the token budget would be an attempt without a turn. Where an environment or an agent makes the
prompt, only the attempt itself shows that; then it is masked (`RolloutLimits.no_room`).
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rlfactory_core.chat.hidden import hidden_arguments, unwritten
from rlfactory_core.chat.template import TemplateFormat
from rlfactory_core.errors import ChatFormatError, DataError
from rlfactory_core.images import NAME
from rlfactory_core.reporting.progress import count_text
from rlfactory_core.rollout.transcript import naming
from rlfactory_core.tasks.opening import OpenTasks
from rlfactory_core.tasks.runtime import TaskRuntime
from rlfactory_core.types import Message, Sample

ROOM = 16
"""Tokens that an answer needs at least, unless rollout.max_turn_tokens is smaller."""
ENOUGH = 64
"""After so many prompts in a row that have room, from the longest text on, all shorter ones count as such."""
SHAPES = 256
"""At most so many kinds of conversation are looked at."""
_NAMED = 5  # samples in a message


@dataclass(frozen=True, slots=True)
class CheckedPrompts:
    """The samples of a run after `check_prompts`."""

    train: Sequence[Sample]  # that are played
    held_out: Sequence[Sample]
    left_out: Mapping[str, Sequence[str]]  # train, eval -> the ids of those without room
    notes: Sequence[str]  # sentences for the user


def check_prompts(
    tasks: OpenTasks, train: Sequence[Sample], held_out: Sequence[Sample], known: int | None
) -> CheckedPrompts:
    """Leave out the samples whose prompt leaves no room for an answer.

    Args:
        known: the most positions that the model was made for; None: unknown.

    Raises:
        DataError: most prompts of a task leave no room.
        ChatFormatError: the chat template refuses a prompt, or leaves a part of it out.
    """
    notes: list[str] = []
    if known is not None and tasks.max_tokens > known:
        notes.append(
            f"warning: rollout.max_tokens={tasks.max_tokens} is more than the {known:,} positions that the model was "
            "made for (max_position_embeddings); it answers badly beyond them, or fails. Set "
            f"rollout.max_tokens={known} or less."
        )
    kept, left_out = dict[str, Sequence[Sample]](), dict[str, Sequence[str]]()
    for split, what, samples in (("train", "training", train), ("eval", "held-out", held_out)):
        without = _without_room(tasks, samples, what, known, notes)
        kept[split] = [sample for index, sample in enumerate(samples) if index not in without]
        if without:
            left_out[split] = [samples[index].id for index in sorted(without)]
    return CheckedPrompts(kept["train"], kept["eval"], left_out, notes)


def _without_room(
    tasks: OpenTasks, samples: Sequence[Sample], what: str, known: int | None, notes: list[str]
) -> set[int]:
    """The indices of the samples to leave out; sentences for the user are added to ``notes``."""
    shown: dict[str, list[int]] = {}
    for index, sample in enumerate(samples):
        if tasks.of(sample).shows_prompts:
            shown.setdefault(sample.task, []).append(index)
    without = set[int]()
    for name, indices in shown.items():
        room = _Room(tasks.by_name[name], samples, indices, what, known)
        notes += room.unwritten()
        notes += [note for note in room.hidden() if note not in notes]
        found = room.without()
        notes += [room.note(found)] if found else []
        without |= found.keys()
    return without


@dataclass(frozen=True, slots=True)
class _Room:
    """The prompts of one task, by their indices in ``samples``."""

    runtime: TaskRuntime
    samples: Sequence[Sample]
    indices: Sequence[int]
    what: str
    known: int | None

    @property
    def limit(self) -> int:
        """Of prompt and answers together."""
        limit = self.runtime.limits.max_tokens
        return limit if self.known is None else min(limit, self.known)

    def without(self) -> dict[int, int]:
        """The prompts without room, and their tokens. Few of many are rendered, from the longest text on."""
        schemas = {tool.name: len(str(tool.function_schema)) for tool in self.runtime.manager.specs}
        most = self.limit - min(ROOM, self.runtime.limits.max_turn_tokens)
        by_size = sorted(self.indices, key=lambda index: _size(self.samples[index], schemas), reverse=True)
        least = self._tokens(by_size[-1])
        if least > most:
            raise DataError(self._refusal("None", by_size[-1], least, "The shortest"))
        found: dict[int, int] = {}
        fit = 0
        for index in by_size:
            tokens = self._tokens(index)
            fit = fit + 1 if tokens <= most else 0
            if not fit:
                found[index] = tokens
            if len(found) > len(self.indices) // 2:
                raise DataError(self._refusal("At most half", index, tokens, "One"))
            if fit == ENOUGH:
                break
        return found

    def _tokens(self, index: int) -> int:
        return len(self.runtime.prompt_ids(self.samples[index]) or ())

    def note(self, found: dict[int, int]) -> str:
        longest = max(found, key=found.__getitem__)
        named = [f"'{self.samples[index].id}'" for index in sorted(found)]
        more = f" and {len(named) - _NAMED:,} more" if len(named) > _NAMED else ""
        cause = self._cause(longest, found[longest], "The longest")
        return (
            f"warning: {len(found):,} of {len(self.indices):,} {self.what} prompts left out, which leave no room for "
            f"an answer: {', '.join(named[:_NAMED])}{more}. {cause}"
        )

    def _refusal(self, how_many: str, index: int, tokens: int, which: str) -> str:
        cause = self._cause(index, tokens, which)
        return f"{how_many} of the {len(self.indices):,} {self.what} prompts leaves room for an answer. {cause}"

    def _cause(self, index: int, tokens: int, which: str) -> str:
        """How long a prompt is, why, and what to do."""
        sample, limits = self.samples[index], self.runtime.limits
        tools = self.runtime.offered(sample)
        bare = len(self.runtime.chat.initial_ids(sample.messages, ())) if tools else tokens
        of_tools = f", {tokens - bare:,} of them for {count_text(len(tools), 'tool')}" if tools else ""
        wanted = min(1 << (tokens + limits.max_turn_tokens - 1).bit_length(), self.known or sys.maxsize)
        ways = [f"set rollout.max_tokens={wanted}"] if wanted >= tokens + ROOM else []
        ways += ["offer fewer tools (tools.disabled=[NAME, …])"] if 2 * bare < tokens else []
        ways += ["shorten the prompts"] if 2 * bare >= tokens else []
        ways += [] if wanted >= tokens + ROOM else ["take a model that was made for longer texts"]
        counted = f"rollout.max_tokens={limits.max_tokens} counts it, too"
        if self.limit < limits.max_tokens:
            counted = f"the model was made for {self.known:,} positions (max_position_embeddings)"
        name = f"{which}, of sample '{sample.id}', has {tokens:,} tokens"
        return f"{name}{of_tools}, and {counted}. To mend it, {' or '.join(ways)}."

    def hidden(self) -> list[str]:
        """A sentence on the arguments of tools that the chat template does not show whole."""
        chat, tools = self.runtime.chat, self.runtime.manager.specs
        if not tools or not isinstance(chat, TemplateFormat) or chat.abilities.schemas or not chat.abilities.tools:
            return []
        found = hidden_arguments(tools, lambda offered: chat.initial_text([Message("user", "?")], offered))
        return [f"warning: {found}"] if found else []

    def unwritten(self) -> list[str]:
        """Sentences on what of the prompts the chat template leaves out as it does for its own turns."""
        shapes: dict[tuple[object, ...], int] = {}
        counts = Counter[tuple[object, ...]]()
        for index in self.indices:
            shape: tuple[object, ...] = tuple(map(_shape, self.samples[index].messages))
            shapes.setdefault(shape, index)
            counts[shape] += 1
        left: Counter[str] = Counter()
        examples: dict[str, str] = {}
        for shape, index in list(shapes.items())[:SHAPES]:
            for kind, example in self._unwritten_of(self.samples[index]).items():
                left[kind] += counts[shape]
                examples.setdefault(kind, example)
        return [
            f"note: the model's chat template leaves out {kind} in {count:,} of {len(self.indices):,} {self.what} "
            f"prompts, such as {examples[kind]}"
            for kind, count in left.items()
        ]

    def _unwritten_of(self, sample: Sample) -> dict[str, str]:
        with naming(sample):
            found = unwritten(self.runtime.chat, sample.messages, self.runtime.offered(sample)[:1])
        lost = next((each for each in found if not each.by_design), None)
        if lost is not None:
            raise ChatFormatError(
                f"The model's chat template leaves out {lost.text} of the prompt of sample '{sample.id}', so the model "
                "would not see it. Take it out of the data, or choose a model whose template writes it."
            )
        where = {"the text": "text beside calls", "the thinking": "thinking of earlier turns", "the name": "names"}
        return {where[each.field]: f"message {each.index} of sample '{sample.id}'" for each in reversed(found)}


def _texts(message: Message) -> list[str]:
    calls = (text for call in message.tool_calls for text in (call.id, call.name, call.arguments_text))
    return [message.content, message.reasoning, message.name or "", message.tool_call_id or "", *calls]


def _size(sample: Sample, schemas: Mapping[str, int]) -> int:
    """How long the text of a prompt is, with its tools and images."""
    texts = [text for message in sample.messages for text in _texts(message)]
    images = sum(int(width) * int(height) // 64 for text in texts for width, height, _ in NAME.findall(text))
    tools = schemas if sample.tools is None else sample.tools
    return images + sum(schemas.get(name, 0) for name in tools) + sum(len(text.encode()) for text in texts)


def _shape(message: Message) -> tuple[object, ...]:
    calls = tuple(bool(call.arguments) for call in message.tool_calls)
    return message.role, bool(message.content.strip()), bool(message.reasoning), calls, bool(message.name)
