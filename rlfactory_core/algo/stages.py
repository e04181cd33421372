"""What ``train.method`` names: the keys of ``train`` that make a method, and those that suit it.

A training has one stage, ``train``, or several, ``stages``, each with the keys of ``train`` that differ. To add a
method: a row here, and where its tokens get their credit, beside `rlfactory_core.training.methods`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from rlfactory_core.algo.methods import METHODS
from rlfactory_core.algo.settings import TrainConfig
from rlfactory_core.errors import ConfigError
from rlfactory_core.settings import validate_section

GRPO, SFT, RFT, OPD = "grpo", "sft", "rft", "opd"
IMITATION = {"advantage": "imitation", "loss": "nll"}

_PLAIN: Mapping[str, Any] = {
    **{"until": {}, "patience": 0, "prompts": "uniform", "refill": False, "staleness": 0, "truncate_weight": None},
    **{"aggregation": "token", "muon_lr": 0.0, "weight_decay": 0.0, "kl": 0.0, "warmup_steps": 5, "schedule": "cosine"},
}
OF_THE_RUN = ("guard", "workers", "gradient_checkpointing", "lora")
"""Keys of ``train`` that are the same in all stages."""


@dataclass(frozen=True, slots=True)
class StageMethod:
    """A method of training.

    Args:
        means: keys of ``train`` that make it this method; another value is refused.
        suits: keys whose value suits it better than that of another method; what a stage sets counts before them.
        keys: of those that only some methods read, those that it reads.
        plays: whether the policy plays the attempts; else they are demonstrations.
        attempts: the least of a group.
        compares: whether the attempts of a group are compared, so that equal ones teach nothing.
        rewarded: whether it learns from rewards alone, so that a policy which earns nothing learns nothing.
    """

    means: Mapping[str, Any] = field(default_factory=dict)
    suits: Mapping[str, Any] = field(default_factory=dict)
    keys: Collection[str] = ()
    plays: bool = True
    attempts: int = 1
    compares: bool = False
    rewarded: bool = True

    @property
    def imitates(self) -> bool:
        """Whether attempts become likelier as they are, without a comparison: the loss is their likelihood."""
        return self.means.get("loss") == IMITATION["loss"]


STAGE_METHODS: Mapping[str, StageMethod] = {
    GRPO: StageMethod(attempts=2, compares=True),
    # 70 steps of 8 rows at 2e-4 took SmolLM2-135M from no right answer of BFCL to 0.49 (docs/benchmarks.md).
    SFT: StageMethod(
        {**IMITATION, "group_size": 1},
        {**_PLAIN, "steps": 60, "prompts_per_step": 8, "updates_per_step": 1, "lr": 2e-4},
        ("source", "where"),
        plays=False,
    ),
    RFT: StageMethod(
        IMITATION,
        {**_PLAIN, "steps": 20, "prompts_per_step": 16, "group_size": 8, "updates_per_step": 2, "lr": 5e-5},
        ("where", "winners"),
    ),
    OPD: StageMethod(
        suits={"refill": False},
        keys=("teacher", "teacher_device", "teacher_top", "teacher_discount", "reward_weight"),
        rewarded=False,
    ),
}
_OF_SOME = {key for method in STAGE_METHODS.values() for key in method.keys}


def method_of(train: TrainConfig) -> StageMethod:
    """The method of a stage.

    Raises:
        ConfigError: a key contradicts it, or is of another method.
    """
    method = STAGE_METHODS[train.method]
    for key, value in method.means.items():
        if (other := getattr(train, key)) != value:
            raise ConfigError(f"train.method={train.method} means train.{key}={value}; got {other}. Drop the latter.")
    refuse_unread(train, [train.method])
    if train.group_size < method.attempts:
        raise ConfigError(
            f"train.group_size: got {train.group_size}, expected greater than or equal to {method.attempts}: "
            f"train.method={train.method} compares the attempts of a group."
        )
    return method


def refuse_unread(train: TrainConfig, methods: Collection[str]) -> None:
    """Refuse keys that only some methods read, and none of these.

    Args:
        methods: of all stages, for the section of the run.

    Raises:
        ConfigError: such a key is set.
    """
    read = {key for name in methods for key in STAGE_METHODS[name].keys}
    for key in sorted(_OF_SOME - read):
        if (value := getattr(train, key)) != TrainConfig.model_fields[key].default:
            takers = " and ".join(name for name, each in STAGE_METHODS.items() if key in each.keys)
            raise ConfigError(
                f"train.{key}={value}: train.method={' and '.join(methods)} does not read it; it is of {takers}."
            )


def with_method(train: TrainConfig, given: Collection[str]) -> TrainConfig:
    """The section with the keys of its method; of those that suit it, those that are not ``given``."""
    method = STAGE_METHODS[train.method]
    suits = {key: value for key, value in method.suits.items() if key not in given}
    means = {key: value for key, value in method.means.items() if key not in given}
    return train.model_copy(update={**suits, **means})


def stage_train(train: TrainConfig, own: Mapping[str, Any], place: str) -> TrainConfig:
    """The section of a stage: its own keys, those of its method if it names another, and the rest from the run.

    Keys of the run that only other methods read are left out.

    Raises:
        ConfigError: a key is unknown or has a wrong value, or is the same in all stages.
    """
    name, before = own.get("method", train.method), train.model_dump()
    method = STAGE_METHODS.get(name, StageMethod()) if isinstance(name, str) else StageMethod()
    if name == GRPO and train.method != GRPO:
        raise ConfigError(
            f"{place}.method={GRPO}: train.method={train.method} has set the keys that it would need. Write the "
            "methods into the stages alone."
        )
    if wrong := [key for key in OF_THE_RUN if key in own]:
        raise ConfigError(f"{place}.{wrong[0]} is the same in all stages of a run: set train.{wrong[0]}.")
    if own.get("loss") in METHODS:
        raise ConfigError(
            f"{place}.loss={own['loss']} brings rewards, which are the same in all stages: set train.loss."
        )
    of_method = {key: TrainConfig.model_fields[key].default for key in _OF_SOME - set(method.keys)}
    of_method |= {} if name == train.method else {**method.suits, **method.means}
    return validate_section(TrainConfig, {**before, **of_method, **own}, place)
