"""Where the demonstrations of a supervised stage come from: what ``train.source`` names.

To add a source: a class that has what `Source` says, a line in `open_source`, and one in `check_source`, which runs
before anything costly. `rollout.WrittenModel` writes the turns of a demonstration and `rollout.RecordedEnv` answers
them, so that the ordinary `rollout` makes its trajectory: with ids, rows, masks, scores and a record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rlfactory_core.algo.settings import TrainConfig
from rlfactory_core.errors import ChatFormatError, ConfigError, UsageError
from rlfactory_core.reporting.folder import RunFolder
from rlfactory_core.reporting.where import FACTS, Where
from rlfactory_core.rollout.episode import RolloutLimits
from rlfactory_core.rollout.written import WrittenModel
from rlfactory_core.tasks.opening import OpenTasks
from rlfactory_core.tasks.setup import Tasks
from rlfactory_core.tasks.solving import demonstrated, is_solved
from rlfactory_core.tasks.traces import read_traces
from rlfactory_core.training.recorded import Say, open_file, open_run, unplayable
from rlfactory_core.types import PROMPT, Group, Sample, Trajectory

SOLVE = "solve"
REWARD = "reward"
EARNS = "reward > 0"  # without train.where, of attempts that are scored


class Source(Protocol):
    """Demonstrations, of which each process plays its share."""

    @property
    def samples(self) -> Sequence[Sample]:
        """One for each demonstration to train on, with ids of their own; the same in all processes."""

    @property
    def held_out(self) -> Sequence[Sample]:
        """Those of demonstrations that are never trained on, whose loss is measured; may be empty."""

    @property
    def worth(self) -> Callable[[Trajectory], bool]:
        """Whether a demonstration that was played is learnt from."""

    async def play(self, sample: Sample, *, session: str, **how: Any) -> Group:
        """The demonstration as a group of one trajectory; what cannot be played is a group of `unplayable`.

        Args:
            how: what `TaskRuntime.play` takes besides; there is one attempt.
        """


@dataclass(frozen=True, slots=True)
class Solved:
    """What ``Task.solve`` or ``Task.demonstrate`` shows, in the task's environment, with its tools and scorers."""

    tasks: OpenTasks
    samples: Sequence[Sample]
    held_out: Sequence[Sample]
    worth: Callable[[Trajectory], bool]

    async def play(self, sample: Sample, *, session: str, **how: Any) -> Group:
        runtime = self.tasks.of(sample)
        model = WrittenModel(lambda asked: demonstrated(runtime.task, sample, asked.messages), runtime.chat)
        try:
            group = await runtime.play(sample, model, session=session, **how)
        except ChatFormatError as error:
            return unplayable(sample, str(error))
        if model.too_long is not None:
            return unplayable(sample, _too_long(runtime.limits, *model.too_long))
        no_room = [fault for each in group.trajectories for fault in each.faults if fault.source == PROMPT]
        return unplayable(sample, no_room[0].message) if no_room else group


def _too_long(limits: RolloutLimits, tokens: int, most: int) -> str:
    """A sentence on a turn of a demonstration, with the key of the limit that it does not keep."""
    if most == limits.max_turn_tokens:
        return f"a turn of it has {tokens:,} tokens, more than rollout.max_turn_tokens={most}"
    return f"a turn of it has {tokens:,} tokens, and rollout.max_tokens={limits.max_tokens} leaves room for {most:,}"


def check_source(train: TrainConfig, tasks: Tasks) -> None:
    """Refuse what ``train.source`` cannot name, before anything is opened.

    Raises:
        UsageError: there is no such source, or the tasks or the condition cannot give it.
        DataError, MissingExtraError: a file cannot be read.
    """
    given, where = train.source, Where(train.where)
    if summarizing := [each for each in tasks.by_name.values() if each.rollout.context == "summarize"]:
        raise ConfigError(
            f"train.source={given}: demonstrations hold no summaries, as rollout.context=summarize of "
            f"{type(summarizing[0].task).__name__} asks for."
        )
    if given == SOLVE:
        for name in (type(setup.task).__name__ for setup in tasks.by_name.values() if not is_solved(setup.task)):
            raise ConfigError(
                f"train.source={SOLVE}: {name} does not show how it is solved. Give it a method solve or demonstrate."
            )
    elif Path(given).is_file():
        if scored := [name for name in where.names if name == REWARD or name not in FACTS]:
            raise ConfigError(
                f"train.where={where.text}: traces in a file are not scored, so they have no {scored[0]}. Learn from "
                "the run itself (--warm-start RUN), or choose when the file is written: rlfactory trace RUN "
                "--export FILE --where CONDITION"
            )
        read_traces(Path(given))
    else:
        _run(given)


def _run(given: str) -> RunFolder:
    try:
        return RunFolder.open(given)
    except UsageError as error:
        raise ConfigError(
            f"train.source={given}: expected {SOLVE} (the task's own solutions), a file of traces (.jsonl, .json or "
            f".parquet), or a run or an evaluation. As a run: {error}"
        ) from error


def open_source(
    train: TrainConfig, tasks: OpenTasks, samples: Sequence[Sample], held_out: Sequence[Sample], say: Say
) -> Source:
    """The source that ``train.source`` names.

    Args:
        tasks: open, with their chat format.
        samples: the tasks' own for training; ``held_out`` are those of the evaluations.
        say: shows a sentence to the user.
    """
    check_source(train, tasks.tasks)
    if train.source == SOLVE:
        return Solved(tasks, samples, held_out, Where(train.where or EARNS).holds)
    if Path(train.source).is_file():
        return open_file(Path(train.source), tasks, train.where, say)
    return open_run(_run(train.source), tasks, train.where or EARNS, say)
