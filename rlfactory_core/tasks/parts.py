"""A run's task before it is opened: the task itself, its samples and its scorers, all checked."""

from __future__ import annotations

import traceback
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlfactory_core.context import RunContext
from rlfactory_core.errors import DataError, PluginError, RlfactoryError
from rlfactory_core.plugins.loading import Registration, takes
from rlfactory_core.plugins.registry import Registry
from rlfactory_core.rewards.scorers import ENV_REWARD
from rlfactory_core.tasks.data import is_nan
from rlfactory_core.tasks.scorers import TaskScorers
from rlfactory_core.tasks.task import Task
from rlfactory_core.types import Message, Sample

if TYPE_CHECKING:
    from rlfactory_core.config import RunConfig

MOST_SAMPLES = 1_000_000
"""Of a split of the task's own data. They are all held in memory; a generator of more has probably no end."""


@dataclass(frozen=True, slots=True)
class TaskParts:
    """A run's task before it is opened, with its configuration and scorers; made once in each process."""

    config: RunConfig
    registry: Registry
    task: Task
    scorers: TaskScorers

    @classmethod
    def make(cls, config: RunConfig, registry: Registry, task: Task | None = None) -> TaskParts:
        """Make the parts that a configuration names.

        Args:
            task: the configuration's task, if it is made already.

        Raises:
            ConfigError: the task's own options, or those of a reward, do not fit.
            PluginError: no plugin has a name that the configuration uses.
        """
        task = task or make_task(registry.task(config.plugin), config.task, config.seed)
        task.run = RunContext(sections=registry.sections(config))
        return cls(config, registry, task, TaskScorers.make(config, registry, task))

    def each(self) -> Collection[TaskParts]:
        """The parts of each of the run's tasks; here the only one."""
        return (self,)

    @property
    def reward_bounds(self) -> tuple[float, float]:
        """The lowest and the highest reward of a trajectory, as declared by the task or by its scorers."""
        if self.task.reward_bounds is not None:
            return self.task.reward_bounds
        low = high = 0.0
        for name, (_, weight) in self.scorers.weighted.items():
            ends = sorted(weight * end for end in self.scorers.layer.traits[name].bounds)
            low, high = low + ends[0], high + ends[1]
        return low, high

    @property
    def top_reward(self) -> float | None:
        """The highest reward of a trajectory; None if it is not known."""
        high = self.reward_bounds[1]
        undeclared = self.task.reward_bounds is None and ENV_REWARD in self.scorers.weighted
        return None if undeclared or not isfinite(high) or high <= 0 else high

    def samples(self, split: str) -> list[Sample]:
        """The samples of a split: the user's data if there are any, else the task's own.

        Raises:
            DataError: the file cannot be read, or there are no samples.
            PluginError: the task returns something other than samples.
        """
        data, plugin = self.config.data, self.config.plugin
        path = data.train if split == "train" else data.eval
        if path is not None:
            samples = [self.task.adapt(row) for row in self.task.load(path, data.columns, split)]
        else:
            samples = [] if data.train is not None or data.eval is not None else own_samples(self.task, split)
        if not samples and split == "train":
            raise DataError(f"Plugin '{plugin}' has no training samples of its own here. Give some: --data train.jsonl")
        wrong = next((item for item in samples if not isinstance(item, Sample)), None)
        if wrong is not None:
            raise PluginError(
                f"Plugin '{plugin}': samples('{split}') gave a {type(wrong).__name__}; "
                "expected rlfactory_core.Sample objects."
            )
        odd = next(filter(None, map(odd_field, samples)), "")
        if odd:
            raise PluginError(f"Plugin '{plugin}': samples('{split}') gave a Sample whose {odd}.")
        self.task.check(samples)
        self.scorers.check(samples)
        return samples

    def held_out(self, *, required: bool) -> list[Sample]:
        """The evaluation's samples, at most ``eval.limit``.

        Raises:
            DataError: as `samples`; also if there are no samples and they are ``required``.
        """
        samples = self.samples("eval")[: self.config.eval.limit or None]
        if required and not samples:
            raise DataError(
                f"There are no held-out samples to evaluate plugin '{self.config.plugin}' on. "
                "Give some: --data test.jsonl"
            )
        return samples


def make_task(registration: Registration, options: Mapping[str, Any], seed: int) -> Task:
    """Make the task that a plugin registers.

    Raises:
        ConfigError: the options do not fit.
        PluginError: the plugin's code does not make a valid task.
    """
    what = f"The task '{registration.name}' of the plugin {registration.plugin}"
    try:
        task: Task = registration.make(options, seed)
    except TypeError as error:
        if takes(registration.factory, options, seed):
            raise
        raise PluginError(
            f"{what} cannot be made: {error}. It is called with the options and the seed: "
            "`def __init__(self, config=None, seed=0)`, which calls `super().__init__(config, seed)`."
        ) from error
    except RlfactoryError:
        raise
    except Exception as error:  # the boundary to a plugin's code, which may fail in any way
        raise PluginError(
            f"{what} cannot be made: {type(error).__name__}: {str(error).rstrip('.')} ({raised_at(error)}). "
            "`rlfactory --debug …` shows the traceback."
        ) from error
    if not hasattr(task, "config"):
        raise PluginError(f"{what} has no config: its __init__ has to call `super().__init__(config, seed)`.")
    weights = task.rewards.items() if isinstance(task.rewards, Mapping) else ((None, None),)
    if not all(isinstance(name, str) and isinstance(weight, (int, float)) for name, weight in weights):
        raise PluginError(
            f"{what} has rewards = {task.rewards!r}; expected names with their weights, as {{'exact_match': 1.0}}. "
            "A function or class of your own gets its name in the hook rlfactory_reward_scorers(register), or is "
            "named on the command line: --reward FILE.py:NAME"
        )
    if not _is_pair(task.reward_bounds):
        raise PluginError(f"{what} has reward_bounds = {task.reward_bounds!r}; expected two numbers, as in (0.0, 1.0).")
    return task


def _is_pair(bounds: Any) -> bool:
    pair = isinstance(bounds, (tuple, list)) and len(bounds) == 2
    return bounds is None or (pair and all(isinstance(bound, (int, float)) for bound in bounds))


def raised_at(error: Exception) -> str:
    """The file and the line that raised an error."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(frame.filename).name}, line {frame.lineno}"


def own_samples(task: Task, split: str) -> list[Sample]:
    """All samples of a split of the task's own data.

    Raises:
        PluginError: `Task.samples` returns something that cannot be iterated, or more than `MOST_SAMPLES`.
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


def odd_field(sample: Any) -> str:
    """The first field of a sample that has a wrong type, as the end of an error message; empty if there is none."""
    if not isinstance(sample.id, str):
        return f"id is {sample.id!r:.80}; expected a str, such as {str(sample.id)!r:.80}"
    if not isinstance(sample.metadata, Mapping):
        return f"metadata is {sample.metadata!r:.80}; expected a dict (sample '{sample.id}')"
    prompt = sample.prompt
    messages = isinstance(prompt, Sequence) and all(isinstance(each, Message) for each in prompt)
    if not messages and not isinstance(prompt, str):
        return f"prompt is {prompt!r:.80}; expected a str, or Message objects in a tuple (sample '{sample.id}')"
    if is_nan(sample.answer):
        return f"answer is {sample.answer!r:.80}, which nothing equals; expected what is right (sample '{sample.id}')"
    return ""
