"""What ``--plugin NAME`` runs: the base class that a task's author fills in, everything with a default."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

from rlfactory_core.config import DataColumns, Section
from rlfactory_core.config_load import validate_section
from rlfactory_core.data import load_samples
from rlfactory_core.env import ToolEnv
from rlfactory_core.errors import PluginError
from rlfactory_core.plugins.loading import Registration
from rlfactory_core.protocols import Env, ToolManager
from rlfactory_core.reporting.progress import NullProgress, Progress
from rlfactory_core.rewards.scorers import accepted_answers
from rlfactory_core.run_context import RunContext
from rlfactory_core.tiny import TinyModelRecipe, answer_text
from rlfactory_core.tool_context import ToolContext
from rlfactory_core.types import Message, Sample

MOST_SAMPLES = 1_000_000
"""Of a task's own in a split: they are all held in memory, and what gives more of them has forgotten to end."""


def make_task(registration: Registration, options: Mapping[str, Any], seed: int) -> Task:
    """The task that a plugin registers.

    Raises:
        ConfigError: the options do not fit.
        PluginError: the plugin's code is not what a task has to be.
    """
    what = f"The task '{registration.name}' of the plugin {registration.plugin}"
    try:
        task: Task = registration.make(options, seed)
    except TypeError as error:
        if "__init__() " not in str(error) or "argument" not in str(error):
            raise
        raise PluginError(
            f"{what} cannot be made: {error}. It is called with the options and the seed: "
            "`def __init__(self, config=None, seed=0)`, which calls `super().__init__(config, seed)`."
        ) from error
    if not hasattr(task, "config"):
        raise PluginError(f"{what} has no config: its __init__ has to call `super().__init__(config, seed)`.")
    weights = task.rewards.values() if isinstance(task.rewards, Mapping) else (None,)
    if not all(isinstance(weight, (int, float)) for weight in weights):
        raise PluginError(
            f"{what} has rewards = {task.rewards!r}; expected names with their weights, such as {{'exact_match': 1.0}}."
        )
    return task


def own_samples(task: Task, split: str) -> list[Sample]:
    """The built-in data of a split, whole.

    Raises:
        PluginError: it is nothing that can be gone through, or it does not come to an end.
    """
    what, given = f"{type(task).__name__}.samples('{split}')", task.samples(split)
    if not isinstance(given, Iterable):
        raise PluginError(f"{what} gave {given!r:.80}; expected Sample objects, as a list or by yield.")
    samples = list(islice(given, MOST_SAMPLES + 1))
    if len(samples) > MOST_SAMPLES:
        raise PluginError(
            f"{what} goes on after {MOST_SAMPLES:,} samples; expected a split of a fixed size, held in memory. "
            "Let it end after as many as are needed, or give the data as a file: --data train.jsonl"
        )
    return samples


class Task:
    """Tools, data and rewards.

    Args:
        config: the run's ``task`` section as plain data; checked against the class's own ``Config``.
        seed: the run's, for data that is generated.

    Raises:
        ConfigError: a key that ``Config`` does not know (with the nearest name), or a value that does not fit.
    """

    class Config(Section):
        """The task's own options: ``--NAME VALUE`` or ``task.NAME=VALUE`` on the command line."""

    tools: Sequence[Any] = ()  # functions marked with @tool, Tool objects, or ToolSource objects
    rewards: Mapping[str, float] = {"exact_match": 1.0}  # scorer or verifier -> weight
    defaults: ClassVar[Mapping[str, Any]] = {}  # of the run's configuration, as nested plain data
    tiny_defaults: ClassVar[Mapping[str, Any]] = {}  # more of them, for a run of the task's own tiny model
    reward_bounds: tuple[float, float] | None = None  # of a trajectory's; none: what its scorers say, weighted

    config: Any  # an instance of the class's own Config

    def __init__(self, config: Mapping[str, Any] | None = None, seed: int = 0) -> None:
        if not (isinstance(self.Config, type) and issubclass(self.Config, Section)):
            name = type(self).__name__
            raise PluginError(f"{name}.Config is no Section of rlfactory_core. Write `class Config(Section):` in it.")
        self.config = validate_section(type(self).Config, config or {}, prefix="task")
        self.seed = seed
        self.progress: Progress = NullProgress()  # of the run, from `open` on: where to show what takes long
        self.run = RunContext()  # of this process, from `open` on

    def samples(self, split: str) -> Iterable[Sample]:
        """The built-in data of a split, ``train`` or ``eval``, in a fixed order; empty where the task has none."""
        return ()

    def load(self, path: Path, columns: DataColumns, split: str) -> Sequence[Sample]:
        """The rows of a file of the user's own; a task that knows further layouts of its field reads them here.

        Raises:
            DataError: the file cannot be read, or is not in a layout that the task knows.
        """
        return load_samples(path, columns, split)

    def adapt(self, sample: Sample) -> Sample:
        """A row of the user's own data as this task plays it, for example with a system message; here as it is."""
        return sample

    def check(self, samples: Sequence[Sample]) -> None:
        """Refuse, with a `UsageError`, samples that this task cannot play; called before anything costly."""

    async def open(self) -> None:
        """Reach for what the tools need (an index, a server). Raise `BackendError` where it does not answer."""

    async def close(self) -> None:
        """Let go of it; called once, also after a failure."""

    def make_env(self, sample: Sample, manager: ToolManager, context: ToolContext) -> Env:
        """A new episode for one attempt at a sample."""
        return ToolEnv(sample, manager, context)

    def solve(self, sample: Sample, messages: Sequence[Message]) -> Message:
        """What somebody who knows the answer says next: a call of a tool, or the final answer.

        `rlfactory plugins check` plays it to see that the right answer gets the whole reward, and a task that has its
        own gets a tiny model that has seen it played (`tiny_model`). Here the first accepted answer in ``<answer>``
        tags, at once; a task with tools shows in its own how they are used.

        Args:
            messages: the episode so far, from the prompt to the last observation.
        """
        return Message("assistant", answer_text(accepted_answers(sample)[0]))

    def tiny_model(self) -> TinyModelRecipe | None:
        """The recipe of the embedded engine's default model; None: the user has to name a model.

        Here made from episodes that `solve` plays, where the task has its own.

        Raises:
            PluginError: `solve` does not bring a training sample to its end.
        """
        from rlfactory_core.demonstrated import demonstrated_recipe, is_demonstrated

        return demonstrated_recipe(self) if is_demonstrated(self) else None

    def controls(self) -> Mapping[str, Sequence[Any]]:
        """Named replacements of ``tools`` for a control evaluation at the end, such as a search that finds nothing."""
        return {}
