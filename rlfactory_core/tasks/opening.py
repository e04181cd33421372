"""Makes and opens what a configuration runs: one task, or several."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from rlfactory_core.context import RunContext
from rlfactory_core.plugins.registry import Registry
from rlfactory_core.reporting.progress import Progress
from rlfactory_core.tasks.mixture import MixedParts, MixedResources
from rlfactory_core.tasks.parts import TaskParts
from rlfactory_core.tasks.runtime import TaskResources, TaskRuntime
from rlfactory_core.tasks.scorers import ServedModel
from rlfactory_core.tasks.task import Task

if TYPE_CHECKING:
    from rlfactory_core.config import RunConfig


def task_parts(config: RunConfig, registry: Registry, task: Task | None = None) -> TaskParts:
    """The parts of a configuration's task or tasks; see `TaskParts.make`."""
    kind = MixedParts if config.tasks else TaskParts
    return kind.make(config, registry, task)


def task_resources(parts: TaskParts, group: str = "") -> TaskResources:
    """The closed resources of parts; see `TaskResources`."""
    return MixedResources(parts, group) if isinstance(parts, MixedParts) else TaskResources(parts, group)


@asynccontextmanager
async def open_task(
    parts: TaskParts,
    progress: Progress | None = None,
    run: RunContext | None = None,
    *,
    group: str = "",
    served: ServedModel | None = None,
) -> AsyncIterator[TaskRuntime]:
    """``async with open_task(parts) as runtime: …``; see `TaskResources` for the arguments and what is raised."""
    resources = task_resources(parts, group)
    try:
        yield await resources.open(progress, run, served=served)
    finally:
        await resources.close()
