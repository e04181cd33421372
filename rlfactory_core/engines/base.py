"""The interfaces of engines, and what they get of a run.

An `Engine` owns weights, and `rlfactory_core.training` has the loop. A `WholeEngine` brings a loop of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from rlfactory_core.algo.advantages import Advantage
from rlfactory_core.algo.losses import PolicyLoss
from rlfactory_core.algo.prompts import PromptSampler
from rlfactory_core.algo.stages import GRPO
from rlfactory_core.engines.memory import MemoryPhase
from rlfactory_core.engines.settings import EngineSettings
from rlfactory_core.engines.tiny import TinyModel
from rlfactory_core.errors import CheckpointError, ConfigError, UsageError
from rlfactory_core.plugins.fingerprint import Fingerprint
from rlfactory_core.protocols import ChatFormat, Sampler
from rlfactory_core.reporting.folder import RunFolder
from rlfactory_core.reporting.progress import Progress
from rlfactory_core.settings import Section
from rlfactory_core.tasks.setup import Tasks
from rlfactory_core.types import Sample, TaughtToken, TrainBatch, TrainSequence
from rlfactory_core.utils.interrupt import StopRequest

if TYPE_CHECKING:
    from rlfactory_core.tasks.opening import OpenTasks

T = TypeVar("T")
Settings = TypeVar("Settings", bound=EngineSettings)


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
class Stage:
    """A part of the training, with all that its names stand for.

    Args:
        config: of the run, with the stage's own ``train``.
        make_prompts: makes the sampler that chooses from the training samples.
        advantage: None: ``train.advantage`` is a name that only the engine or the stage's method knows.
        loss: None: ``train.loss`` is a name that only the engine knows.
    """

    config: EngineSettings
    make_prompts: Callable[[Sequence[Sample]], PromptSampler]
    advantage: Advantage | None
    loss: PolicyLoss | None


@dataclass(frozen=True, slots=True)
class EngineRun:
    """One run, as an engine gets it, with all that the run's names stand for.

    Args:
        tasks: with their samples and scorers; open them with `open_tasks`.
        stages: at least one.
        sections: the configuration of each plugin in use, by name.
        fingerprints: of the plugins in use, which change with their files.
        again: gives this run in another process, which unpickles and calls it; the progress display stays here.
        resume: continue from the folder's latest checkpoint.
        stop: the training loop arms it and checks it after each step; the user or a part of the run may request it.
        command: with which the user has started it; empty: it is not known.
    """

    config: EngineSettings
    tasks: Tasks
    folder: RunFolder
    progress: Progress
    make_chat: MakeChat
    stages: Sequence[Stage]
    sections: Mapping[str, Section]
    fingerprints: Sequence[Fingerprint]
    again: Callable[[], EngineRun]
    resume: bool = False
    stop: StopRequest = field(default_factory=StopRequest)
    command: str = ""


Conversation: TypeAlias = "Callable[[OpenTasks, Sampler], Awaitable[None]]"
"""What is done with open tasks and a model that samples."""


@dataclass(frozen=True, slots=True)
class EngineTraits:
    """Optional attributes of an engine; here the defaults."""

    serves_pools: bool = False  # it serves models for scorers, see `NeedsModelPool`
    uses_algorithms: bool = False  # train.advantage and train.loss are registered names; else it checks them itself
    refuses_changed_plugins: bool = False  # it resumes a run only if the plugins' files are unchanged
    methods: Collection[str] = (GRPO,)  # the names of train.method that it has
    trains_stages: bool = False  # it can train several stages one after the other
    explain: Callable[[Any, Tasks], str] | None = None
    """Gives what ``--dry-run`` shows after the configuration, for the configuration and its tasks."""
    converse: Callable[[EngineRun, Conversation], None] | None = None
    """Opens the task and the model, awaits the conversation with them, and closes them: for ``rlfactory play``."""
    roll_back: Callable[[RunFolder, int], int | None] | None = None
    """Deletes a run's checkpoints after a step and returns the step of the newest one left, for train.guard=rollback.
    If none would be left it deletes nothing and returns None."""
    memory: Callable[..., Sequence[MemoryPhase]] | None = None
    """``memory(config, size, limit)`` gives what `rlfactory memory` shows of a configuration that `Engine.prepare` has
    not completed yet, with a `ModelSize` and the bytes that a process may take on the device; None: unknown."""


@dataclass(frozen=True, slots=True)
class EngineFactoryTraits:
    """Optional attributes of an engine's factory; here the defaults."""

    adapt: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    """Changes a task's own defaults (nested plain data, chosen for the local engine) to what this engine supports."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The files of a checkpoint."""

    folder: Path  # the model in Hugging Face's layout, for any program
    state: Path  # a file beside it, with what a resume needs besides the weights
    earlier: Path | None = None  # the folder of the checkpoint before, when one is saved


@dataclass(frozen=True, slots=True)
class EngineStart:
    """What an engine opens its model with.

    Args:
        make_tiny: describes the task's own model, if the configuration names none; raises a `ModelError` without one.
        checkpoint: of the run, if it is resumed: its weights take the place of the start model's.
        loss: None: ``train.loss`` is a name that only the engine knows.
        stage: its number, from 0. ``train.kl`` of a later one compares with the policy at its start.
    """

    config: EngineSettings
    progress: Progress
    make_tiny: Callable[[], TinyModel]
    checkpoint: Checkpoint | None = None
    loss: PolicyLoss | None = None
    stage: int = 0


@dataclass(frozen=True, slots=True)
class OpenModel:
    """What a run has to know of the model that an engine has opened."""

    tokenizer: Any
    positions: int | None = None  # the most that it was made for; None: it has no limit
    sees_images: bool = False


