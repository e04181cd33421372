"""Demonstrations that are recorded: traces in a file, and the attempts of a run or of an evaluation.

A trace is played with an environment that answers as it is written, so that it has the ids and masks of an attempt. An
attempt of a model with the same tokenizer and the same prompts has them already.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rlfactory_core.errors import ChatFormatError, DataError
from rlfactory_core.protocols import ChatFormat
from rlfactory_core.reporting.conversations import conversations
from rlfactory_core.reporting.folder import RunFolder
from rlfactory_core.reporting.trajectories import StoredTrajectory
from rlfactory_core.reporting.where import Where
from rlfactory_core.rollout.episode import Episode, RolloutLimits
from rlfactory_core.rollout.history import History
from rlfactory_core.rollout.loop import rollout
from rlfactory_core.rollout.written import RecordedEnv, WrittenModel, only_learnt
from rlfactory_core.tasks.opening import OpenTasks
from rlfactory_core.tasks.runtime import TaskRuntime
from rlfactory_core.tasks.traces import Trace, read_trace, read_traces, shown_traces
from rlfactory_core.types import Fault, FaultKind, Group, Message, Sample, StopReason, Trajectory

HELD_OUT, MOST_HELD_OUT = 10, 128  # one prompt in ten is held out, and at most so many
_UNLIMITED = 10**9
_LONGEST_TOKEN = 64  # characters; a row with more than that for each token of the budget is not tokenized
Say = Callable[[str], None]


@dataclass(slots=True)
class Recorded:
    """A `Source` whose demonstrations are traces.

    Args:
        runtime: of the task whose limits and chat format they are played with.
        traces: by the ids of their samples.
        worth: whether a trajectory is learnt from.
        say: shows a sentence to the user.
    """

    runtime: TaskRuntime
    traces: dict[str, Trace]
    samples: Sequence[Sample]
    held_out: Sequence[Sample]
    worth: Callable[[Trajectory], bool]
    say: Say
    _cut: int = field(default=0, init=False)

    @classmethod
    def of(cls, tasks: OpenTasks, traces: dict[str, Trace], worth: Callable[[Trajectory], bool], say: Say) -> Recorded:
        """With a share of the prompts held out."""
        name, runtime = next(iter(tasks.by_name.items()))
        samples = [Sample(key, trace.prompt, task=name) for key, trace in traces.items()]
        return cls(runtime, traces, *_apart(samples), worth, say)

    async def play(self, sample: Sample, *, session: str, **_: Any) -> Group:
        """See `Source`; a trace that is too long is cut after the last turn that fits."""
        trace, most = self.traces[sample.id], self.runtime.limits.max_tokens
        size = sum(len(message.content) for message in trace.messages)
        if size > most * _LONGEST_TOKEN:
            return unplayable(sample, f"{trace.place}: {size:,} characters do not fit into rollout.max_tokens={most}")
        turns = iter(trace.turns)
        episode = Episode(
            sample,
            lambda *_: RecordedEnv(trace.messages, trace.tools or ()),
            RolloutLimits(_UNLIMITED, _UNLIMITED, most, most),
            f"{session}/0",
            history=History.of(self.runtime.setup.rollout, self.runtime.task.compact),
        )
        try:
            played = await rollout(episode, WrittenModel(lambda _: next(turns), self.runtime.chat))
        except ChatFormatError as error:
            return unplayable(sample, f"{trace.place}: {error}")
        if played.stop is StopReason.LENGTH:
            words = f"{trace.place}: it is longer than rollout.max_tokens={most}"
            if not played.turns:
                return unplayable(sample, words)
            self._cut += 1
            if self._cut == 1:
                self.say(f"warning: {words}, and cut after {len(played.turns)} of {len(trace.turns)} turns.")
        learnt = only_learnt(played, trace.learnt or (True,) * len(trace.turns))
        return Group(sample, (learnt,)) if learnt.turns else unplayable(sample, f"{trace.place}: no turn is learnt")


@dataclass(slots=True)
class Replayed:
    """A `Source` whose demonstrations are stored attempts, with the ids that they have.

    Args:
        lines: the file of each sample's attempt, and where its line begins.
    """

    chat: ChatFormat
    lines: dict[str, tuple[Path, int]]
    samples: Sequence[Sample]
    held_out: Sequence[Sample]
    worth: Callable[[Trajectory], bool]

    async def play(self, sample: Sample, *, session: str, **_: Any) -> Group:
        """See `Source`."""
        path, offset = self.lines[sample.id]
        with path.open("rb") as file:
            file.seek(offset)
            stored = StoredTrajectory.from_line(file.readline().decode())
        if not has_ids(stored, self.chat):
            return unplayable(sample, f"{path}: its ids are of another tokenizer than those of the first attempt")
        turns = tuple(replace(turn, version=0, versions=()) for turn in stored.trajectory.turns)
        return Group(sample, (replace(stored.trajectory, sample=sample, attempt=0, turns=turns),))


def unplayable(sample: Sample, why: str) -> Group:
    """A demonstration without turns, which is recorded with the reason and never trained on."""
    fault = Fault(FaultKind.AGENT, "demonstration", why, 0)
    return Group(sample, (Trajectory(sample, 0, (), StopReason.AGENT_FAILED, (fault,)),))


def open_file(path: Path, tasks: OpenTasks, where: str, say: Say) -> Recorded:
    """The rows of a file of traces. Those that say nothing of tools have those of the task, as attempts at it have.

    Raises:
        DataError, MissingExtraError: as `read_traces` and `shown_traces`.
    """
    runtime = next(iter(tasks.by_name.values()))
    traces = shown_traces(read_traces(path), runtime.manager.specs)
    for note, count in Counter(note for trace in traces for note in trace.notes).items():
        first = next(trace.place for trace in traces if note in trace.notes)
        say(f"not learnt from, in {count} of {len(traces)} rows: {note}. The first: {first}")
    named = {f"{path.name}#{number}": trace for number, trace in enumerate(traces)}
    return Recorded.of(tasks, named, Where(where).holds, say)


def open_run(folder: RunFolder, tasks: OpenTasks, where: str, say: Say) -> Recorded | Replayed:
    """The attempts of a run, or of an evaluation, for which a condition is true.

    Raises:
        UsageError: it is true of none.
        DataError: none can be learnt from, or a file cannot be read.
    """
    condition, chat, name = Where(where), tasks.chat, next(iter(tasks.by_name))
    chosen: list[_Attempt] = []
    total, same = 0, True
    for attempt, stored in _attempts(folder):
        total += 1
        if not stored.trajectory.masked and condition.holds(stored.trajectory):
            same = same and (len(chosen) >= _COMPARED or has_ids(stored, chat))
            sample = stored.trajectory.sample
            chosen.append(replace(attempt, sample=replace(sample, id=attempt.key, task=name)))
    if not chosen:
        condition.among([stored.trajectory for _, stored in _attempts(folder)], "attempts")
        raise DataError(f"{folder.path} has no attempts that no fault masks, so there is nothing to learn.")
    say(f"{len(chosen)} of {total} attempts of {folder.path} are learnt from{where and f': {where}'}")
    if others := sorted({each.sample.split for each in chosen} - {"train"}):
        say(f"warning: they are attempts at the split {others[0]}: its samples are no longer held out in this run.")
    if same:
        lines = {each.key: (each.path, each.offset) for each in chosen}
        return Replayed(chat, lines, *_apart([each.sample for each in chosen]), _always)
    return _written_anew(folder, chosen, tasks, say)


def _written_anew(folder: RunFolder, chosen: Sequence[_Attempt], tasks: OpenTasks, say: Say) -> Recorded:
    """The attempts as traces, for a model with another tokenizer or other prompts than theirs, or that had no ids."""
    keys, traces, left_out = {each.key for each in chosen}, dict[str, Trace](), list[str]()
    for attempt, stored in _attempts(folder):
        if attempt.key not in keys:
            continue
        try:
            found = conversations(stored.trajectory)
            read = [read_trace(each.as_openai(), f"{folder.path}, {attempt.key}") for each in found]
        except DataError as error:
            left_out.append(str(error))
            continue
        traces |= {f"{attempt.key}/{number}" if number else attempt.key: each for number, each in enumerate(read)}
    if left_out:
        say(f"{len(left_out)} of {len(chosen)} attempts cannot be written anew. The first: {left_out[0]}")
    if not traces:
        raise DataError(f"None of the {len(chosen)} attempts of {folder.path} can be learnt from.")
    say(f"they are written in this model's chat format, {tasks.chat.name}, because their ids are not this model's")
    return Recorded.of(tasks, traces, _always, say)


_COMPARED = 8  # attempts whose ids are compared at first; each is when it is played


@dataclass(frozen=True, slots=True)
class _Attempt:
    """Where a stored attempt is."""

    key: str  # names it
    path: Path
    offset: int
    sample: Sample


def _attempts(folder: RunFolder) -> Iterator[tuple[_Attempt, StoredTrajectory]]:
    for name in folder.attempt_files():
        path = folder.trajectory_file(name)
        with path.open("rb") as file:
            offset = 0
            for number, line in enumerate(file):
                try:
                    stored = StoredTrajectory.from_line(line.decode())
                except (ValueError, KeyError, TypeError) as error:
                    raise DataError(f"{path}, line {number + 1}: not a trajectory ({error})") from error
                yield _Attempt(f"{path.stem}#{number}", path, offset, stored.trajectory.sample), stored
                offset += len(line)


def has_ids(stored: StoredTrajectory, chat: ChatFormat) -> bool:
    """Whether the ids of an attempt mean for a model what they meant for the one that sampled them."""
    trajectory, texts = stored.trajectory, stored.texts
    if not trajectory.turns or not all(turn.sampled_ids for turn in trajectory.turns):
        return False
    same = all(
        (chat.decode(turn.context_ids), chat.decode(turn.sampled_ids)) == (text.context, text.sampled)
        for turn, text in zip(trajectory.turns, texts, strict=True)
    )
    try:
        first = trajectory.turns[0]
        asked: Sequence[Message] = first.observed or trajectory.sample.messages
        return same and chat.initial_ids(asked, trajectory.tools) == first.context_ids
    except ChatFormatError:
        return False


def _apart(samples: Sequence[Sample]) -> tuple[list[Sample], list[Sample]]:
    """The samples to train on, and those that are held out; all of one prompt are on the same side."""
    asked = {sample.id: repr(sample.messages) for sample in samples}
    prompts = list(dict.fromkeys(asked.values()))
    random.Random("held-out demonstrations").shuffle(prompts)
    chosen = set(prompts[: min(len(prompts) // HELD_OUT, MOST_HELD_OUT)])
    held_out = [sample for sample in samples if asked[sample.id] in chosen]
    kept = {sample.id for sample in held_out}
    return [sample for sample in samples if sample.id not in kept], held_out


def _always(_: Trajectory) -> bool:
    return True
