"""The interface of engines, and the description of a run that they get."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from rlfactory_core.config import RunConfig
from rlfactory_core.engines.memory import MemoryPhase
from rlfactory_core.plugins.registry import Registry
from rlfactory_core.reporting.folder import RunFolder
from rlfactory_core.reporting.progress import Progress
from rlfactory_core.tasks.opening import task_parts
from rlfactory_core.tasks.parts import TaskParts
from rlfactory_core.utils.interrupt import StopRequest

if TYPE_CHECKING:
    from rlfactory_core.protocols import Sampler
    from rlfactory_core.tasks.runtime import TaskRuntime


@dataclass(frozen=True, slots=True)
class EngineRun:
    """One run, as an engine gets it.

    Args:
        resume: continue from the folder's latest checkpoint.
        stop: the training loop arms it and checks it after each step; the user or a part of the run may request it.
        made: the task's parts, if they exist already.
        parts: the run's task with its samples and scorers; open it with `open_task`.
    """

    config: RunConfig
    registry: Registry
    folder: RunFolder
    progress: Progress
    resume: bool = False
    stop: StopRequest = field(default_factory=StopRequest)
    made: InitVar[TaskParts | None] = None
    parts: TaskParts = field(init=False)

    def __post_init__(self, made: TaskParts | None) -> None:
        object.__setattr__(self, "parts", made or task_parts(self.config, self.registry))


Conversation: TypeAlias = "Callable[[TaskRuntime, Sampler], Awaitable[None]]"
"""What is done with an open task and a model that samples."""


@dataclass(frozen=True, slots=True)
class EngineTraits:
    """Optional attributes of an engine; here the defaults."""

    serves_pools: bool = False  # it serves models for scorers, see `NeedsModelPool`
    uses_algorithms: bool = False  # train.advantage and train.loss are registered names; else it checks them itself
    refuses_changed_plugins: bool = False  # it resumes a run only if the plugins' files are unchanged
    explain: Callable[[RunConfig, Registry], str] | None = None
    """Gives what ``--dry-run`` shows after the configuration."""
    converse: Callable[[EngineRun, Conversation], None] | None = None
    """Opens the task and the model, awaits the conversation with them, and closes them: for ``rlfactory play``."""
    roll_back: Callable[[RunFolder, int], int | None] | None = None
    """Deletes a run's checkpoints after a step and returns the step of the newest one left, for train.guard=rollback.
    If none would be left it deletes nothing and returns None."""
    memory: Callable[..., Sequence[MemoryPhase]] | None = None
    """``memory(config, size, limit)`` gives what `rlfactory memory` shows of a configuration that `Engine.prepare` has
    not completed yet: a `RunConfig`, a `ModelSize`, and the bytes of each device, if they are not this machine's."""


@dataclass(frozen=True, slots=True)
class EngineFactoryTraits:
    """Optional attributes of an engine's factory; here the defaults."""

    adapt: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    """Changes a task's own defaults (nested plain data, chosen for the local engine) to what this engine supports."""


class Engine(Protocol):
    """Owns the weights and the training loop; writes metrics, trajectories and checkpoints into the run's folder."""

    def prepare(self, config: RunConfig) -> RunConfig:
        """The configuration completed for this machine (device, worker processes).

        Raises:
            UsageError: this engine cannot do what is configured; raised before anything costly happens.
        """

    def train(self, run: EngineRun) -> dict[str, Any]:
        """Train, evaluate before and after; returns what ``summary.json`` holds.

        Raises:
            RunStopped: the user or a part of the run stopped it; everything up to the last whole step is saved.
        """

    def evaluate(self, run: EngineRun) -> dict[str, Any]:
        """Only evaluate; returns the flat map of the results."""
