"""Where a training stands among its stages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from math import ceil
from typing import Any

from rlfactory_core.algo.settings import TrainConfig
from rlfactory_core.algo.stages import STAGE_METHODS
from rlfactory_core.training.sources import SOLVE


@dataclass(frozen=True, slots=True)
class Done:
    """A stage that has ended, for ``summary.json``."""

    method: str
    first: int  # its first step
    last: int
    ended: str  # why


@dataclass(frozen=True, slots=True)
class Place:
    """The current stage. Steps are numbered through all stages.

    Args:
        stages: how many there are.
        done: those before it.
        first: its first step.
    """

    stages: int = 1
    done: tuple[Done, ...] = ()
    first: int = 1

    @classmethod
    def of(cls, stages: int, resumed: Mapping[str, Any]) -> Place:
        """From what a checkpoint has of the run; a new run, or one of an earlier version, is in its first stage."""
        done = tuple(Done(**each) for each in resumed.get("stages_done", ()))
        return cls(stages, done, int(resumed.get("stage_first", 1)))

    @property
    def number(self) -> int:
        """From 0."""
        return len(self.done)

    @property
    def is_last(self) -> bool:
        return self.number == self.stages - 1

    def last(self, steps: int) -> int:
        """Its last step if it has ``steps`` steps."""
        return self.first - 1 + steps

    def further(self, stages: Iterable[TrainConfig]) -> int:
        """What is added to the number of a step where its prompts are chosen.

        A stage goes through the tasks' samples from where the stages before it have stopped: attempts at what was just
        demonstrated are much alike, and what they teach is less general.
        """
        trained = [*stages]
        taken = sum(
            (each.last - each.first + 1) * train.prompts_per_step
            for each, train in zip(self.done, trained, strict=False)
            if STAGE_METHODS[train.method].plays or train.source == SOLVE
        )
        return ceil(taken / trained[self.number].prompts_per_step) - (self.first - 1)

    def after(self, method: str, last: int, ended: str) -> Place:
        """The place at the beginning of the next stage."""
        return Place(self.stages, (*self.done, Done(method, self.first, last, ended)), last + 1)

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"stages_done": [asdict(each) for each in self.done], "stage_first": self.first}
