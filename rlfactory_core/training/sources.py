"""Where the demonstrations of a supervised stage come from: what ``train.source`` names.

To add a source: a class that has what `Source` says, a line in `open_source`, and one in `check_source`, which runs
before anything costly. `rollout.WrittenModel` writes the turns of a demonstration and `rollout.RecordedEnv` answers
them, so that the ordinary `rollout` makes its trajectory: with ids, rows, masks, scores and a record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from rlfactory_core.errors import ChatFormatError, ConfigError
from rlfactory_core.rollout.written import WrittenModel
from rlfactory_core.tasks.opening import OpenTasks
from rlfactory_core.tasks.setup import Tasks
from rlfactory_core.tasks.solving import demonstrated, is_solved
from rlfactory_core.types import PROMPT, Fault, FaultKind, Group, Sample, StopReason, Trajectory

SOLVE = "solve"


class Source(Protocol):
    """Demonstrations, of which each process plays its share."""

    @property
    def samples(self) -> Sequence[Sample]:
        """One for each demonstration to train on, with ids of their own; the same in all processes."""

    @property
    def held_out(self) -> Sequence[Sample]:
        """Those of demonstrations that are never trained on, whose loss is measured; may be empty."""

    @property
    def where(self) -> str:
        """The condition for a demonstration to be learnt from, if ``train.where`` sets none; see `Where`."""

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
    where: str = field(default="reward > 0", init=False)

    async def play(self, sample: Sample, *, session: str, **how: Any) -> Group:
        runtime = self.tasks.of(sample)
        model = WrittenModel(lambda asked: demonstrated(runtime.task, sample, asked.messages), runtime.chat)
        try:
            group = await runtime.play(sample, model, session=session, **how)
        except ChatFormatError as error:
            return unplayable(sample, str(error))
        no_room = [fault for each in group.trajectories for fault in each.faults if fault.source == PROMPT]
        return unplayable(sample, no_room[0].message) if no_room else group


def unplayable(sample: Sample, why: str) -> Group:
    """A demonstration without turns, which is recorded with the reason and never trained on."""
    fault = Fault(FaultKind.AGENT, "demonstration", why, 0)
    return Group(sample, (Trajectory(sample, 0, (), StopReason.AGENT_FAILED, (fault,)),))


def check_source(given: str, tasks: Tasks) -> None:
    """Refuse what ``train.source`` cannot name, before anything is opened.

    Raises:
        ConfigError: there is no such source, or the tasks cannot give it.
    """
    if given != SOLVE:
        raise ConfigError(f"train.source={given}: expected {SOLVE}, the task's own solutions.")
    for setup in tasks.by_name.values():
        name = type(setup.task).__name__
        if not is_solved(setup.task):
            raise ConfigError(
                f"train.source={SOLVE}: {name} does not show how it is solved. Give it a method solve or demonstrate."
            )
        if setup.rollout.context == "summarize":
            raise ConfigError(
                f"train.source={SOLVE}: {name}.solve writes no summaries, as rollout.context=summarize asks."
            )


def open_source(given: str, tasks: OpenTasks, samples: Sequence[Sample], held_out: Sequence[Sample]) -> Source:
    """The source that ``train.source`` names.

    Args:
        tasks: open, with their chat format.
        samples: the tasks' own for training; ``held_out`` are those of the evaluations.
    """
    check_source(given, tasks.tasks)
    return Solved(tasks, samples, held_out)
