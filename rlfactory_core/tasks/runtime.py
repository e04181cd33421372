"""An open task: its tools, rewards and chat format behind one method, `TaskRuntime.play`.

Every engine uses it in each of its worker processes, so that trajectories do not depend on the engine.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rlfactory_core.chat.select import configured_format
from rlfactory_core.context import RunContext
from rlfactory_core.errors import ConfigError
from rlfactory_core.protocols import ChatFormat, Model, Sampler, Tool, ToolManager
from rlfactory_core.reporting.progress import Progress
from rlfactory_core.rewards.layer import GroupScoring
from rlfactory_core.rollout import Episode, RepeatingModel, RolloutLimits, TokenModel, rollout
from rlfactory_core.rollout.history import History
from rlfactory_core.rollout.transcript import prompt_ids
from rlfactory_core.tasks.agents import make_agents
from rlfactory_core.tasks.parts import TaskParts
from rlfactory_core.tasks.scorers import ServedModel
from rlfactory_core.tasks.task import Task
from rlfactory_core.tools.limits import only_about
from rlfactory_core.tools.offered import check_names, offered_tools
from rlfactory_core.tools.servers import server_tools
from rlfactory_core.tools.sources import OpenTools
from rlfactory_core.types import PROMPT, FaultKind, Group, Sample, ToolSpec, Trajectory
from rlfactory_core.utils.aio import gather_all


class TaskResources:
    """The resources of a task, its scorers and its tools; `open` acquires them, `close` releases them.

    Args:
        group: the same in all processes of a run on one machine, which then share tool servers; empty: not shared.
    """

    def __init__(self, parts: TaskParts, group: str = "") -> None:
        self.parts = parts
        self._tools = OpenTools(group)
        self._added: Sequence[Tool] = ()  # the tools of the configuration's own sources
        self._managers: dict[str, ToolManager] = {}
        self.chat: ChatFormat | None = None  # counts the tokens of tools' results, once the model is known
        self.agents = make_agents(parts.task, parts.config.agent)

    async def open(
        self,
        progress: Progress | None = None,
        run: RunContext | None = None,
        *,
        served: ServedModel | None = None,
        pools_later: bool = False,
    ) -> TaskRuntime:
        """Open the task and its scorers, and start its tools.

        Args:
            progress: for the task's progress display.
            run: the task's context; its ``sections`` are kept from the parts.
            served: the model that the engine serves for scorers.
            pools_later: leave scorers closed whose model is not served yet, to check only the other resources.

        Raises:
            UsageError: the user can correct the cause, such as a scorer whose model the engine does not serve.
            BackendError: a service that the task needs does not answer.
        """
        config, task, scorers = self.parts.config, self.parts.task, self.parts.scorers
        waiting: Collection[str] = () if served is not None else scorers.pools
        if waiting and not pools_later:
            scorers.refuse_pools()
        if progress is not None:
            task.progress = progress
        if run is not None:
            task.run = replace(run, sections=task.run.sections)
        await task.open()
        await scorers.open(task, served, but=waiting)
        if config.rollout.deterministic and (self.agents or config.rollout.context != "keep"):
            other = "an agent asks when it likes" if self.agents else "rollout.context begins further rows"
            raise ConfigError(
                f"rollout.deterministic=true takes turns in a fixed order, and {other}. Drop one of the two."
            )
        if self.agents is not None:
            await self.agents.open()
        await self._tools.open(task.tools)
        own = len(self._tools.tools)
        if config.tools.mcp is not None:
            await self._tools.open([server_tools(config.tools.mcp)])
        self._added = self._tools.tools[own:]
        self.manager("")  # raises UsageError if an item is not a tool
        return TaskRuntime(self.parts, self)

    async def close(self) -> None:
        """Release everything; it may be called before `open`, after a failed one, and repeatedly."""
        if self.agents is not None:
            await self.agents.close()
        for manager in self._managers.values():
            await manager.close()
        await self._tools.close()
        await self.parts.scorers.close()
        await self.parts.task.close()

    @property
    def tools(self) -> Sequence[Tool]:
        """The open tools: those of the task, then those of the configuration."""
        return self._tools.tools

    def manager(self, control: str) -> ToolManager:
        """The manager of all tools, made once. A control's name replaces the task's tools by the control's."""
        if control not in self._managers:
            parts = self.parts
            tools = [*parts.task.controls()[control], *self._added] if control else self.tools
            config = only_about(parts.config.tools, tools) if control else parts.config.tools
            make = parts.registry.find(config.manager, "tool_manager").factory
            self._managers[control] = make(tools, config, count_tokens=self._count_tokens)
        return self._managers[control]

    def _count_tokens(self, text: str) -> int:
        """The number of tokens; four bytes count as one if the model is remote and its tokenizer unknown."""
        return -(-len(text.encode()) // 4) if self.chat is None else len(self.chat.encode(text))


class TaskRuntime:
    """A task that can be played; made by `open_task`.

    Args:
        chat: the model's chat format; without it, the task can be played in messages only.
    """

    def __init__(self, parts: TaskParts, resources: TaskResources, chat: ChatFormat | None = None) -> None:
        self.parts, self.config, self.task = parts, parts.config, parts.task
        self.scorers: Mapping[str, tuple[Any, float]] = parts.scorers.weighted
        self.rewards, self.success = parts.scorers.layer, parts.scorers.success
        self.limits, env = RolloutLimits.of(self.config.rollout), self.config.env
        self._make_env = parts.registry.find(env, "env").factory if env else parts.task.make_env
        self.manager, self.tools = resources.manager(""), resources.tools
        self.agents = resources.agents
        self._resources, self._chat = resources, chat
        if chat is not None:
            resources.chat = chat

    def with_tokenizer(self, tokenizer: Any, *, images: bool = False) -> TaskRuntime:
        """The same runtime with the chat format for a tokenizer, which the configuration chooses.

        Args:
            images: as for `configured_format`.

        Raises:
            ChatFormatError: no format fits, or its proof fails (`ChatFormat.prove`).
        """
        chat = configured_format(self.config.chat, self.parts.registry, tokenizer, images=images)
        chat.prove()
        return self.with_chat(chat)

    def with_chat(self, chat: ChatFormat) -> TaskRuntime:
        """The same runtime with a chat format, which is proved already."""
        return TaskRuntime(self.parts, self._resources, chat)

    @property
    def chat(self) -> ChatFormat:
        if self._chat is None:
            raise RuntimeError("This TaskRuntime has no tokenizer: use the one that with_tokenizer gives.")
        return self._chat

    def of(self, sample: Sample) -> TaskRuntime:
        """The runtime of the sample's own task."""
        return self

    def offered(self, sample: Sample) -> Sequence[ToolSpec]:
        """The tools that the model is offered for a sample."""
        return offered_tools(self.manager, sample).specs

    def prompt_ids(self, sample: Sample) -> tuple[int, ...] | None:
        """The token ids of a sample's prompt, tools included; None: an agent of the user's own makes the prompt."""
        own = self.of(sample)
        return None if own.agents else prompt_ids(own.chat, sample, sample.messages, own.offered(sample))

    @property
    def shows_prompts(self) -> bool:
        """Whether episodes begin with the sample's prompt as it is; an environment of the task's own may change it."""
        return not self.agents and not self.config.env and type(self.task).make_env is Task.make_env

    def check(self, samples: Sequence[Sample]) -> None:
        """Raises a `DataError` if a sample names a tool that the task does not have."""
        check_names(samples, self.manager)

    def control_manager(self, name: str) -> ToolManager:
        """The manager of a control's tools and those of the configuration."""
        return self._resources.manager(name)

    def model(self, sampler: Sampler) -> TokenModel:
        """The sampler with the runtime's chat format."""
        return TokenModel(self.chat, sampler)

    async def play(
        self,
        sample: Sample,
        model: Model,
        *,
        attempts: int,
        temperature: float,
        seed: int,
        session: str,
        manager: ToolManager | None = None,
    ) -> Group:
        """Roll out all attempts at a sample concurrently, and score each as soon as it has ended.

        Args:
            model: it sees the sessions ``session/0``, ``session/1``, …
            manager: replaces the task's own tools.
        """
        episode = self.episode(sample, temperature, seed, session, manager)
        scoring = self.rewards.scoring(sample, attempts)
        played = await gather_all(self.rollout(each, model, scoring) for each in episode.attempts(attempts))
        return Group(sample, tuple(played))

    async def play_one(
        self,
        sample: Sample,
        model: Model,
        *,
        attempt: int,
        temperature: float,
        seed: int,
        session: str,
        manager: ToolManager | None = None,
    ) -> Trajectory:
        """Roll out and score one attempt; group scorers get a group of one.

        It equals attempt i of `play` if ``seed`` is ``derive_seed(seed of play, sample.id, i)`` and ``session`` is
        ``"<session of play>/<i>"``.
        """
        episode = replace(self.episode(sample, temperature, seed, session, manager), attempt=attempt)
        return await self.rewards.score_trajectory(await self.rollout(episode, model))

    async def rollout(self, episode: Episode, model: Model, scoring: GroupScoring | None = None) -> Trajectory:
        """Roll out one attempt, by the task's environment or by an agent of the user's own.

        An attempt of a model in tokens that an infra fault spoils is played again, at most ``rollout.retries`` times:
        to leave it out would select the attempts that did not meet the fault. With ``rollout.deterministic`` it is not.

        Args:
            scoring: of the attempt's group; None: the attempt is not scored.
        """
        play = self.agents.play if self.agents is not None else rollout
        config = self.config.rollout
        if config.deterministic or model.chat is None or not config.retries:
            trajectory = await play(episode, model)
        else:
            repeating = RepeatingModel(model)
            trajectory = await play(episode, repeating)
            for _ in range(config.retries):
                if not any(fault.kind is FaultKind.INFRA and fault.source != PROMPT for fault in trajectory.faults):
                    break
                repeating.repeat()
                trajectory = await play(episode, repeating)
        return trajectory if scoring is None else await scoring.score(episode.attempt, trajectory)

    def episode(
        self, sample: Sample, temperature: float, seed: int, session: str, manager: ToolManager | None
    ) -> Episode:
        """An attempt at a sample with the run's limits and environment."""
        tools = offered_tools(manager or self.manager, sample)
        return Episode(
            sample,
            make_env=lambda sample, context: self._make_env(sample, tools, context),
            limits=self.limits,
            session=session,
            temperature=temperature,
            top_p=self.config.rollout.top_p if temperature > 0 else 1.0,
            seed=seed,
            history=History.of(self.config.rollout, self.task.compact),
        )
