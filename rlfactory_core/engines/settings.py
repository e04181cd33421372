"""The part of a run's configuration that engines read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator

from rlfactory_core.algo.settings import CheckpointConfig, EvalConfig, TrainConfig
from rlfactory_core.algo.stages import SFT, stage_train
from rlfactory_core.chat.settings import ChatConfig
from rlfactory_core.rollout.settings import RolloutConfig
from rlfactory_core.settings import Section

WARM_START = "warm_start"


def _sourced(keys: dict[str, Any] | None) -> dict[str, Any] | None:
    """Raises ValueError: a warm start is not named, or is no supervised stage."""
    if keys is not None and not keys.get("source"):
        raise ValueError("What is learnt from is missing: add --warm-start SOURCE. (For a stage: train.where.)")
    if keys is not None and keys.get("method", SFT) != SFT:
        raise ValueError(f"A warm start has the method {SFT}; write other stages into stages.")
    return keys


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
    warm_start: Annotated[dict[str, Any] | None, AfterValidator(_sourced)] = None
    """A supervised stage before all others: its ``source``, which --warm-start names, and the keys of ``train`` that
    differ, such as warm_start.steps=20 and warm_start.lr=1e-4."""
    stages: tuple[dict[str, Any], ...] = ()
    """Parts of the training, one after the other: each has the keys of ``train`` that differ, such as
    {method: sft, steps: 60}. A stage that names another method has the defaults of that. None: ``train`` itself."""
    eval: EvalConfig = EvalConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()

    @property
    def engine_name(self) -> str:
        """The engine's name without its distribution."""
        return self.engine.rpartition(":")[2]

    @property
    def stage_keys(self) -> Mapping[str, Mapping[str, Any]]:
        """The keys of each stage that differ from ``train``, by where they stand in the configuration."""
        first = {} if self.warm_start is None else {WARM_START: {"method": SFT, **self.warm_start}}
        return first | ({f"stages.{number}": own for number, own in enumerate(self.stages)} or {"train": {}})

    def by_stage(self) -> tuple[Self, ...]:
        """The configuration of each stage, with a ``train`` section of its own.

        Raises:
            ConfigError: see `stage_train`.
        """
        if [*self.stage_keys] == ["train"]:
            return (self,)
        trains = (stage_train(self.train, own, place) for place, own in self.stage_keys.items())
        return tuple(self.model_copy(update={"train": each, WARM_START: None, "stages": ()}) for each in trains)

    def with_stage(self, number: int, keys: Mapping[str, Any]) -> Self:
        """The configuration with other values of a stage's keys."""
        place, own = list(self.stage_keys.items())[number]
        if place == "train":
            return self.model_copy(update={"train": self.train.model_copy(update=dict(keys))})
        if place == WARM_START:
            return self.model_copy(update={WARM_START: {**own, **keys}})
        at = int(place.rpartition(".")[2])
        return self.model_copy(update={"stages": (*self.stages[:at], {**own, **keys}, *self.stages[at + 1 :])})