class Teacher(Protocol):
    """A frozen model that finds sampled tokens likely or not, for on-policy distillation (`algo.distillation`)."""

    async def score(self, sequences: Sequence[TrainSequence], likely: int = 0) -> Sequence[Sequence[TaughtToken]]:
        """What it thinks at the tokens that each sequence's loss mask selects.

        Args:
            likely: how many of its likeliest ids it names at each of them.

        Raises:
            BackendError: it does not answer.
        """

    async def close(self) -> None:
        """Release it."""


class Processes:
    """The processes of an engine, and what they do together; this one is alone."""

    rank, size = 0, 1

    @property
    def first(self) -> bool:
        return self.rank == 0

    def share(self, items: Sequence[T]) -> list[T]:
        """Every size-th item, beginning with this rank's."""
        return list(items[self.rank :: self.size])

    async def run(self, work: Callable[[], T]) -> T:
        """Call what needs the weights as they are, while nothing changes them or samples from them."""
        return work()

    async def gather(self, item: T) -> list[T]:
        """The items of all processes, in rank order, in the first; an empty list in the others."""
        return [item]

    async def broadcast(self, item: T) -> T:
        """The first process's item, in every process."""
        return item

    async def any(self, value: bool) -> bool:
        """Whether the value is true in any process."""
        return value


ALONE = Processes()


class Engine(ABC):
    """Owns the weights: samples from them, scores with them, updates and saves them.

    It knows no task, no schedule and no folder of a run: `rlfactory_core.training` trains with it, records, evaluates,
    saves, resumes and stops. Its methods are called in the order in which they stand here, `load` in a run that is
    resumed, and `save` within `Processes.run`. An engine may also have the optional attributes of `EngineTraits`.
    """

    processes: Processes = ALONE
    compares_likely = False
    """Whether `update` moves the policy to the teacher's likely ids in `TrainSequence.taught` (train.teacher_top)."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """What ``summary.json`` says of the engine, once the sampler is there."""
        return {}

    def prepare(self, config: Settings) -> Settings:
        """The configuration completed for this machine (device, worker processes).

        Raises:
            UsageError: this engine cannot do what is configured; raised before anything costly happens.
        """
        return config

    @contextmanager
    def joined(self, config: EngineSettings, program: Callable[[Engine], None]) -> Iterator[None]:
        """Within the context the engine's other processes run the program, which can be pickled."""
        yield

    @abstractmethod
    def open(self, start: EngineStart) -> OpenModel:
        """Load the model and its tokenizer.

        Raises:
            ModelError: the start model cannot be had.
            CheckpointError: the checkpoint cannot be read.
        """

    def load(self, checkpoint: Checkpoint) -> Mapping[str, Any]:
        """Go on from what `save` has written; returns its argument ``run``.

        Raises:
            CheckpointError: the file is missing or damaged, or belongs to another model.
        """
        raise CheckpointError(f"{type(self).__name__} saves no state, so its runs cannot be resumed.")

    @abstractmethod
    async def sampler(self, chat: ChatFormat, prompts: Sequence[tuple[int, ...]] | None, version: int) -> Sampler:
        """The sampler of the weights, until `close`.

        Args:
            chat: the model's chat format, whose ``stop_token_ids`` end a turn.
            prompts: the ids of some prompts, whose common beginning need be computed only once; None: an agent's are
                not known before it asks.
            version: how many updates have made these weights.
        """

    def stage(self, start: EngineStart, *, fresh: bool) -> None:
        """Train with this configuration and loss from here on, in a run of several stages.

        The weights stay, and so do the keys of ``algo.stages.OF_THE_RUN``.

        Args:
            fresh: the stage begins: drop the optimizer's state, so that its schedule begins anew; else it goes on.
        """
        raise UsageError(f"{type(self).__name__} trains one stage, and this run has several.")

    def expect(self, sessions: Iterable[str]) -> None:  # noqa: B027 - optional, as are `publish` and `close`
        """These sessions will be sampled, in this order; for ``rollout.deterministic``."""

    @abstractmethod
    async def update(self, batches: Sequence[TrainBatch]) -> Mapping[str, float]:
        """Make a step's update; all processes call it together, also one without a batch.

        Returns:
            Its metrics over all processes. ``trained_tokens`` has to be among them, and ``skipped`` and ``grad_norm``
            if an update was left out for its gradient.
        """

    @abstractmethod
    async def score(self, sequences: Sequence[TrainSequence]) -> Sequence[Sequence[float]]:
        """The log-probs, at temperature 1, of the tokens that each sequence's loss mask selects."""

    def teacher(self, model: str, device: str) -> Teacher:
        """A second model beside the one that is trained, once the sampler is there; it may load its weights later.

        Args:
            model: a folder or a hub id.
            device: empty: the device of the model that is trained.

        Raises:
            ConfigError: its vocabulary is another one, or this engine loads no second model.
            ModelError: it cannot be had.
        """
        raise ConfigError(
            f"train.teacher={model}: this engine loads no second model. Give the address of a server that has the "
            "teacher, such as http://127.0.0.1:8000/v1."
        )

    async def publish(self, version: int) -> None:  # noqa: B027
        """The sampler samples from the updated weights from here on at the latest, and its tokens have this version."""

    @abstractmethod
    def save(self, checkpoint: Checkpoint, run: Mapping[str, Any]) -> None:
        """Write the model, and in the file ``state`` what `load` needs.

        Args:
            run: plain data of the run for `load`, which JSON can hold.
        """

    async def close(self) -> None:  # noqa: B027
        """Release everything; also after a failed `open`."""


class WholeEngine(Protocol):
    """An engine with a training loop of its own, which writes the run's folder: metrics, trajectories, checkpoints."""

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
