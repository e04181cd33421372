"""A task made ready to be played: its samples, tools, rewards and chat format behind one method, `play`.

Every engine uses this, in each of its worker processes: what a trajectory is does not depend on who samples its tokens.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rlfactory_core.chat.select import configured_format
from rlfactory_core.chat_rollout import chat_rollout
from rlfactory_core.clients.base import ChatClient
from rlfactory_core.config import RewardConfig, RunConfig
from rlfactory_core.errors import ConfigError, DataError, PluginError, UsageError
from rlfactory_core.plugins.loading import Kind
from rlfactory_core.plugins.registry import Registry
from rlfactory_core.protocols import (
    ChatFormat,
    Env,
    Pooled,
    PoolRequest,
    Sampler,
    Tool,
    ToolManager,
    ToolSource,
)
from rlfactory_core.reporting.progress import Progress
from rlfactory_core.rewards.layer import RewardLayer
from rlfactory_core.rollout import Episode, RolloutLimits, rollout, rollout_group
from rlfactory_core.run_context import RunContext
from rlfactory_core.task import make_task, own_samples
from rlfactory_core.tools.opening import OpenTools
from rlfactory_core.types import Group, Message, Sample, Trajectory


class TaskRuntime:
    """Make it, ``await open()``, set the ``chat`` format, `play`, ``await close()``.

    Args:
        group: the same in all processes of a run on a machine, which then share tool servers; empty: there is one only.

    Raises:
        ConfigError: the task's own options do not fit.
        PluginError: a name in the configuration that no plugin gives.
    """

    def __init__(self, config: RunConfig, registry: Registry, *, group: str = "") -> None:
        self.config, self.registry = config, registry
        self.task = make_task(registry.task(config.plugin), config.task, config.seed)
        wanted = self._wanted_rewards()
        # By what the reward is called: the scorer and its weight.
        self.scorers: dict[str, tuple[Any, float]] = {
            reward.called: (self._make_scorer(reward), reward.weight) for reward in wanted
        }
        deadlines = {r.called: r.deadline_s or getattr(self.scorers[r.called][0], "deadline_s", None) for r in wanted}
        self.rewards = RewardLayer(self.scorers, deadlines={name: s for name, s in deadlines.items() if s is not None})
        self._make_env: Callable[..., Env] = (
            registry.find(config.env, "env").factory if config.env else self.task.make_env
        )
        limits = config.rollout
        self.limits = RolloutLimits(limits.max_turns, limits.max_tool_calls, limits.max_turn_tokens, limits.max_tokens)
        self._sections = registry.sections(config)
        self.task.run = RunContext(sections=self._sections)
        self._chat: ChatFormat | None = None
        self._managers: dict[str, ToolManager] = {}
        self._open_tools = OpenTools(group)
        self._added: Sequence[Tool] = ()  # the tools of the configuration's own sources, once they are open
        self._pools_served = False

    def _wanted_rewards(self) -> Sequence[RewardConfig]:
        wanted = self.config.rewards or tuple(
            RewardConfig(name=name, weight=weight) for name, weight in self.task.rewards.items()
        )
        if not wanted:
            raise ConfigError(
                f"The run has no reward: {type(self.task).__name__}.rewards is empty, and at least one scorer is "
                "needed. Where the environment pays the whole reward (EnvStep.reward), name one that only measures, by "
                "a weight of 0, such as rewards = {'format': 0.0}, and say what can be had: reward_bounds = (0.0, 1.0)."
            )
        return wanted

    def _make_scorer(self, reward: RewardConfig) -> Any:
        kinds: tuple[Kind, ...] = ("reward_scorer", "verifier")
        registration = self.registry.find(reward.name, *kinds)
        try:
            return registration.make(**reward.options)
        except TypeError as error:
            if not reward.options or "argument" not in str(error):
                raise  # a bug of the scorer's own
            raise ConfigError(
                f"Reward '{reward.name}' cannot be made with the options {', '.join(reward.options)}: {error}. Beside "
                "name, label, weight and deadline_s, a reward takes only options of its own."
            ) from error

    @property
    def success(self) -> str:
        """The reward that tells whether an attempt succeeded: ``exact_match`` if there is one, else the weightiest."""
        scorers = self.scorers
        return "exact_match" if "exact_match" in scorers else max(scorers, key=lambda name: scorers[name][1])

    @property
    def pools(self) -> Mapping[str, PoolRequest]:
        """What scorers want the engine to serve, by what the reward is called."""
        pooled = {name: item.pool for name, (item, _) in self.scorers.items() if isinstance(item, Pooled)}
        return {name: pool for name, pool in pooled.items() if pool is not None}

    def use_pools(self, urls: Sequence[str], model: str) -> None:
        """Tell the scorers that want one where their model is served; before `open`."""
        for name in self.pools:
            self.scorers[name][0].use_pool(urls, model)
        self._pools_served = True

    def refuse_pools(self) -> None:
        """Raise a `UsageError` where a scorer wants a model served: nobody here does that."""
        for name in self.pools:
            raise UsageError(
                f"rewards.{name}: placement=pool needs --engine verl, which serves the model on GPUs of its own; here "
                "nothing does. Use that engine, or serve the model yourself (rlfactory judge serve, or any "
                "OpenAI-compatible server), give its address as url, and leave placement out."
            )

    @property
    def chat(self) -> ChatFormat:
        if self._chat is None:
            raise RuntimeError("TaskRuntime.use_tokenizer was not called")
        return self._chat

    def use_tokenizer(self, tokenizer: Any) -> None:
        """Choose the chat format; raises `ChatFormatError` where none is known or it does not do what it should."""
        self._chat = configured_format(self.config.chat, self.registry, tokenizer)
        self._chat.prove()

    def samples(self, split: str) -> list[Sample]:
        """The user's data where it is given, else the task's own.

        Raises:
            DataError: the file cannot be read, or there are no samples.
            PluginError: the task gives something else than samples.
        """
        path = self.config.data.train if split == "train" else self.config.data.eval
        own = self.config.data.train is not None or self.config.data.eval is not None
        if path is not None:
            samples = [self.task.adapt(row) for row in self.task.load(path, self.config.data.columns, split)]
        else:
            samples = [] if own else own_samples(self.task, split)
        if not samples and split == "train":
            raise DataError(
                f"Plugin '{self.config.plugin}' has no training samples of its own here. Give some: --data train.jsonl"
            )
        wrong = next((item for item in samples if not isinstance(item, Sample)), None)
        if wrong is not None:
            raise PluginError(
                f"Plugin '{self.config.plugin}': samples('{split}') gave a {type(wrong).__name__}; "
                "expected rlfactory_core.Sample objects."
            )
        odd = next(filter(None, (_odd(sample) for sample in samples)), "")
        if odd:
            raise PluginError(f"Plugin '{self.config.plugin}': samples('{split}') gave a Sample whose {odd}.")
        self.task.check(samples)
        return samples

    def held_out(self, *, required: bool) -> list[Sample]:
        """The evaluation's samples, at most ``eval.limit``.

        Raises:
            DataError: as `samples`; also where there are none and they are ``required``.
        """
        samples = self.samples("eval")[: self.config.eval.limit or None]
        if required and not samples:
            raise DataError(
                f"There are no held-out samples to evaluate plugin '{self.config.plugin}' on. "
                "Give some: --data test.jsonl"
            )
        return samples

    async def open(
        self, progress: Progress | None = None, run: RunContext | None = None, *, pools_later: bool = False
    ) -> None:
        """Reach for the task's resources and start its tools.

        Args:
            progress: where what takes long is shown.
            run: what the task and its scorers know of the run, without the plugins' sections, which are known here.
            pools_later: only look whether all can be reached: scorers whose pool is not served yet stay closed.

        Raises:
            UsageError: what the user can mend, such as a scorer that wants a pool where none is served.
            BackendError: a service that the task needs does not answer.
        """
        waiting: Collection[str] = () if self._pools_served else self.pools
        if waiting and not pools_later:
            self.refuse_pools()
        if progress is not None:
            self.task.progress = progress
        if run is not None:
            self.task.run = replace(run, sections=self._sections)
        await self.task.open()
        await self.rewards.open(self.task, closed=waiting)
        await self._open_tools.open(self.task.tools)
        own = len(self._open_tools.tools)
        await self._open_tools.open(self._configured_sources())
        self._added = self._open_tools.tools[own:]
        self._managers["tools"] = self._manager(self._open_tools.tools)

    def _configured_sources(self) -> list[ToolSource]:
        """The tools that the configuration adds to the task's own."""
        if self.config.tools.mcp is None:
            return []
        from rlfactory_core.tools.mcp.source import McpSource

        return [McpSource(self.config.tools.mcp)]

    def _manager(self, tools: Sequence[Any]) -> ToolManager:
        make = self.registry.find(self.config.tools.manager, "tool_manager").factory
        manager: ToolManager = make(tools, self.config.tools, count_tokens=self._count_tokens)
        return manager

    def _count_tokens(self, text: str) -> int:
        """With a remote model, whose tokenizer is not at hand, a token is taken as four bytes."""
        return -(-len(text.encode()) // 4) if self._chat is None else len(self._chat.encode(text))

    @property
    def tools(self) -> Sequence[Tool]:
        """All that are open: the task's own, then what the configuration adds."""
        return self._open_tools.tools

    @property
    def manager(self) -> ToolManager:
        return self._managers["tools"]

    def control_manager(self, name: str) -> ToolManager:
        """The tools of one of the task's controls, and what the configuration adds."""
        if name not in self._managers:
            self._managers[name] = self._manager([*self.task.controls()[name], *self._added])
        return self._managers[name]

    async def close(self) -> None:
        for manager in self._managers.values():
            await manager.close()
        await self._open_tools.close()
        await self.rewards.close()
        await self.task.close()

    async def play(
        self,
        sample: Sample,
        sampler: Sampler,
        *,
        attempts: int,
        temperature: float,
        seed: int,
        session: str,
        manager: ToolManager | None = None,
    ) -> Group:
        """Roll out and score all attempts at a sample, concurrently; the sampler sees ``session/0``, ``session/1``, …

        Args:
            manager: replaces the task's own tools.
        """
        episode = self.episode(sample, temperature, seed, session, manager)
        return await self._play_group(episode, attempts, lambda each: rollout(each, self.chat, sampler))

    async def play_one(
        self,
        sample: Sample,
        sampler: Sampler,
        *,
        attempt: int,
        temperature: float,
        seed: int,
        session: str,
        manager: ToolManager | None = None,
    ) -> Trajectory:
        """One attempt of a group whose members are played apart; scorers of whole groups see it as a group of one.

        The same as in `play` where ``seed`` is ``derive_seed(play's, sample.id, attempt)`` and ``session`` ends with
        the attempt's number.
        """
        episode = replace(self.episode(sample, temperature, seed, session, manager), attempt=attempt)
        return await self.rewards.score_trajectory(await rollout(episode, self.chat, sampler))

    async def play_chat(
        self,
        sample: Sample,
        client: ChatClient,
        *,
        attempts: int,
        temperature: float,
        seed: int,
        session: str,
        manager: ToolManager | None = None,
    ) -> Group:
        """As `play`, in messages: for a model behind a server; needs no ``chat`` format."""
        episode = self.episode(sample, temperature, seed, session, manager)
        return await self._play_group(episode, attempts, lambda each: chat_rollout(each, client))

    async def _play_group(
        self, episode: Episode, attempts: int, play: Callable[[Episode], Awaitable[Trajectory]]
    ) -> Group:
        """Each attempt is scored while the others are still under way."""
        scoring = self.rewards.scoring(episode.sample, attempts)

        async def play_and_score(each: Episode) -> Trajectory:
            return await scoring.score(each.attempt, await play(each))

        return await rollout_group(episode, attempts, play_and_score)

    def episode(
        self, sample: Sample, temperature: float, seed: int, session: str, manager: ToolManager | None
    ) -> Episode:
        """One attempt at a sample as this run plays it; `play` and the others do so."""
        tools = manager or self.manager
        return Episode(
            sample,
            make_env=lambda sample, context: self._make_env(sample, tools, context),
            limits=self.limits,
            session=session,
            temperature=temperature,
            top_p=self.config.rollout.top_p if temperature > 0 else 1.0,
            seed=seed,
        )


def _odd(sample: Any) -> str:
    """What in a sample is not of the type that everything after this relies on."""
    if not isinstance(sample.id, str):
        return f"id is {sample.id!r:.80}; expected a str, such as {str(sample.id)!r:.80}"
    if not isinstance(sample.metadata, Mapping):
        return f"metadata is {sample.metadata!r:.80}; expected a dict (sample '{sample.id}')"
    prompt = sample.prompt
    messages = isinstance(prompt, Sequence) and all(isinstance(each, Message) for each in prompt)
    if not messages and not isinstance(prompt, str):
        return f"prompt is {prompt!r:.80}; expected a str, or Message objects in a tuple (sample '{sample.id}')"
    return ""
