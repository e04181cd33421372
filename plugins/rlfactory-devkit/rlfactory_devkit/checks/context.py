"""What the checks of one plugin share: one open bench and the episodes played so far."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

from rlfactory_core.errors import BackendError, UsageError
from rlfactory_core.reporting.progress import Progress
from rlfactory_core.runner import Policy, TaskBench, oracle
from rlfactory_core.types import Sample, Trajectory
from rlfactory_devkit.checks.other_process import OtherProcessResult, play_in_other_process
from rlfactory_devkit.checks.result import DoesNotApply


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """How thoroughly a task is checked, and how long the checks wait for it."""

    models: Sequence[str] = ()  # folders or hub ids whose tokenizers `tokens` tries beside the built-in families'
    run: str = ""  # a run or an evaluation, whose trajectories `stored` scores anew
    samples: int = 8  # of each split, that are played
    deadline_s: float = 60.0  # for the episodes of one policy
    close_s: float = 15.0  # for closing the task
    hang_s: float = 0.5  # for a call to a tool that is made to hang


class CheckContext:
    """``with CheckContext("my-task") as context: …`` opens the task, as `TaskBench`, when a check first needs it."""

    def __init__(
        self,
        plugin: str,
        overrides: Sequence[str | Mapping[str, Any]] = (),
        options: CheckOptions = CheckOptions(),
        *,
        progress: Progress | None = None,
    ) -> None:
        self.options = options
        self.all_played: list[Trajectory] = []  # all that were played by any check
        self._bench = TaskBench(plugin, overrides, progress=progress)
        self._is_open = False
        self._unopened: Exception | None = None  # why the task cannot be opened
        self._oracle: dict[str, list[Trajectory] | DoesNotApply] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.renew()

    def renew(self) -> None:
        """Close the open task and ignore its errors; the next check gets a new one."""
        if self._is_open:
            self.close_quietly(self._bench)
            self._bench, self._is_open = self._bench.again(), False

    def close_quietly(self, bench: TaskBench) -> None:
        with contextlib.suppress(Exception):  # the boundary to the task's close; the check `close` reports its errors
            bench.close(self.options.close_s)

    def open(self) -> None:
        """Open the task before any check, so that errors which the user can correct are shown at once.

        These are `UsageError` and `BackendError`. Others are reported by the first check.
        """
        if self._is_open or self._unopened:
            return
        try:
            for split in ("train", "eval"):
                self.rows(split)
            self._bench.__enter__()
            self._is_open = True
        except (UsageError, BackendError):
            raise
        except Exception as error:  # noqa: BLE001 - the boundary to the task's open; it is kept for the first check
            self._unopened = error

    @property
    def bench(self) -> TaskBench:
        """The open bench. Raises what opening raises, the first time, and then `DoesNotApply`."""
        self.open()
        if self._unopened:
            error = self._unopened
            self._unopened = DoesNotApply("the task cannot be opened, as an earlier check reports")
            raise error
        return self._bench

    def closed_bench(self) -> TaskBench:
        """Another bench of the same task, not open."""
        return self._bench.again()

    def rows(self, split: str) -> list[Sample]:
        """All samples; the task need not be open."""
        return self._bench.rows(split)

    def some(self, split: str = "train") -> list[Sample]:
        """Samples from all over a split."""
        return self._bench.samples(split, self.options.samples)

    def play(self, policy: Policy, samples: Sequence[Sample], **replacing: Any) -> list[Trajectory]:
        """As `TaskBench.play`, with its ``manager`` and ``chat``; the episodes are kept for the check `bounds`."""
        played = self.bench.play(policy, samples, deadline_s=self.options.deadline_s, **replacing)
        self.all_played += played
        return played

    def oracle(self, split: str = "train") -> list[Trajectory]:
        """The oracle's episodes on `some` of the samples, played once; raises as `bench` if it cannot be played."""
        if split not in self._oracle:
            task = self.bench.task
            self._oracle[split] = DoesNotApply("the oracle cannot be played, as an earlier check reports")
            self._oracle[split] = self.play(oracle(task), self.some(split))
        played = self._oracle[split]
        if isinstance(played, DoesNotApply):
            raise played
        return played

    @cached_property
    def other_process(self) -> OtherProcessResult:
        """The result of playing the same plugin in another process."""
        config, fingerprints = self.bench.config, self.bench.registry.fingerprints()
        return play_in_other_process(config, fingerprints, self.some()[:2], 2 * self.options.deadline_s)
