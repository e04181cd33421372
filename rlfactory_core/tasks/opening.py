"""All tasks of a run, opened and closed together; `OpenTasks.of` selects the one of a sample."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Self

from rlfactory_core.context import RunContext
from rlfactory_core.errors import BackendError, RlfactoryError
from rlfactory_core.protocols import ChatFormat
from rlfactory_core.reporting.progress import Progress
from rlfactory_core.tasks.runtime import TaskRuntime
from rlfactory_core.tasks.scorers import ServedModel
from rlfactory_core.tasks.setup import Tasks
from rlfactory_core.types import Sample


class OpenTasks:
    """The tasks of a run in one process.

    Args:
        group: as for `TaskRuntime`.
    """

    def __init__(self, tasks: Tasks, group: str = "") -> None:
        self.tasks, self.success = tasks, tasks.success
        self.by_name = {
            name: TaskRuntime(setup, f"{group}#{name}" if group and name else group)
            for name, setup in tasks.by_name.items()
        }

    async def open(self, progress: Progress | None = None, run: RunContext | None = None, **options: Any) -> Self:
        """Open each task; see `TaskRuntime.open` for the arguments and for what is raised."""
        for name, task in self.by_name.items():
            try:
                await task.open(progress, run, **options)
            except RlfactoryError as error:
                if name:
                    error.args = (f"The task '{name}' of this run: {error}", *error.args[1:])
                raise
            except Exception as error:  # the boundary to a plugin's code, which may fail in any way
                if not name:
                    raise
                raise BackendError(
                    f"The task '{name}' of this run does not open: {type(error).__name__}: {error}"
                ) from error
        return self

    async def close(self) -> None:
        """Release everything; it may be called before `open`, after a failed one, and repeatedly."""
        for task in reversed(self.by_name.values()):
            await task.close()

    @property
    def chat(self) -> ChatFormat:
        """The chat format of all tasks."""
        return next(iter(self.by_name.values())).chat

    def use_chat(self, chat: ChatFormat) -> Self:
        """Prove this chat format, and play all tasks with it.

        Raises:
            ChatFormatError: the proof fails (`ChatFormat.prove`).
        """
        chat.prove()
        for task in self.by_name.values():
            task.use_chat(chat)
        return self

    def of(self, sample: Sample) -> TaskRuntime:
        """The task of a sample."""
        return self.by_name[sample.task]

    @property
    def only(self) -> TaskRuntime:
        """The task of a run that has one."""
        (task,) = self.by_name.values()
        return task

    @property
    def max_tokens(self) -> int:
        """The most tokens of a trajectory of any task."""
        return max(task.limits.max_tokens for task in self.by_name.values())

    def check(self, samples: Sequence[Sample]) -> None:
        """Raise a `DataError` if a sample names a tool that its task does not have."""
        for name, task in self.by_name.items():
            task.check([sample for sample in samples if sample.task == name])


@asynccontextmanager
async def open_tasks(
    tasks: Tasks,
    progress: Progress | None = None,
    run: RunContext | None = None,
    *,
    group: str = "",
    served: ServedModel | None = None,
) -> AsyncIterator[OpenTasks]:
    """``async with open_tasks(run.tasks) as opened: …``; see `TaskRuntime` for the arguments and what is raised."""
    opened = OpenTasks(tasks, group)
    try:
        yield await opened.open(progress, run, served=served)
    finally:
        await opened.close()
