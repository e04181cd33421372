"""The tasks of a run before they are opened: each with its samples, its scorers and its settings."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import Any

from rlfactory_core.context import ToolContext
from rlfactory_core.errors import DataError, PluginError
from rlfactory_core.gateway import AgentConfig, AgentPlayer
from rlfactory_core.protocols import Env, PoolRequest, ToolManager
from rlfactory_core.rewards.scorers import ENV_REWARD
from rlfactory_core.rollout.settings import RolloutConfig
from rlfactory_core.tasks.data import is_nan
from rlfactory_core.tasks.scorers import Scorers
from rlfactory_core.tasks.settings import DataConfig
from rlfactory_core.tasks.task import Task
from rlfactory_core.tools.manager import DefaultToolManager
from rlfactory_core.tools.settings import ToolsConfig
from rlfactory_core.tools.sources import NamedSource
from rlfactory_core.types import Message, Sample

MOST_SAMPLES = 1_000_000
"""Of a split of the task's own data. They are all held in memory; a generator of more has probably no end."""
SUCCESS = "success"
"""The score that means success in each task of a run, if the tasks call it by different names."""

MakeEnv = Callable[[Sample, ToolManager, ToolContext], Env]


@dataclass(frozen=True, slots=True)
class TaskSetup:
    """One task of a run, made once in each process, and all that it is played with.

    Args:
        plugin: as the user names it, for messages.
        env: the name of the environment, if the configuration names one.
        make_env: makes it; None: the task's own.
        make_manager: makes the tool manager.
        make_player: makes what plays the agent of a task that has one, see the hook ``rlfactory_agent_players``.
        sources: of tools, beside the task's own.
    """

    task: Task
    scorers: Scorers = field(default_factory=lambda: Scorers.of({}))
    plugin: str = ""
    data: DataConfig = field(default_factory=DataConfig)
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    tools: ToolsConfig = field(default_factory=ToolsConfig)
    agent: AgentConfig = field(default_factory=AgentConfig)
    env: str = ""
    make_env: MakeEnv | None = None
    make_manager: Callable[..., ToolManager] = DefaultToolManager
    make_player: Callable[[Any, AgentConfig], AgentPlayer] | None = None
    sources: Sequence[NamedSource] = ()

    @property
    def has_agent(self) -> bool:
        """Whether an agent of the user's own plays, and not an environment."""
        return bool(self.agent.command) or type(self.task).agent is not Task.agent

    @property
    def makes_rows(self) -> str:
        """What gives an attempt several rows, for a message; empty: an attempt is one row."""
        if self.has_agent:
            return "an agent of your own"
        if self.rollout.context != "keep":
            return f"rollout.context={self.rollout.context}"
        return "a task whose tools change within an episode" if self.task.changes_tools else ""

    def player(self) -> AgentPlayer | None:
        """What plays the task's agent; None: there is no agent.

        Raises:
            ConfigError: the agent's command cannot be used.
        """
        if not self.has_agent:
            return None
        if self.make_player is None:
            raise PluginError("The task has an agent, and nothing here plays agents.")
        return self.make_player(self.task.agent, self.agent)

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
        data = self.data
        path = data.train if split == "train" else data.eval
        if path is not None:
            samples = [self.task.adapt(row) for row in self.task.load(path, data.columns, split)]
        else:
            samples = [] if data.train is not None or data.eval is not None else own_samples(self.task, split)
        if not samples and split == "train":
            raise DataError(
                f"Plugin '{self.plugin}' has no training samples of its own here. Give some: --data train.jsonl"
            )
        wrong = next((item for item in samples if not isinstance(item, Sample)), None)
        if wrong is not None:
            raise PluginError(
                f"Plugin '{self.plugin}': samples('{split}') gave a {type(wrong).__name__}; "
                "expected rlfactory_core.Sample objects."
            )
        odd = next(filter(None, map(odd_field, samples)), "")
        if odd:
            raise PluginError(f"Plugin '{self.plugin}': samples('{split}') gave a Sample whose {odd}.")
        self.task.check(samples)
        self.scorers.check(samples)
        return samples


@dataclass(frozen=True, slots=True)
class Tasks:
    """The tasks of a run by `Sample.task`, which is empty in a run of one task.

    Args:
        eval_limit: most samples of an evaluation of each task; 0: all.
    """

    by_name: Mapping[str, TaskSetup]
    eval_limit: int = 0

    @property
    def only(self) -> TaskSetup:
        """The task of a run that has one."""
        (setup,) = self.by_name.values()
        return setup

    def samples(self, split: str) -> list[Sample]:
        """The samples of a split of all tasks; raises as `TaskSetup.samples`."""
        return [sample for name, setup in self.by_name.items() for sample in _named(name, setup.samples(split))]

    def held_out(self, *, required: bool) -> list[Sample]:
        """The evaluation's samples, at most ``eval_limit`` of each task.

        Raises:
            DataError: as `TaskSetup.samples`; also if a task has no samples and they are ``required``.
        """
        found = []
        for name, setup in self.by_name.items():
            samples = setup.samples("eval")[: self.eval_limit or None]
            if required and not samples:
                raise DataError(
                    f"There are no held-out samples to evaluate plugin '{setup.plugin}' on. "
                    "Give some: --data test.jsonl"
                )
            found += _named(name, samples)
        return found

    @property
    def success(self) -> str:
        """The name of the score that means success in all tasks."""
        return shared_success(setup.scorers for setup in self.by_name.values())

    @property
    def scorers(self) -> Scorers:
        """All scorers and their weights; of several with the same name, the one with the largest weight."""
        scorers = [setup.scorers for setup in self.by_name.values()]
        return scorers[0] if len(scorers) == 1 else Scorers.of(_heaviest(scorers))

    @property
    def pools(self) -> Mapping[str, PoolRequest]:
        """The models that the engine should serve, by the reward's key."""
        return {key: pool for setup in self.by_name.values() for key, pool in setup.scorers.pools.items()}

    @property
    def top_reward(self) -> float | None:
        """The highest reward of a trajectory, of the task with the lowest; None if that of a task is not known."""
        tops = [setup.top_reward for setup in self.by_name.values()]
        return min((top for top in tops if top is not None), default=None) if None not in tops else None

    @property
    def controls(self) -> Sequence[str]:
        """The names of the task's controls; several tasks have none in common, and an agent has tools of its own."""
        alone = len(self.by_name) == 1 and not self.only.has_agent
        return tuple(self.only.task.controls()) if alone else ()


def shared_success(scorers: Iterable[Scorers]) -> str:
    """The name that all tasks have for the score that means success, else `SUCCESS`."""
    names = {each.success for each in scorers}
    return names.pop() if len(names) == 1 else SUCCESS


def _heaviest(scorers: Iterable[Scorers]) -> dict[str, tuple[Any, float]]:
    weighted: dict[str, tuple[Any, float]] = {}
    for each in scorers:
        for key, (scorer, weight) in each.weighted.items():
            if key not in weighted or weighted[key][1] < weight:
                weighted[key] = scorer, weight
    return weighted


def _named(name: str, samples: list[Sample]) -> list[Sample]:
    """The samples of one of several tasks, with ids that no other task has."""
    return [replace(sample, id=f"{name}/{sample.id}", task=name) for sample in samples] if name else samples


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
        never = f"the answer is {sample.answer!r:.80}, which never compares equal"
        return f"{never}; give the correct answer (sample '{sample.id}')"
    return ""
