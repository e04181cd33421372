"""Makes what the names of a configuration stand for: its tasks with their scorers, environments and tool managers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from inspect import isfunction
from typing import Any

from rlfactory_core.algo.prompts import MakePrompts, PromptSampler, PromptsByTask, prompt_shares
from rlfactory_core.chat.select import choose_format
from rlfactory_core.chat.settings import ChatConfig
from rlfactory_core.config import RunConfig
from rlfactory_core.context import RunContext
from rlfactory_core.engines.base import MakeChat
from rlfactory_core.errors import ConfigError, PluginError, RlfactoryError
from rlfactory_core.plugins.attributes import optional_attributes
from rlfactory_core.plugins.loading import Registration, takes
from rlfactory_core.plugins.registry import Registry
from rlfactory_core.protocols import ChatFormat
from rlfactory_core.rewards.scorers import ENV_REWARD
from rlfactory_core.rewards.settings import RewardConfig
from rlfactory_core.rewards.trl import reward_of
from rlfactory_core.tasks.scorers import Scorers
from rlfactory_core.tasks.setup import SUCCESS, Tasks, TaskSetup, raised_at, shared_success
from rlfactory_core.tasks.task import Task
from rlfactory_core.tools.sources import NamedSource, ToolSourceFactoryTraits
from rlfactory_core.types import Sample


def make_tasks(config: RunConfig, registry: Registry, made: Mapping[str, Task] = {}) -> Tasks:
    """The tasks of a configuration, by `Sample.task`, with all that they are played with.

    The plugins that give these parts are in use after that. ``made`` are the tasks that are made already.
    """
    configs = config.by_task()
    tasks = {
        name: made.get(name) or make_task(registry.task(own.plugin), own.task, own.seed)
        for name, own in configs.items()
    }
    sections = registry.sections(config)
    for task in tasks.values():
        task.join(RunContext(sections=sections))
    wanted = {name: _wanted(own, tasks[name]) for name, own in configs.items()}
    scorers = {name: _scorers(rewards, registry) for name, rewards in wanted.items()}
    if shared_success(scorers.values()) == SUCCESS:
        scorers = {name: _scorers(rewards, registry, scorers[name]) for name, rewards in wanted.items()}
    setups = {name: _setup(own, registry, tasks[name], scorers[name]) for name, own in configs.items()}
    return Tasks(setups, config.eval.limit)


def _setup(config: RunConfig, registry: Registry, task: Task, scorers: Scorers) -> TaskSetup:
    setup = TaskSetup(
        task,
        scorers,
        config.plugin,
        config.data,
        config.rollout,
        config.tools,
        config.agent,
        env=config.env or "",
        make_env=registry.find(config.env, "env").factory if config.env else None,
        make_manager=registry.find(config.tools.manager, "tool_manager").factory,
        sources=[named_source(name, given, registry) for name, given in config.tools.sources.items()],
    )
    if setup.has_agent:
        setup = replace(setup, make_player=registry.find("agents", "agent_player").factory)
    for source in setup.sources:
        if source.traits.check is not None:
            source.traits.check(source.given)
    if config.rollout.deterministic and setup.makes_rows:
        raise ConfigError(
            f"rollout.deterministic=true takes turns in a fixed order, and {setup.makes_rows} begins further rows or "
            "asks when it likes. Drop one of the two."
        )
    return setup


def named_source(name: str, given: Any, registry: Registry) -> NamedSource:
    """The source of tools that the key ``tools.NAME`` names; raises `PluginError` if no plugin registers it."""
    factory = registry.find(name, "tool_source").factory
    return NamedSource(
        name, given, factory, optional_attributes(factory, ToolSourceFactoryTraits, f"The tool source '{name}'")
    )


def _scorers(rewards: Sequence[RewardConfig], registry: Registry, named: Scorers | None = None) -> Scorers:
    """The scorers of a task; ``named`` are the same ones, before success gets the name that all tasks have for it."""
    weighted = named.weighted if named else {each.key: (_scorer(each, registry), each.weight) for each in rewards}
    deadlines = {reward.key: reward.deadline_s for reward in rewards if reward.deadline_s is not None}
    return Scorers.of(weighted, deadlines, {SUCCESS: named.success} if named else {})


def make_chat(config: ChatConfig, registry: Registry) -> MakeChat:
    """Makes the chat format of a configuration, among all that are registered."""
    if config.format != "auto":
        registry.find(config.format, "chat_format")

    def make(tokenizer: Any, *, images: bool = False) -> ChatFormat:
        if config.format != "auto":
            chosen = [registry.find(config.format, "chat_format")]
        else:
            for item in registry.installed("chat_format") if images else ():
                if getattr(item.factory, "sees_images", False):
                    registry.find(item.name, "chat_format")  # it is in use from here on, although no key names it
            chosen = [*registry.registered("chat_format")]
        formats = {item.name: item.factory for item in chosen}
        return choose_format(formats, tokenizer, name=config.format, thinking=config.thinking, images=images)

    return make


def make_prompts(config: RunConfig, registry: Registry) -> Callable[[Sequence[Sample]], PromptSampler]:
    """Makes the sampler that ``train.prompts`` names, for the training samples of all tasks."""
    make: MakePrompts = registry.find(config.train.prompts, "prompt_sampler").make
    if not config.tasks:
        return lambda samples: make(samples, config.train.prompts_per_step, config.seed)
    weights = {name: share.weight for name, share in config.tasks.items()}
    shares = prompt_shares(weights, config.train.prompts_per_step)
    return lambda samples: PromptsByTask(make, samples, shares, config.seed)


def make_task(registration: Registration, options: Mapping[str, Any], seed: int) -> Task:
    """Make the task that a plugin registers; raises a `PluginError` if the plugin's code does not make a valid one."""
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
    match task.reward_bounds:
        case None | (int() | float(), int() | float()):
            return task
        case bounds:
            raise PluginError(f"{what} has reward_bounds = {bounds!r}; expected two numbers, as in (0.0, 1.0).")


def _wanted(config: RunConfig, task: Task) -> Sequence[RewardConfig]:
    """The rewards of the configuration, else those of the task; raises a `ConfigError` if there is none."""
    wanted = config.rewards or tuple(RewardConfig(name=name, weight=weight) for name, weight in task.rewards.items())
    if not wanted:
        raise ConfigError(
            f"The run has no reward: {type(task).__name__}.rewards is empty, and at least one scorer is "
            "needed. If the environment gives the whole reward (EnvStep.reward), write rewards = {'env_reward': 0.0} "
            "and set the range of the reward: reward_bounds = (0.0, 1.0)."
        )
    if any(reward.name == ENV_REWARD and reward.weight for reward in wanted):
        raise ConfigError(
            f"The reward {ENV_REWARD} has a weight. What the environment gives (EnvStep.reward) is a part of the "
            "reward without a scorer, so a weight would count it twice. Write the weight 0, which shows it as a metric."
        )
    return wanted


def _scorer(reward: RewardConfig, registry: Registry) -> Any:
    registration = registry.find(reward.name, "reward_scorer", "verifier")
    try:
        made = registration.make(**reward.options)
        return reward_of(made) if isfunction(made) else made
    except TypeError as error:
        if takes(registration.factory, **reward.options):
            raise  # a bug in the scorer
        given = f"with the options {', '.join(reward.options)}" if reward.options else "without options"
        raise ConfigError(
            f"Reward '{reward.name}' cannot be made {given}: {error}. Beside name, label, weight and deadline_s, a "
            "reward takes only options of its own; those without a default have to be given."
        ) from error
