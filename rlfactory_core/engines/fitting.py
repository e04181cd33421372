"""Which keys make a run fit into a GPU's memory, and how long its steps then take.

The estimate of the engine is asked again with one saving after the other, the cheap ones first. Each that is not needed
in the end is taken back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
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
    ("train.microbatch_tokens", (8192, 4096, 2048)),
    ("rollout.slots", (64,)),
    ("train.gradient_checkpointing", (True,)),
    ("train.microbatch_tokens", (1024, 512)),
    ("rollout.slots", (32, 16)),
    ("rollout.max_tokens", (8192, 4096, 2048)),
    ("train.lora.rank", (16,)),
    ("train.microbatch_tokens", (2048,)),
    ("rollout.slots", (8,)),
    ("rollout.max_tokens", (1024,)),
    ("train.microbatch_tokens", (1024,)),
)
"""Keys and values that need less memory, the cheap ones first."""


def savings(config: EngineSettings, only: Collection[str] | None = None) -> Iterator[tuple[str, Any]]:
    """The keys that make this configuration smaller, the cheap ones first; ``only`` these."""
    train, rollout = config.train, config.rollout
    now = {
        "train.gradient_checkpointing": 0 if train.gradient_checkpointing else inf,
        "train.microbatch_tokens": train.microbatch_tokens,
        "rollout.slots": rollout.slots,
        "rollout.max_tokens": rollout.max_tokens,
        "train.lora.rank": inf if train.lora is None else 0,  # of all weights
    }
    for key, values in _SMALLER:
        for value in values if only is None or key in only else ():
            same = key == "train.microbatch_tokens" and value < now["rollout.max_tokens"]  # a longer one stands alone
            if now[key] > value and not same:
                now[key] = value
                yield key, value


def with_keys(config: EngineSettings, keys: Mapping[str, Any]) -> EngineSettings:
    changes = (parse_override(f"{key}={str(value).lower()}") for key, value in keys.items())
    return validate_section(type(config), merge(config.model_dump(mode="json"), *changes))


def keys_text(keys: Mapping[str, Any]) -> str:
    return " ".join(f"{key}={str(value).lower()}" for key, value in keys.items())


def fitting(config: EngineSettings, estimate: Estimate, only: Collection[str] | None = None) -> dict[str, Any] | None:
    """The keys with which the run fits, among ``only`` these; None if all of them together do not do."""

    def fits(keys: Mapping[str, Any]) -> bool:
        return all(phase.fits for phase in estimate(with_keys(config, keys)))

    taken: dict[str, Any] = {}
    for key, value in savings(config, only):
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
