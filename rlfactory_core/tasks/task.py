"""The base class of tasks, which ``--plugin NAME`` runs; every attribute and method has a default."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from rlfactory_core.context import RunContext, ToolContext
from rlfactory_core.errors import PluginError
from rlfactory_core.gateway import Endpoint
from rlfactory_core.protocols import Env, ToolManager
from rlfactory_core.reporting.eval_table import EvalTable
from rlfactory_core.reporting.progress import Progress
from rlfactory_core.rewards.scorers import accepted_answers
from rlfactory_core.rollout import ToolEnv
from rlfactory_core.rollout.history import remove_oldest_result
from rlfactory_core.settings import Section, validate_section
from rlfactory_core.tasks.data import load_samples
from rlfactory_core.tasks.settings import DataColumns
from rlfactory_core.tiny import TinyModelRecipe, answer_text
from rlfactory_core.types import Group, Message, Sample


class Task:
    """Tools, data and rewards of a task.

    Args:
        config: the run's ``task`` section as plain data; checked against the class's own ``Config``.
        seed: the run's seed, for generated data.

    Raises:
        ConfigError: ``Config`` has no such key, or the value does not fit.
    """

    class Config(Section):
        """The task's own options: ``--NAME VALUE`` or ``task.NAME=VALUE`` on the command line."""

    tools: Sequence[Any] = ()  # functions marked with @tool, Tool objects, or ToolSource objects
    rewards: Mapping[str, float] = {"exact_match": 1.0}  # weights by name of a scorer or verifier
    defaults: ClassVar[Mapping[str, Any]] = {}  # of the run's configuration, as nested plain data
    tiny_defaults: ClassVar[Mapping[str, Any]] = {}  # further defaults for a run with the task's own tiny model
    reward_bounds: tuple[float, float] | None = None  # of a trajectory's reward; None: the weighted bounds of scorers
    has_solution: bool = True  # False: `solve` plays on without knowing how to win, and checks expect no reward of it
    changes_tools: bool = False  # True: its environments offer other tools within an episode (`EnvStep.tools`)
    injections: Sequence[str] = ()  # texts for ``plugins redteam``, with ``{answer}`` for a wrong answer

    config: Any  # an instance of the class's own Config

    def __init__(self, config: Mapping[str, Any] | None = None, seed: int = 0) -> None:
        if not (isinstance(self.Config, type) and issubclass(self.Config, Section)):
            name = type(self).__name__
            raise PluginError(f"{name}.Config is no Section of rlfactory_core. Write `class Config(Section):` in it.")
        self.config = validate_section(type(self).Config, config or {}, prefix="task")
        self.seed = seed
        self.progress: Progress = Progress()
        self.run = RunContext()

    def join(self, run: RunContext, progress: Progress | None = None) -> None:
        """Become a part of a run. Before `open` it is called again: only then are the folder and the display known."""
        self.run, self.progress = run, progress or self.progress

    def samples(self, split: str) -> Iterable[Sample]:
        """The task's own data of a split, ``train`` or ``eval``, in a fixed order; empty if there is none."""
        return ()

    def load(self, path: Path, columns: DataColumns, split: str) -> Sequence[Sample]:
        """The rows of a user's file. Override it to read other file formats.

        Raises:
            DataError: the file cannot be read, or has another format.
        """
        return load_samples(path, columns, split)

    def adapt(self, sample: Sample) -> Sample:
        """Change a row of the user's data for this task, for example by a system message; by default unchanged."""
        return sample

    def check(self, samples: Sequence[Sample]) -> None:
        """Raise `UsageError` if this task cannot play the samples; called before anything costly."""

    async def open(self) -> None:
        """Acquire what the tools need, such as an index or a server. Raise `BackendError` if it does not answer."""

    async def close(self) -> None:
        """Release it; called once, also after a failure."""

    def make_env(self, sample: Sample, manager: ToolManager, context: ToolContext) -> Env:
        """A new episode for one attempt at a sample."""
        return ToolEnv(sample, manager, context)

    async def agent(self, sample: Sample, endpoint: Endpoint) -> Any:
        """Play one attempt with a loop of the task's own instead of an environment and tools; override it.

        It may use any framework that speaks OpenAI's or Anthropic's protocol, with ``endpoint.url``, ``endpoint.key``
        and ``endpoint.model``, and may also be a plain ``def``. It runs on another event loop than the task's `open`.

        Returns:
            The answer that rewards see: a text, or a mapping with ``answer``, ``reward`` and ``metadata``; see
            `gateway.AgentResult`.
        """
        raise NotImplementedError

    def compact(self, sample: Sample, messages: Sequence[Message]) -> Sequence[Message]:
        """A shorter history, with ``rollout.context=compact``; by default without the oldest tool's result.

        It is called until the history fits into ``rollout.context_tokens``, or stays the same.
        """
        return remove_oldest_result(sample, messages)

    def solve(self, sample: Sample, messages: Sequence[Message]) -> Message:
        """The next message of a perfect solution: a call of a tool, or the final answer.

        `rlfactory plugins check` plays it and checks that it gets the full reward. If a task overrides it, the task's
        tiny model learns from it, unless `demonstrate` shows something else. By default it is the first accepted answer
        in ``<answer>`` tags; a task with tools should call them.

        Args:
            messages: the episode so far, from the prompt to the last observation.
        """
        return Message("assistant", answer_text(accepted_answers(sample)[0]))

    def demonstrate(self, sample: Sample, messages: Sequence[Message]) -> Message:
        """The next message of an episode from which the task's tiny model learns; by default that of `solve`.

        Override it where `solve` does what a model cannot learn, such as answering from the sample without looking, or
        where the model should see other ways to a solution. It has to end each episode without a wrong call.

        Args:
            messages: as in `solve`.
        """
        return self.solve(sample, messages)

    def tiny_model(self) -> TinyModelRecipe | None:
        """The recipe of the model that is trained if the user names none; None: there is no such model.

        If a task overrides `solve` or `demonstrate` but not this method, the recipe is made from episodes of
        `demonstrate`; see `tasks.demonstrations`.
        """
        return None

    def controls(self) -> Mapping[str, Sequence[Any]]:
        """Replacements of ``tools`` by name, such as a search without results; the last evaluation compares them."""
        return {}

    def eval_tables(self, passes: Mapping[str, Sequence[Group]]) -> Sequence[EvalTable]:
        """Tables of its own that `rlfactory eval` prints and saves, such as those of a leaderboard; by default none.

        Args:
            passes: the attempts by sample as they are saved: ``greedy``, and ``sampled`` if that was played. Masked
                ones, which count in no result, are among them.
        """
        return ()
