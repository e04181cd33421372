"""The configuration of a run. Each section is a frozen pydantic model that refuses unknown keys.

Values come from these defaults, the task's own ``defaults``, ``--config FILE.yaml`` and the command line; later sources
override earlier ones. The result is saved as ``config.yaml`` in the run's folder. Only the runner and the engines use
these objects, and pass single values on.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from rlfactory_core.config.base import File, Natural, Positive, Section
from rlfactory_core.config.training import CheckpointConfig, EvalConfig, TrainConfig


class DataColumns(Section):
    """Column names of the data; the defaults are those of Search-R1 and RL-Factory. Dots reach into structs."""

    id: str = "extra_info.index"
    """A text or number that names the row; where it is missing or not unique, the row's position names it."""
    prompt: str = "prompt"
    """A text, or a list of messages in OpenAI's format."""
    answer: str = "reward_model.ground_truth.target"
    """The right answer, or several in a list."""
    slice: str = "data_source"
    """The name of a part of the data, whose results are also reported by themselves."""
    tools: str | None = "tools"
    """The tools that a row's episodes may use: a list of names, or of schemas in OpenAI's format. Null: all tools."""
    answer_after: str | None = "ask"
    """The text behind which the answer begins in its column, such as ####. Null: the answer is all that the column
    holds. ask: a run whose answers end like GSM8K's solutions is refused."""
    last_turn: Literal["ask", "drop", "keep"] = "ask"
    """A prompt that ends with a turn of the assistant. drop: without that turn, which is the answer. keep: the model
    speaks again after it. ask: the run is refused."""


class DataConfig(Section):
    """The user's own data, instead of the task's built-in samples."""

    train: File | None = None
    """The data to train on: JSONL, a JSON array or parquet."""
    eval: File | None = None
    """The held-out data."""
    columns: DataColumns = DataColumns()


class ChatConfig(Section):
    format: str = "auto"
    """The name of a registered chat format; auto: chosen by the model."""
    thinking: bool = True
    """Whether the model reasons before it answers, where its family can switch that."""


class LimitsConfig(Section):
    """One attempt's limits, which may differ between the tasks of a run."""

    max_turns: Positive = 8
    """Most turns of the model."""
    max_tool_calls: Positive = 16
    """Over the whole trajectory."""
    max_turn_tokens: Positive = 512
    """Tokens that the model samples in one turn."""
    max_tokens: Positive = 4096
    """Context and sampled tokens over the whole trajectory."""
    env_deadline_s: Annotated[float, Field(gt=0.0)] = 600.0
    """For the start and each step of an environment of your own; then the attempt is lost. Tools have their own."""
    context: Literal["keep", "drop_thinking", "compact", "summarize"] = "keep"
    """What a turn sees of earlier ones. keep: all of it. drop_thinking: what the model's chat template keeps of it, as
    at inference. compact: beyond ``context_tokens`` the oldest tools' results are removed. summarize: beyond them the
    model writes a summary, which takes the place of all but the prompt, and is trained like its other turns."""
    context_tokens: Natural = 0
    """Of context=compact and summarize; 0: half of ``max_tokens``."""
    retries: Natural = 1
    """How often an attempt that an infrastructure fault spoilt is played again before it is masked, with what it has
    sampled; not if ``deterministic``."""


class RolloutConfig(LimitsConfig):
    """One attempt's limits, and how it samples while training."""

    temperature: Annotated[float, Field(ge=0.0)] = 1.0
    """Sampling temperature."""
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    """Share of the probability from which tokens are sampled."""
    deterministic: bool = False
    """Tool results are taken in the order of the calls, so that a seed gives the same run, bit for bit (CPU)."""
    slots: Positive = 128
    """Trajectories that one process decodes at once."""


