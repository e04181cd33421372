"""Which keys make a run fit into a GPU's memory, and how long its steps then take.

The estimate of the engine is asked again with one saving after the other, the cheap ones first. Each that is not needed
in the end is taken back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rlfactory_core.engines.memory import MemoryPhase, ModelSize
from rlfactory_core.engines.settings import EngineSettings
from rlfactory_core.settings import merge, validate_section

Estimate = Callable[[EngineSettings], Sequence[MemoryPhase]]

# Measured on one H100, see `On a GPU` in docs/benchmarks.md: updates reach a tenth to a quarter of 989 TFLOP/s, and a
# step of decoding takes as long for 16 trajectories as for 256.
_FLOPS = 0.2 * 989e12
_FLOPS_A_TOKEN = 6  # of each parameter, forward and backward; those of recomputation are in the measured share
_DECODING_S_A_LAYER = 0.0011
_SAMPLED = 3 / 8  # of a trajectory's tokens


@dataclass(frozen=True, slots=True)
class Saving:
    """A key that makes a run smaller."""

    key: str
    value: Any

    @property
    def text(self) -> str:
        return f"{self.key}={str(self.value).lower()}"

    def applied(self, config: EngineSettings) -> EngineSettings:
        section, name = self.key.split(".", 1)
        value = self.value
        for part in reversed(name.split(".")):
            value = {part: value}
        return validate_section(type(config), merge(config.model_dump(mode="json"), {section: value}))


def savings(config: EngineSettings) -> Iterator[Saving]:
    """All that this configuration can be told to save, the cheap ones first."""
    train, rollout = config.train, config.rollout
    if not train.gradient_checkpointing:
        yield Saving("train.gradient_checkpointing", value=True)
    tokens = rollout.max_tokens
    for most in (8192, 4096):
        if train.microbatch_tokens > most:
            yield Saving("train.microbatch_tokens", most)
    for slots in (64, 32, 16):
        if rollout.slots > slots:
            yield Saving("rollout.slots", slots)
    for most in (8192, 4096, 2048):
        if tokens > most:
            yield Saving("rollout.max_tokens", most)
    if train.lora is None:
        yield Saving("train.lora.rank", 16)
    for key, least, now in (
        ("train.microbatch_tokens", 2048, train.microbatch_tokens),
        ("rollout.slots", 8, rollout.slots),
        ("rollout.max_tokens", 1024, tokens),
    ):
        if now > least:
            yield Saving(key, least)


def with_savings(config: EngineSettings, chosen: Iterable[Saving]) -> EngineSettings:
    for saving in chosen:
        config = saving.applied(config)
    return config


def fitting(config: EngineSettings, estimate: Estimate) -> tuple[Saving, ...] | None:
    """The savings with which the run fits; None if all of them together do not do."""
    taken: dict[str, Saving] = {}
    for saving in savings(config):
        taken[saving.key] = saving  # of two with the same key the later saves more
        if _fits(with_savings(config, taken.values()), estimate):
            break
    else:
        return None
    for key in reversed(list(taken)):
        others = [saving for name, saving in taken.items() if name != key]
        if _fits(with_savings(config, others), estimate):
            del taken[key]
    return tuple(taken.values())


def steps_an_hour(config: EngineSettings, size: ModelSize) -> float:
    """On one H100, if each trajectory is as long as ``rollout.max_tokens``; tools and evaluations take no time."""
    train, rollout = config.train, config.rollout
    trajectories = train.prompts_per_step * train.group_size
    tokens = trajectories * rollout.max_tokens
    rounds = -(-trajectories // rollout.slots)
    sampling = rounds * _SAMPLED * rollout.max_tokens * _DECODING_S_A_LAYER * size.shape.layers
    return 3600 / (sampling + tokens * _FLOPS_A_TOKEN * size.parameters / _FLOPS)


def _fits(config: EngineSettings, estimate: Estimate) -> bool:
    return all(phase.fits for phase in estimate(config))
