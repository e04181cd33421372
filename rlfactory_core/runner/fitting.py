"""Fits a run into the memory that is free: chooses what the user has left free, and refuses what cannot fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

from rlfactory_core.config import RunConfig
from rlfactory_core.engines.fitting import Estimate, fitting, keys_text, savings, with_keys
from rlfactory_core.engines.memory import MemoryPhase, ModelSize, largest
from rlfactory_core.engines.settings import EngineSettings
from rlfactory_core.errors import ConfigError, ModelError
from rlfactory_core.reporting.progress import Progress
from rlfactory_core.runner.resolved import Resolved

SURE = 0.75  # of the estimate, which a run needs at least
_GIB = 2**30
_FREE = ("train.microbatch_tokens", "rollout.slots", "train.gradient_checkpointing")


def fitted(run: Resolved, progress: Progress) -> Resolved:
    """The run with smaller values of keys that nobody has set, if it would not fit with their defaults.

    Raises:
        ConfigError: it cannot fit all the same.
    """
    config, memory = run.config, run.traits.memory
    # What verl needs was estimated, and measured on no GPU: it is shown, and nothing is refused for it.
    if config.model is None or memory is None or config.engine_name != "local":
        return run
    from rlfactory_core.engines import local_model
    from rlfactory_core.engines.local.memory import usable_memory

    try:
        local_model(config.model, progress)  # a GGUF file's shape is known once it is read
        _, estimate = estimates(config.model, memory, usable_memory(config))
        most = largest(estimate(config))
    except (AttributeError, TypeError, ModelError):
        # A configuration without the usual widths, such as that of a state space; or one that cannot be read, which the
        # run refuses when it opens its model, after the cheaper checks of its data.
        return run
    if most is None or most.fits is not False:
        return run
    free = [key for key in _FREE if not _is_set(config, key)]
    keys = fitting(config, estimate, only=free)
    if keys is None:  # all that helps, although it is not enough
        keys = dict(savings(config, only=free))
    changed = with_keys(config, keys) if keys else config
    least = largest(estimate(changed)) or most
    assert least.limit is not None
    need = f"about {least.total / _GIB:.1f} GiB of memory, and may take {least.limit / _GIB:.1f}"
    if SURE * least.total > least.limit:
        parts = sorted(least.parts, key=lambda part: -part.size)[:3]
        raise ConfigError(
            f"This run needs {need} ({', '.join(f'{part.what} {part.size / _GIB:.1f}' for part in parts)}). "
            + _advice(config, estimate)
        )
    if not least.fits:
        progress.say(f"warning: this run may need {need}. {_advice(config, estimate)}")
    if keys:
        progress.say(f"to fit into memory ({need}): {keys_text(keys)}")
    return replace(run, config=_with(config, changed))


def estimates(
    model: str, memory: Callable[..., Sequence[MemoryPhase]], limit: int | None
) -> tuple[Callable[[EngineSettings], ModelSize], Estimate]:
    """Two functions of a configuration: the model's size, and of each phase that of the stage that needs most for it.

    Args:
        memory, limit: see `EngineTraits`. What is free changes meanwhile, and all answers have one limit.
    """
    from rlfactory_core.engines.local.memory import model_size

    size_with = cache(model_size)

    def sized(config: EngineSettings) -> ModelSize:
        return size_with(model, config.train.lora)

    def estimate(config: EngineSettings) -> Sequence[MemoryPhase]:
        most: dict[str, MemoryPhase] = {}
        for place, stage in zip(config.stage_keys, config.by_stage(), strict=True):
            of_stage = "" if len(config.stage_keys) == 1 else f" of {place}"
            for phase in memory(stage, sized(stage), limit):
                if phase.name not in most or phase.total > most[phase.name].total:
                    most[phase.name] = replace(phase, name=f"{phase.name}{of_stage}")
        return list(most.values())

    return sized, estimate


def _is_set(config: RunConfig, key: str) -> bool:
    section, _, name = key.partition(".")
    return name in getattr(config, section).model_fields_set


def _with(config: RunConfig, changed: EngineSettings) -> RunConfig:
    """The keys that are chosen, in the configuration as it is."""
    train = {"microbatch_tokens", "gradient_checkpointing"}
    return config.model_copy(
        update={
            "train": config.train.model_copy(update={key: getattr(changed.train, key) for key in train}),
            "rollout": config.rollout.model_copy(update={"slots": changed.rollout.slots}),
        }
    )


def _advice(config: RunConfig, estimate: Estimate) -> str:
    keys = fitting(config, estimate)
    if not keys:
        return "No keys of ours make it fit: take a smaller model or a larger machine."
    most = largest(estimate(with_keys(config, keys)))
    assert most is not None
    return f"With these keys it needs {most.total / _GIB:.1f}: {keys_text(keys)}"
