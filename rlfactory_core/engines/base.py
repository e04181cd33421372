"""The interface of engines, and the description of a run that they get."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from rlfactory_core.algo.advantages import Advantage
from rlfactory_core.algo.losses import PolicyLoss
from rlfactory_core.algo.prompts import PromptSampler
from rlfactory_core.engines.memory import MemoryPhase
from rlfactory_core.engines.settings import EngineSettings
from rlfactory_core.plugins.fingerprint import Fingerprint
from rlfactory_core.protocols import ChatFormat
from rlfactory_core.reporting.folder import RunFolder
from rlfactory_core.reporting.progress import Progress
from rlfactory_core.settings import Section
from rlfactory_core.tasks.setup import Tasks
from rlfactory_core.types import Sample
from rlfactory_core.utils.interrupt import StopRequest

if TYPE_CHECKING:
    from rlfactory_core.protocols import Sampler
    from rlfactory_core.tasks.opening import OpenTasks


class MakeChat(Protocol):
    """Makes the chat format that a run's configuration names, for the model's tokenizer."""

    def __call__(self, tokenizer: Any, *, images: bool = False) -> ChatFormat:
        """The format, which is not proved yet.

        Args:
            images: the model sees images, and so does the engine.

        Raises:
            PluginError: no plugin gives the format that is named.
            ChatFormatError: no format fits.
        """


@dataclass(frozen=True, slots=True)
class EngineRun:
    """One run, as an engine gets it, with all that the run's names stand for.

    Args:
        tasks: with their samples and scorers; open them with `open_tasks`.
        make_prompts: makes the sampler that chooses from the training samples.
        advantage: None: ``train.advantage`` is a name that only the engine knows.
        loss: None: likewise for ``train.loss``.
        sections: the configuration of each plugin in use, by name.
        fingerprints: of the plugins in use, which change with their files.
        again: gives this run in another process, which unpickles and calls it; the progress display stays here.
        resume: continue from the folder's latest checkpoint.
        stop: the training loop arms it and checks it after each step; the user or a part of the run may request it.
    """

    config: EngineSettings
    tasks: Tasks
    folder: RunFolder
    progress: Progress
    make_chat: MakeChat
    make_prompts: Callable[[Sequence[Sample]], PromptSampler]
    advantage: Advantage | None
    loss: PolicyLoss | None
    sections: Mapping[str, Section]
    fingerprints: Sequence[Fingerprint]
    again: Callable[[], EngineRun]
    resume: bool = False
    stop: StopRequest = field(default_factory=StopRequest)


Conversation: TypeAlias = "Callable[[OpenTasks, Sampler], Awaitable[None]]"
"""What is done with open tasks and a model that samples."""


@dataclass(frozen=True, slots=True)
class EngineTraits:
    """Optional attributes of an engine; here the defaults."""

    serves_pools: bool = False  # it serves models for scorers, see `NeedsModelPool`
    uses_algorithms: bool = False  # train.advantage and train.loss are registered names; else it checks them itself
    refuses_changed_plugins: bool = False  # it resumes a run only if the plugins' files are unchanged
    explain: Callable[[Any, Tasks], str] | None = None
    """Gives what ``--dry-run`` shows after the configuration, for the configuration and its tasks."""
    converse: Callable[[EngineRun, Conversation], None] | None = None
    """Opens the task and the model, awaits the conversation with them, and closes them: for ``rlfactory play``."""
    roll_back: Callable[[RunFolder, int], int | None] | None = None
    """Deletes a run's checkpoints after a step and returns the step of the newest one left, for train.guard=rollback.
    If none would be left it deletes nothing and returns None."""
    memory: Callable[..., Sequence[MemoryPhase]] | None = None
    """``memory(config, size, limit)`` gives what `rlfactory memory` shows of a configuration that `Engine.prepare` has
    not completed yet, with a `ModelSize` and, if they are not this machine's, the bytes of each device."""


@dataclass(frozen=True, slots=True)
class EngineFactoryTraits:
    """Optional attributes of an engine's factory; here the defaults."""

    adapt: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    """Changes a task's own defaults (nested plain data, chosen for the local engine) to what this engine supports."""


class Engine(Protocol):
    """Owns the weights and the training loop; writes metrics, trajectories and checkpoints into the run's folder."""

    def prepare(self, config: Any) -> Any:
        """The configuration (`EngineSettings`, or more) completed for this machine: device, worker processes.

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
