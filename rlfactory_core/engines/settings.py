"""The part of a run's configuration that engines read."""

from __future__ import annotations

from typing import Any, Literal, Self

from rlfactory_core.algo.settings import CheckpointConfig, EvalConfig, TrainConfig
from rlfactory_core.algo.stages import stage_train
from rlfactory_core.chat.settings import ChatConfig
from rlfactory_core.rollout.settings import RolloutConfig
from rlfactory_core.settings import Section


class EngineSettings(Section):
    """What an engine has to know; the tasks of the run have their own settings."""

    plugin: str
    """The task; the names of several ``tasks`` joined by ``+``."""
    engine: str = "local"
    """The name of a registered engine."""
    model: str | None = None
    """A model folder, a hub id or a .gguf file; none: the task's own tiny model."""
    seed: int = 0
    """Of everything that is drawn: samples, sampled tokens, initial weights."""
    device: str = "auto"
    """One of auto, cpu, cuda, cuda:N."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of the weights. auto: bfloat16 on a GPU; float32 on the CPU, where a model from 20 million parameters on still
    multiplies in bfloat16 if the processor does (avx512_bf16, amx_bf16)."""
    loggers: tuple[str, ...] = ()
    """Any of tensorboard, wandb, trackio; metrics.jsonl is always written."""
    plugins: dict[str, dict[str, Any]] = {}
    """The sections that plugins register, by their names."""
    chat: ChatConfig = ChatConfig()
    rollout: RolloutConfig = RolloutConfig()
    train: TrainConfig = TrainConfig()
    stages: tuple[dict[str, Any], ...] = ()
    """Parts of the training, one after the other: each has the keys of ``train`` that differ, such as
    {method: sft, steps: 60}. A stage that names another method has the defaults of that. None: ``train`` itself."""
    eval: EvalConfig = EvalConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()

    @property
    def engine_name(self) -> str:
        """The engine's name without its distribution."""
        return self.engine.rpartition(":")[2]

    def by_stage(self) -> tuple[Self, ...]:
        """The configuration of each stage, with a ``train`` section of its own.

        Raises:
            ConfigError: see `stage_train`.
        """
        if not self.stages:
            return (self,)
        trains = (stage_train(self.train, own, f"stages.{number}") for number, own in enumerate(self.stages))
        return tuple(self.model_copy(update={"train": train, "stages": ()}) for train in trains)