class AgentConfig(Section):
    """An agent that is a program of the user's own, instead of the task's environment and tools."""

    command: str = ""
    """Such as ``python my_agent.py``; empty: the task's own loop."""
    environment: tuple[str, ...] = ()
    """Names of variables that the program gets beside those of the model's address."""
    workers: Natural = 0
    """Processes that play one attempt after the other; 0: a fresh process for each attempt."""
    concurrency: Positive = 16
    """Processes of the program at once, if each attempt has one of its own; the other attempts wait."""
    deadline_s: Annotated[float, Field(gt=0.0)] = 600.0
    """For one attempt."""


def _cache_place(value: Any) -> Any:
    """YAML reads a bare ``off`` as false; ``true`` is the nearest place."""
    return {True: "memory", False: "off"}[value] if isinstance(value, bool) else value


CachePlace = Annotated[Literal["off", "memory", "disk"], BeforeValidator(_cache_place)]


class ToolLimits(Section):
    """How one tool is called."""

    deadline_s: Annotated[float, Field(gt=0.0)] = 30.0
    """For all attempts of a call together."""
    retries: Natural = 2
    """Attempts after the first, for idempotent tools and infrastructure faults only."""
    concurrency: Positive = 64
    """Most calls of the tool at once."""
    max_result_tokens: Positive = 1024
    """A longer result is cut, and says so."""
    cache: CachePlace = "off"
    """Results by tool, version and arguments; disk keeps them for later runs. Stateful tools are never cached."""
    breaker_failures: Positive = 20
    """Infrastructure faults in a row after which the tool is not called for a while."""
    breaker_reset_s: Annotated[float, Field(gt=0.0)] = 10.0
    """Seconds after which the tool is tried again."""


class ToolsConfig(ToolLimits):
    """Limits of all tools, and other limits of single tools."""

    manager: str = "default"
    """The name of a registered tool manager."""
    mcp: File | dict[str, Any] | None = None
    """MCP servers: a file with ``mcpServers`` (or RL-Factory's .pydata), or its content."""
    total_concurrency: Positive = 512
    """Most calls of all tools at once."""
    overrides: dict[str, dict[str, Any]] = {}
    """Limits of single tools: tool name -> the keys that differ."""
    disabled: tuple[str, ...] = ()
    """Names of tools that the model is not offered."""


class RewardConfig(BaseModel):
    """One scorer or verifier: its name, its weight, and options of its own beside them."""

    model_config = ConfigDict(extra="allow", frozen=True, use_attribute_docstrings=True)

    name: str
    label: str | None = None
    """Its name in metrics and trajectories, which no other one may have; none: ``name``."""
    weight: float = 1.0
    deadline_s: Annotated[float, Field(gt=0.0)] | None = None
    """For one trajectory or group, then it is a verifier fault; none: the scorer's own ``deadline_s``, or 60."""

    @property
    def key(self) -> str:
        """Its name in metrics and trajectories."""
        return self.label or self.name

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


def _rewards(value: Any) -> Any:
    """``{exact_match: 1.0}`` is short for ``[{name: exact_match, weight: 1.0}]``."""
    if isinstance(value, dict):
        return [{"name": name, "weight": weight} for name, weight in value.items()]
    return value


def _no_two_alike(rewards: tuple[RewardConfig, ...] | None) -> tuple[RewardConfig, ...] | None:
    keys = [reward.key for reward in rewards or ()]
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice is not None:
        raise ValueError(f"two of them are called '{twice}'. Give one a label, as in {{name: {twice}, label: other}}.")
    return rewards


Rewards = Annotated[tuple[RewardConfig, ...] | None, BeforeValidator(_rewards), AfterValidator(_no_two_alike)]


class TaskShare(Section):
    """One of several tasks that a run trains together. What is left out is as in the rest of the configuration."""

    plugin: str | None = None
    """The name of an installed plugin, or a one-file plugin; none: the name of this task."""
    weight: Annotated[float, Field(gt=0.0, allow_inf_nan=False)] = 1.0
    """Its part of each step's prompts, relative to the other tasks'."""
    task: dict[str, Any] = {}
    """The task's own keys, checked by its ``Config``."""
    rewards: Rewards = None
    env: str | None = None
    data: DataConfig = DataConfig()
    rollout: dict[str, Any] = {}
    """The limits of an attempt that differ: max_turns, max_tool_calls, max_turn_tokens, max_tokens, env_deadline_s,
    context, context_tokens, retries."""
    tools: dict[str, Any] = {}
    """The keys of ``tools`` that differ."""


