"""The plugin under check: one open bench for all checks, and what they share."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, NoReturn

from rlfactory_core.errors import BackendError, UsageError
from rlfactory_core.protocols import ChatFormat, ToolManager
from rlfactory_core.reporting.progress import NullProgress, Progress
from rlfactory_core.testing.bench import TaskBench
from rlfactory_core.testing.checks.elsewhere import Elsewhere, play_elsewhere
from rlfactory_core.testing.checks.result import DoesNotApply
from rlfactory_core.testing.policies import Policy, oracle
from rlfactory_core.types import Sample, Trajectory

_UNPLAYED = "the oracle cannot be played, as an earlier check tells"
_UNOPENED = "the task cannot be made ready, as an earlier check tells"


class Subject:
    """``with Subject("my-task") as subject: …``; the task is opened when a check first needs it.

    Args:
        plugin, overrides: as `TaskBench` takes them.
        models: folders or hub ids whose tokenizers `tokens` tries beside the built-in families'.
        samples: of each split that are played.
        deadline_s: for the episodes of one policy.
        close_s: for closing the task.
        hang_s: what tools that are made to hang have for a call.
        progress: where it is shown that opening takes long.

    Raises:
        UsageError: no such plugin, or it cannot be configured like this.
    """

    def __init__(
        self,
        plugin: str,
        overrides: Sequence[str | Mapping[str, Any]] = (),
        *,
        models: Sequence[str] = (),
        samples: int = 8,
        deadline_s: float = 60.0,
        close_s: float = 15.0,
        hang_s: float = 0.5,
        progress: Progress | None = None,
    ) -> None:
        self.models, self.count = tuple(models), samples
        self.deadline_s, self.close_s, self.hang_s = deadline_s, close_s, hang_s
        self.progress: Progress = progress or NullProgress()
        self.seen: list[Trajectory] = []  # all that were played by any check
        self._bench = TaskBench(plugin, overrides, progress=progress)
        self._is_open = False
        self._unopened: Exception | None = None  # why the task is not open
        self._unplayed: Exception | None = None  # why there is no oracle
        self._already: set[str] = set()  # what a check has told
        self._oracle: dict[str, list[Trajectory]] = {}
        self._elsewhere: Elsewhere | None = None

    def __enter__(self) -> Subject:  # noqa: PYI034 - Self needs Python 3.11
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.renew()

    def renew(self) -> None:
        """Leave the open task behind, however it takes it: the next check gets another one."""
        if self._is_open:
            with contextlib.suppress(Exception):  # the boundary to the task's close; the check `close` tells of it
                self._bench.close(self.close_s)
            self._bench, self._is_open = self._bench.again(), False

    def open(self) -> None:
        """So that what the user can mend is told before any check.

        Raises:
            UsageError, BackendError: the task has no samples here, or cannot be opened. Anything else is a finding of
                the first check.
        """
        if self._is_open or self._unopened is not None:
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
        """Open.

        Raises:
            DoesNotApply: it could not be opened for an earlier check, either.
            Exception: what opening raises, the first time.
        """
        self.open()
        if self._unopened is not None:
            self._told(_UNOPENED, self._unopened)
        return self._bench

    def closed_bench(self) -> TaskBench:
        """Another one of the same task, not open."""
        return self._bench.again()

    def rows(self, split: str) -> list[Sample]:
        """All samples; the task need not be open."""
        return self._bench.rows(split)

    def some(self, split: str = "train") -> list[Sample]:
        """Samples from all over a split."""
        return self._bench.samples(split, self.count)

    def play(
        self,
        policy: Policy,
        samples: Sequence[Sample],
        *,
        attempts: int = 1,
        manager: ToolManager | None = None,
        chat: ChatFormat | None = None,
    ) -> list[Trajectory]:
        """As `TaskBench.play`; the check `bounds` looks at what came of it."""
        played = self.bench.play(
            policy, samples, attempts=attempts, manager=manager, chat=chat, deadline_s=self.deadline_s
        )
        self.seen += played
        return played

    def oracle(self, split: str = "train") -> list[Trajectory]:
        """What the oracle comes to on `some` of the samples, played once.

        Raises:
            DoesNotApply: it could not be played for an earlier check, either.
            Exception: what playing raises, the first time.
        """
        if split not in self._oracle:
            bench = self.bench
            if self._unplayed is not None:
                self._told(_UNPLAYED, self._unplayed)
            try:
                self._oracle[split] = self.play(oracle(bench.task), self.some(split))
            except Exception as error:  # noqa: BLE001 - the boundary to the task's code; it is raised again
                self._unplayed = error
                self._told(_UNPLAYED, error)
        return self._oracle[split]

    @property
    def elsewhere(self) -> Elsewhere:
        """What another process makes of the same plugin."""
        if self._elsewhere is None:
            bench = self.bench
            self._elsewhere = play_elsewhere(
                bench.config, bench.registry.fingerprints(), self.some()[:2], 2 * self.deadline_s
            )
        return self._elsewhere

    def _told(self, again: str, error: Exception) -> NoReturn:
        """The error for the first check that meets it, and a word for the others."""
        if again in self._already:
            raise DoesNotApply(again)
        self._already.add(again)
        raise error
