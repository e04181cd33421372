"""Fits a run into the memory that is free: chooses what the user has left free, and refuses what cannot fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial

from rlfactory_core.config import RunConfig
from rlfactory_core.engines.fitting import Estimate, fitting, keys_text, savings, with_keys
from rlfactory_core.engines.memory import MemoryPhase, ModelSize, largest
from rlfactory_core.engines.settings import EngineSettings
from rlfactory_core.errors import ConfigError, ModelError
from rlfactory_core.reporting.progress import Progress
from rlfactory_core.runner.resolved import Resolved
from rlfactory_core.utils.cpu import usable_cores

SURE = 0.75  # of the estimate, which a run needs at least
_GIB = 2**30
_CHEAP = ("train.microbatch_tokens", "rollout.slots")
_FREE = (*_CHEAP, "train.gradient_checkpointing")
_SAMPLING = ("rollout.slots",)
_SMALL = 20_000_000  # parameters: of a smaller model, further processes take longer to start than they save


def fitted(run: Resolved, progress: Progress, *, training: bool = True) -> Resolved:
    """The run with smaller values of keys that nobody has set, if it would not fit with their defaults.

    Args:
        training: else only sampling has to fit, as in an evaluation. Of one that may not fit a warning is given, since
            few trajectories are as long as they may become.

    Raises:
        ConfigError: a training cannot fit all the same.
    """
    config, memory = run.config, run.traits.memory
    # What verl needs was estimated, and measured on no GPU: it is shown, and nothing is refused for it.
    if config.model is None or memory is None or config.engine_name != "local":
        return run
    from rlfactory_core.engines import local_model
    from rlfactory_core.engines.local.memory import usable_memory

    try:
        local_model(config.model, progress)  # a GGUF file's shape is known once it is read
        asked = memory if training else partial(memory, training=False)
        sized, estimate = estimates(config.model, asked, usable_memory(config))
        workers = config.train.workers or _processes(config, sized, estimate)
        config = _with_processes(config, workers)
        most = largest(estimate(config))
    except (AttributeError, TypeError, ModelError):
        # A configuration without the usual widths, such as that of a state space; or one that cannot be read, which the
        # run refuses when it opens its model, after the cheaper checks of its data.
        return run
    if workers > 1 and not run.config.train.workers:
        progress.say(f"train.workers={workers}: a process for each core")
    if most is None or most.fits is not False:
        return replace(run, config=config)
    free = [key for key in (_FREE if training else _SAMPLING) if not _is_set(config, key)]
    keys = fitting(config, estimate, only=free)
    if keys is None:  # all that helps, although it is not enough
        keys = dict(savings(config, only=free))
    changed = with_keys(config, keys) if keys else config
    least = largest(estimate(changed)) or most
    assert least.limit is not None
    need = f"about {least.total / _GIB:.1f} GiB of memory, and may take {least.limit / _GIB:.1f}"
    if training and SURE * least.total > least.limit:
        parts = sorted(least.parts, key=lambda part: -part.size)[:3]
        raise ConfigError(
            f"This run needs {need} ({', '.join(f'{part.what} {part.size / _GIB:.1f}' for part in parts)}). "
            + _advice(config, estimate)
        )
    if not least.fits:
        what = "run" if training else "evaluation"
        progress.say(f"warning: this {what} may need {need}. {_advice(config, estimate)}")
    if keys:
        progress.say(f"to fit into memory ({need}): {keys_text(keys)}")
    return replace(run, config=_with(config, changed))


def estimates(
    model: str, memory: Callable[..., Sequence[MemoryPhase]], limit: int | None
) -> tuple[Callable[[EngineSettings], ModelSize], Estimate]:
    """Two functions of a configuration: the model's size, and of each phase that of the stage that needs most for it.

    Args:
        memory: see `EngineTraits`.
        limit: of all processes together. What is free changes meanwhile, and all answers have one limit.
    """
    from rlfactory_core.engines.local.memory import model_size

    size_with = cache(model_size)

    def sized(config: EngineSettings) -> ModelSize:
        return size_with(model, config.train.lora)

    def estimate(config: EngineSettings) -> Sequence[MemoryPhase]:
        most: dict[str, MemoryPhase] = {}
        each = limit if limit is None else limit // max(1, config.train.workers)
        for place, stage in zip(config.stage_keys, config.by_stage(), strict=True):
            of_stage = "" if len(config.stage_keys) == 1 else f" of {place}"
            for phase in memory(stage, sized(stage), each):
                if phase.name not in most or phase.total > most[phase.name].total:
                    most[phase.name] = replace(phase, name=f"{phase.name}{of_stage}")
        return list(most.values())

    return sized, estimate


def _processes(config: RunConfig, sized: Callable[[EngineSettings], ModelSize], estimate: Estimate) -> int:
    """As many processes on the CPU as there are cores, prompts in every step, and memory for.

    Processes of one thread each compute more than one of as many threads: a step of SmolLM2-135M took 37 instead of
    52 s on two cores (docs/benchmarks.md).
    """
    most = min(usable_cores(), *(each.train.prompts_per_step for each in config.by_stage()))
    if sized(config).parameters < _SMALL:
        return 1
    free = [key for key in _CHEAP if not _is_set(config, key)]
    for workers in range(most, 1, -1):
        among = _with_processes(config, workers)
        if all(phase.fits for phase in estimate(among)) or fitting(among, estimate, only=free) is not None:
            return workers
    return 1


def _with_processes(config: RunConfig, workers: int) -> RunConfig:
    return config.model_copy(update={"train": config.train.model_copy(update={"workers": workers})})


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
