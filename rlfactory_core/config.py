"""The configuration of a run: one frozen pydantic model a section, unknown keys refused.

Where values come from, later ones winning: these defaults, the task's own ``defaults``, ``--config FILE.yaml``, the
command line. The resolved whole is saved as ``config.yaml`` in the run's folder. Loading and merging stand in
`config_load`; no config object travels inward past the runner and the engines.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

__all__ = [
    "CachePlace",
    "DataColumns",
    "File",
    "Fraction",
    "Natural",
    "Positive",
    "RewardConfig",
    "RunConfig",
    "Section",
    "ToolLimits",
    "ToolsConfig",
]

Positive = Annotated[int, Field(gt=0)]
Natural = Annotated[int, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]


def _absolute(path: Path) -> Path:
    """A saved configuration is also read from other folders, by a resume and by other processes."""
    return path.expanduser().absolute()


File = Annotated[Path, AfterValidator(_absolute)]


class Section(BaseModel):
    """Base of all sections, also of a plugin's own ``Config``."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class DataColumns(Section):
    """Column names of the data; the defaults are those of verl, Search-R1 and RL-Factory. Dots reach into structs."""

    id: str = "extra_info.index"
    prompt: str = "prompt"
    answer: str = "reward_model.ground_truth.target"
    slice: str = "data_source"


class DataConfig(Section):
    """The user's own data, instead of the task's built-in samples."""

    train: File | None = None
    eval: File | None = None
    columns: DataColumns = DataColumns()


class ChatConfig(Section):
    format: str = "auto"  # a registered chat format, or chosen from the model
    thinking: bool = True  # where the family can switch it


class RolloutConfig(Section):
    """One attempt's limits, and how it samples while training."""

    max_turns: Positive = 8
    max_tool_calls: Positive = 16  # over the trajectory
    max_turn_tokens: Positive = 512  # sampled in one turn
    max_tokens: Positive = 4096  # context and sampled, over the trajectory
    temperature: Annotated[float, Field(ge=0.0)] = 1.0
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    deterministic: bool = False  # tool results are taken in call order: same seed, same run, to the last bit (CPU)
    slots: Positive = 128  # trajectories decoded at once, per process


def _cache_place(value: Any) -> Any:
    """YAML reads a bare ``off`` as false; ``true`` is the nearest place."""
    return {True: "memory", False: "off"}[value] if isinstance(value, bool) else value


CachePlace = Annotated[Literal["off", "memory", "disk"], BeforeValidator(_cache_place)]


class ToolLimits(Section):
    """How one tool is called."""

    deadline_s: Annotated[float, Field(gt=0.0)] = 30.0  # over all attempts of a call
    retries: Natural = 2  # after the first attempt, only for idempotent tools and infra faults
    concurrency: Positive = 64
    max_result_tokens: Positive = 1024  # longer results are cut, visibly
    cache: CachePlace = "off"  # memory, disk (kept over runs); by tool, version and arguments; never for stateful tools
    breaker_failures: Positive = 20  # infra faults in a row that open the circuit
    breaker_reset_s: Annotated[float, Field(gt=0.0)] = 10.0


class ToolsConfig(ToolLimits):
    """Limits of every tool, and by name where one differs."""

    manager: str = "default"  # a registered tool manager
    mcp: File | dict[str, Any] | None = None  # a file with ``mcpServers`` (or RL-Factory's .pydata), or its content
    total_concurrency: Positive = 512
    overrides: dict[str, dict[str, Any]] = {}  # tool name -> ToolLimits fields


class LoraConfig(Section):
    rank: Positive = 16
    alpha: Positive = 32
    dropout: Fraction = 0.0
    targets: str = "all-linear"


