"""``rlfactory memory``: estimates the memory that a run will need, before it starts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from rlfactory_core.cli.options import JSON, REST, SETTINGS, described_run, needs_local, whole_run_options
from rlfactory_core.cli.output import echo, echo_json
from rlfactory_core.errors import UsageError

if TYPE_CHECKING:
    from rlfactory_core.config import RunConfig
    from rlfactory_core.engines.memory import MemoryPhase, ModelSize

_WIDTH = 16  # of the names of parts


@click.command(context_settings=SETTINGS)
@whole_run_options
@JSON
@REST
@click.pass_context
def memory(ctx: click.Context, /, as_json: bool, rest: tuple[str, ...], **options: Any) -> None:
    """Estimate the memory that a run needs, from its model's config.json; exit with 1 if it does not fit this machine.

    It takes the words of `rlfactory run` and loads no weights.
    """
    config = described_run(options, rest)[0]
    if config.model is None:
        raise UsageError("Name the model with --model PATH. A task's own tiny model has a few million parameters.")
    size, phases = _estimate(config, config.model)
    fits = [phase.fits for phase in phases]
    verdict = False if False in fits else None if None in fits else True
    if as_json:
        echo_json(_record(config, size, phases, verdict))
    else:
        echo("\n".join(_lines(config, size, phases, verdict)))
    ctx.exit(1 if verdict is False else 0)


def _estimate(config: RunConfig, model: str) -> tuple[ModelSize, Sequence[MemoryPhase]]:
    from rlfactory_core.engines.base import EngineTraits
    from rlfactory_core.plugins.declared import declared
    from rlfactory_core.plugins.registry import Registry

    with needs_local():
        from rlfactory_core.engines.local.model.size import model_size
    registry = Registry()
    registry.task(config.plugin)
    engine = registry.find(config.engine, "engine").make()
    estimate = declared(engine, EngineTraits, f"The engine '{config.engine}'").memory
    if estimate is None:
        raise UsageError(f"The engine '{config.engine}' does not say what memory it needs.")
    size = model_size(model, config.train.lora)
    return size, estimate(config, size)


def _record(config: RunConfig, size: ModelSize, phases: Sequence[MemoryPhase], verdict: bool | None) -> dict[str, Any]:
    return {
        "model": config.model,
        "engine": config.engine,
        "parameters": size.parameters,
        "trained": size.trained,
        "fits": verdict,
        "phases": [
            {
                "name": phase.name,
                "bytes": phase.total,
                "limit": phase.limit,
                "parts": [{"what": each.what, "bytes": each.size, "formula": each.formula} for each in phase.parts],
            }
            for phase in phases
        ],
    }


def _lines(config: RunConfig, size: ModelSize, phases: Sequence[MemoryPhase], verdict: bool | None) -> Iterator[str]:
    yield f"{config.model} with {size.parameters:,} parameters on the engine {config.engine}; an estimate, in GiB"
    for phase in phases:
        yield f"\n{phase.name}"
        for part in phase.parts:
            yield f"  {part.what:<{_WIDTH}} {part.size / 2**30:8.2f}   {part.formula}"
        limit = "" if phase.limit is None else f"   of {phase.limit / 2**30:.1f} on this machine"
        yield f"  {'together':<{_WIDTH}} {phase.total / 2**30:8.2f}{limit}"
    yield ""
    yield {
        True: "It should fit.",
        False: "It does not fit: lower train.microbatch_tokens, rollout.slots or rollout.max_tokens, set "
        "train.gradient_checkpointing=true, or train adapters (train.lora.rank=16).",
        None: "This machine has no GPU to compare it with.",
    }[verdict]