class RunConfig(Section):
    """Everything that a run is."""

    plugin: str
    """The task; the names of several ``tasks`` joined by ``+``."""
    tasks: dict[str, TaskShare] = {}
    """Several tasks: name -> plugin, weight, and the keys that differ."""
    engine: str = "local"
    """The name of a registered engine."""
    model: str | None = None
    """A model folder or a hub id; none: the task's own tiny model."""
    seed: int = 0
    """Of everything that is drawn: samples, sampled tokens, initial weights."""
    device: str = "auto"
    """One of auto, cpu, cuda, cuda:N."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of the weights. auto: bfloat16 on a GPU, float32 on the CPU."""
    out: Path | None = None
    """The run's folder; none: runs/<time>-<plugin>."""
    loggers: tuple[str, ...] = ()
    """Any of tensorboard, wandb, trackio; metrics.jsonl is always written."""
    rewards: Rewards = None
    """The scorers and verifiers of the reward; none: the task's own."""
    env: str | None = None
    """The name of a registered environment; none: the one that the task makes."""
    task: dict[str, Any] = {}
    """The task's own keys, checked by its ``Config``."""
    plugins: dict[str, dict[str, Any]] = {}
    """The sections that plugins register, by their names."""
    data: DataConfig = DataConfig()
    chat: ChatConfig = ChatConfig()
    rollout: RolloutConfig = RolloutConfig()
    agent: AgentConfig = AgentConfig()
    tools: ToolsConfig = ToolsConfig()
    train: TrainConfig = TrainConfig()
    eval: EvalConfig = EvalConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()

    @property
    def task_plugins(self) -> tuple[str, ...]:
        """The plugins of the run's tasks, in order."""
        return tuple(share.plugin or name for name, share in self.tasks.items()) or (self.plugin,)

    def with_plugin(self, plugin: str, moved: str) -> Self:
        """The configuration with another file in the place of a one-file plugin."""
        if not self.tasks:
            return self.model_copy(update={"plugin": moved})
        tasks = {
            name: share.model_copy(update={"plugin": moved}) if (share.plugin or name) == plugin else share
            for name, share in self.tasks.items()
        }
        return self.model_copy(update={"tasks": tasks})

    def of_task(self, name: str) -> Self:
        """The configuration of one of several tasks, as a run of that task alone would have it."""
        share = self.tasks[name]
        update: dict[str, Any] = {
            "plugin": share.plugin or name,
            "tasks": {},
            "task": share.task,
            "rewards": share.rewards or self.rewards,
            "env": share.env or self.env,
            "data": share.data,
            "rollout": RolloutConfig.model_validate({**self.rollout.model_dump(), **share.rollout}),
            "tools": ToolsConfig.model_validate({**self.tools.model_dump(), **share.tools}),
        }
        return self.model_copy(update=update)

    @property
    def engine_name(self) -> str:
        """The engine's name without its distribution."""
        return self.engine.rpartition(":")[2]


class EngineSection(Section):
    """Keys that only one engine has; registered like any section, under the engine's name.

    In the configuration they are ``ENGINE.KEY``, and not ``plugins.ENGINE.KEY``.
    """

    options: ClassVar[tuple[str, ...]] = ()
    """Keys that ``rlfactory run`` has an option for: ``--batch-size`` for ``batch_size``."""
    after_dashes: ClassVar[str] = ""
    """The key, a list, that gets the words after ``--`` on that command line."""

    @classmethod
    def of(cls, config: RunConfig) -> Self:
        """The engine's section of a configuration."""
        return cls.model_validate(config.plugins.get(config.engine_name, {}))
