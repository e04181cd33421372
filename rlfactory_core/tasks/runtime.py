"""One task of a run, opened, played and closed: its tools, rewards and chat format behind `TaskRuntime.play`.

Every engine uses it in each of its worker processes, so that trajectories do not depend on the engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from rlfactory_core.context import RunContext
from rlfactory_core.protocols import ChatFormat, Model, Sampler, Tool, ToolManager
from rlfactory_core.reporting.progress import Progress
from rlfactory_core.rewards.layer import GroupScoring
from rlfactory_core.rollout import Episode, RepeatingModel, RolloutLimits, TokenModel, rollout
from rlfactory_core.rollout.history import History
from rlfactory_core.rollout.transcript import naming
from rlfactory_core.tasks.scorers import ServedModel, refuse_pools
from rlfactory_core.tasks.setup import TaskSetup
from rlfactory_core.tasks.task import Task
from rlfactory_core.tools.limits import only_about
from rlfactory_core.tools.offered import check_names, offered_tools
from rlfactory_core.tools.sources import OpenTools
from rlfactory_core.types import PROMPT, FaultKind, Group, Sample, ToolSpec, Trajectory
from rlfactory_core.utils.aio import gather_all
from rlfactory_core.utils.seeds import derive_seed


class TaskRuntime:
    """One task of a run: `open` acquires its resources, `play` and the like play it, `close` releases them.

    Args:
        group: the same in all processes of a run on one machine, which then share tool servers; empty: not shared.
    """

    def __init__(self, setup: TaskSetup, group: str = "") -> None:
        self.setup, self.task = setup, setup.task
        self.scorers: Mapping[str, tuple[Any, float]] = setup.scorers.weighted
        self.rewards, self.success = setup.scorers.layer, setup.scorers.success
        self.limits = RolloutLimits.of(setup.rollout)
        self.agents = setup.player()
        self._tools = OpenTools(group)
        self._added: Sequence[Tool] = ()  # the tools of the configuration's own sources
        self.manager: ToolManager  # of all tools, once they are open
        self._managers: dict[str, ToolManager] = {}  # the same by the control's name; empty: of all tools
        self._chat: ChatFormat | None = None

    async def open(
        self,
        progress: Progress | None = None,
        run: RunContext | None = None,
        *,
        served: ServedModel | None = None,
        pools_later: bool = False,
    ) -> Self:
        """Open the task and its scorers, and start its tools.

        Args:
            progress: for the task's progress display.
            run: the task's context; its ``sections`` are those that the task has already.
            served: the model that the engine serves for scorers.
            pools_later: leave scorers closed whose model is not served yet, to check only the other resources.

        Raises:
            UsageError: the user can correct the cause, such as a scorer whose model the engine does not serve.
            BackendError: a service that the task needs does not answer.
        """
        setup, task = self.setup, self.task
        waiting: Collection[str] = () if served is not None else setup.scorers.pools
        if waiting and not pools_later:
            refuse_pools(waiting)
        task.join(task.run if run is None else replace(run, sections=task.run.sections), progress)
        await task.open()
        await setup.scorers.open(task, served, but=waiting)
        if self.agents is not None:
            await self.agents.open()
        await self._tools.open(task.tools)
        own = len(self._tools.tools)
        await self._tools.open([source.make() for source in setup.sources])
        self._added = self._tools.tools[own:]
        self.manager = self.control_manager("")  # raises UsageError if an item is not a tool
        return self

    async def close(self) -> None:
        """Release everything; it may be called before `open`, after a failed one, and repeatedly."""
        if self.agents is not None:
            await self.agents.close()
        for manager in self._managers.values():
            await manager.close()
        await self._tools.close()
        await self.setup.scorers.close()
        await self.task.close()

    @property
    def tools(self) -> Sequence[Tool]:
        """The open tools: those of the task, then those of the configuration."""
        return self._tools.tools

    def control_manager(self, name: str) -> ToolManager:
        """The manager of a control's tools, which replace the task's own, made once; an empty name: of all tools."""
        if name not in self._managers:
            tools = [*self.task.controls()[name], *self._added] if name else self.tools
            config = only_about(self.setup.tools, tools) if name else self.setup.tools
            self._managers[name] = self.setup.make_manager(tools, config, count_tokens=self._count_tokens)
        return self._managers[name]

    def _count_tokens(self, text: str) -> int:
        """The number of tokens; four bytes count as one if the model is remote and its tokenizer unknown."""
        return -(-len(text.encode()) // 4) if self._chat is None else len(self._chat.encode(text))

    def use_chat(self, chat: ChatFormat) -> Self:
        """Play with this chat format, which is not proved here. Without one, the task is played in messages only."""
        self._chat = chat
        return self

    @property
    def chat(self) -> ChatFormat:
        if self._chat is None:
            raise RuntimeError("This task has no chat format: give it one with use_chat.")
        return self._chat

    def offered(self, sample: Sample) -> Sequence[ToolSpec]:
        """The tools that the model is offered for a sample."""
        return offered_tools(self.manager, sample).specs

    def prompt_ids(self, sample: Sample) -> tuple[int, ...] | None:
        """The token ids of a sample's prompt, tools included; None: an agent of the user's own makes the prompt."""
        if self.agents:
            return None
        with naming(sample):
            return self.chat.initial_ids(sample.messages, self.offered(sample))

    @property
    def shows_prompts(self) -> bool:
        """Whether episodes begin with the sample's prompt as it is; an environment of the task's own may change it."""
        return not self.agents and not self.setup.make_env and type(self.task).make_env is Task.make_env

    def check(self, samples: Sequence[Sample]) -> None:
        """Raises a `DataError` if a sample names a tool that the task does not have."""
        check_names(samples, self.manager)

    def model(self, sampler: Sampler) -> TokenModel:
        """The sampler with the chat format."""
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
        scoring = GroupScoring(self.rewards, sample, attempts)
        playing = []
        for attempt in range(attempts):
            own, name = derive_seed(seed, sample.id, attempt), f"{session}/{attempt}"
            each = replace(episode, attempt=attempt, seed=own, session=name)
            playing.append(asyncio.create_task(self.rollout(each, model, scoring), name=name))
        return Group(sample, tuple(await gather_all(playing)))

    async def rollout(self, episode: Episode, model: Model, scoring: GroupScoring | None = None) -> Trajectory:
        """Roll out one attempt, by the task's environment or by an agent of the user's own.

        An attempt of a model in tokens that an infra fault spoils is played again, at most ``rollout.retries`` times:
        to leave it out would select the attempts that did not meet the fault. With ``rollout.deterministic`` it is not.

        Args:
            scoring: of the attempt's group; None: the attempt is not scored.
        """
        play = self.agents.play if self.agents is not None else rollout
        config = self.setup.rollout
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
        tools, config = offered_tools(manager or self.manager, sample), self.setup.rollout
        make_env = self.setup.make_env or self.task.make_env
        return Episode(
            sample,
            make_env=lambda sample, context: make_env(sample, tools, context),
            limits=self.limits,
            session=session,
            temperature=temperature,
            top_p=config.top_p if temperature > 0 else 1.0,
            seed=seed,
            history=History.of(config, self.task.compact),
            changes_tools=self.task.changes_tools,
        )