class TrainConfig(Section):
    """The update. The defaults suit a full fine-tune of a pretrained model; tasks with a tiny model bring their own."""

    steps: Natural = 100
    prompts_per_step: Positive = 16
    group_size: Annotated[int, Field(ge=2)] = 8
    advantage: str = "grpo"  # grpo, dr_grpo, rloo; with engine=verl also gae (PPO) and others of verl's
    gamma: Fraction = 1.0  # gae: discount of a later token's reward
    lam: Fraction = 1.0  # gae: between one-step (0) and whole returns (1)
    critic_lr: Annotated[float, Field(gt=0.0)] = 1e-5  # gae: AdamW of the critic
    lr: Annotated[float, Field(gt=0.0)] = 1e-6  # AdamW
    muon_lr: Annotated[float, Field(ge=0.0)] = 0.0  # 0: AdamW for everything; else Muon for hidden matrices
    weight_decay: Annotated[float, Field(ge=0.0)] = 0.0
    warmup_steps: Natural = 0
    schedule: Literal["constant", "cosine", "linear"] = "constant"
    updates_per_step: Positive = 1  # optimizer steps that share one step's trajectories
    clip_low: Fraction = 0.2
    clip_high: Annotated[float, Field(ge=0.0)] = 0.28
    kl: Annotated[float, Field(ge=0.0)] = 0.0  # weight of the KL to the start model
    max_grad_norm: Annotated[float, Field(gt=0.0)] = 1.0
    microbatch_tokens: Positive = 16384
    staleness: Natural = 0  # how many updates the sampling weights may lag behind; 0 is on-policy
    truncate_weight: Annotated[float, Field(gt=0.0)] = 2.0  # cap of the importance weights when staleness > 0
    max_skipped: Positive = 5  # skipped steps in a row (NaN, exploding gradient) before the run stops
    explode_norm: Annotated[float, Field(gt=0.0)] = 1e4  # a gradient norm above this skips the step
    workers: Natural = 0  # data-parallel CPU processes; 0: chosen from the model's size and the cores
    gradient_checkpointing: bool = False
    lora: LoraConfig | None = None


class EvalConfig(Section):
    every: Natural = 10  # steps; 0: only before and after
    limit: Natural = 200  # samples; 0: all
    sampled: bool = True  # also at temperature 1, before and after
    attempts: Positive = 1  # per sample when sampled; pass@k needs at least k


class CheckpointConfig(Section):
    every: Natural = 20  # steps; 0: only at the end
    keep: Positive = 2


class VerlConfig(Section):
    """What only ``engine=verl`` has: machines, vLLM, and how training and sampling share them."""

    mode: Literal["sync", "colocate_async", "separate_async"] = "sync"  # see the documentation of the engine
    gpus: Natural = 0  # of each node; 0: all that the driver's machine has
    nodes: Positive = 1
    rollout_gpus: Natural = 0  # separate_async: of each node's GPUs, those that only sample; 0: half of them
    ray_address: str | None = None  # of a running Ray cluster (or "auto"); none: one of our own, for this run
    tensor_parallel: Positive = 1  # GPUs that one vLLM server spans
    memory_share: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.5  # of a GPU's memory, for vLLM
    offload: bool = False  # weights and optimizer state wait in the machine's memory while the GPU samples
    agent_workers: Natural = 0  # processes that play trajectories; 0: one a GPU, at most 8
    sample_deadline_s: Annotated[float, Field(gt=0.0)] = 600.0  # of one turn's tokens
    trajectory_deadline_s: Annotated[float, Field(gt=0.0)] = 3600.0  # of a whole trajectory, opening the task included
    start_deadline_s: Annotated[float, Field(gt=0.0)] = 1800.0  # from Ray's start to the first evaluation or step
    overrides: tuple[str, ...] = ()  # keys of verl's own configuration, such as actor_rollout_ref.actor.optim.lr=1e-6


class RewardConfig(BaseModel):
    """One scorer or verifier: its name, its weight, and options of its own beside them."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str
    label: str | None = None  # what it is called in metrics and trajectories; none: its name. Two must not be alike
    weight: float = 1.0
    # for one trajectory or group; after that, a verifier fault; none: the scorer's own ``deadline_s``, or 60
    deadline_s: Annotated[float, Field(gt=0.0)] | None = None

    @property
    def called(self) -> str:
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
    called = [reward.called for reward in rewards or ()]
    twice = next((name for name in called if called.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"two of them are called '{twice}'. Give one a label, as in {{name: {twice}, label: other}}.")
    return rewards


class RunConfig(Section):
    """Everything that a run is."""

    plugin: str
    engine: str = "local"  # local, verl
    model: str | None = None  # a folder or a hub id; none: the task's own tiny model
    seed: int = 0
    device: str = "auto"  # auto, cpu, cuda, cuda:N
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    out: Path | None = None  # default: runs/<time>-<plugin>
    loggers: tuple[str, ...] = ()  # tensorboard, wandb, trackio; metrics.jsonl always
    # none: the task's
    rewards: Annotated[tuple[RewardConfig, ...] | None, BeforeValidator(_rewards), AfterValidator(_no_two_alike)] = None
    env: str | None = None  # a registered environment; none: the one that the task makes
    task: dict[str, Any] = {}  # the plugin's own section, checked by its Config
    plugins: dict[str, dict[str, Any]] = {}  # sections that plugins register, by name; see `Registry.sections`
    data: DataConfig = DataConfig()
    chat: ChatConfig = ChatConfig()
    rollout: RolloutConfig = RolloutConfig()
    tools: ToolsConfig = ToolsConfig()
    train: TrainConfig = TrainConfig()
    eval: EvalConfig = EvalConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    verl: VerlConfig = VerlConfig()
