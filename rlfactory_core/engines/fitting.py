"""Which keys make a run fit into a GPU's memory, and how long its steps then take.

The estimate of the engine is asked again with one saving after the other, the cheap ones first. Each that is not needed
in the end is taken back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from typing import Any

from rlfactory_core.engines.memory import MemoryPhase, ModelSize
from rlfactory_core.engines.settings import EngineSettings
from rlfactory_core.settings import merge, parse_override, validate_section

Estimate = Callable[[EngineSettings], Sequence[MemoryPhase]]

# Measured on one H100, see `On a GPU` in docs/benchmarks.md: updates reach a tenth to a quarter of 989 TFLOP/s, and a
# step of decoding takes as long for 16 trajectories as for 256.
_FLOPS = 0.2 * 989e12
_FLOPS_A_TOKEN = 6  # of each parameter, forward and backward; those of recomputation are in the measured share
_DECODING_S_A_LAYER = 0.0011
_SAMPLED = 3 / 8  # of a trajectory's tokens


_SMALLER = (
    ("train.microbatch_tokens", (8192, 4096)),
    ("rollout.slots", (64, 32, 16)),
    ("rollout.max_tokens", (8192, 4096, 2048)),
    ("train.lora.rank", (16,)),
    ("train.microbatch_tokens", (2048,)),
    ("rollout.slots", (8,)),
    ("rollout.max_tokens", (1024,)),
)
"""Keys and values that need less memory, the cheap ones first."""


def savings(config: EngineSettings) -> Iterator[tuple[str, Any]]:
    """The keys that make this configuration smaller, the cheap ones first."""
    train, rollout = config.train, config.rollout
    if not train.gradient_checkpointing:
        yield "train.gradient_checkpointing", True
    now = {
        "train.microbatch_tokens": train.microbatch_tokens,
        "rollout.slots": rollout.slots,
        "rollout.max_tokens": rollout.max_tokens,
        "train.lora.rank": inf if train.lora is None else 0,  # of all weights
    }
    yield from ((key, value) for key, values in _SMALLER for value in values if now[key] > value)


def with_keys(config: EngineSettings, keys: Mapping[str, Any]) -> EngineSettings:
    changes = (parse_override(f"{key}={str(value).lower()}") for key, value in keys.items())
    return validate_section(type(config), merge(config.model_dump(mode="json"), *changes))


def fitting(config: EngineSettings, estimate: Estimate) -> dict[str, Any] | None:
    """The keys with which the run fits; None if all of them together do not do."""

    def fits(keys: Mapping[str, Any]) -> bool:
        return all(phase.fits for phase in estimate(with_keys(config, keys)))

    taken: dict[str, Any] = {}
    for key, value in savings(config):
        taken[key] = value  # of two values of a key the later saves more
        if fits(taken):
            break
    else:
        return None
    for key in reversed(list(taken)):
        others = {name: value for name, value in taken.items() if name != key}
        taken = others if fits(others) else taken
    return taken


def steps_an_hour(config: EngineSettings, size: ModelSize) -> float:
    """On one H100, if each trajectory is as long as ``rollout.max_tokens``; tools and evaluations take no time."""
    train, rollout = config.train, config.rollout
    trajectories = train.prompts_per_step * train.group_size
    tokens = trajectories * rollout.max_tokens
    rounds = -(-trajectories // rollout.slots)
    sampling = rounds * _SAMPLED * rollout.max_tokens * _DECODING_S_A_LAYER * size.shape.layers
    return 3600 / (sampling + tokens * _FLOPS_A_TOKEN * size.parameters / _FLOPS)
