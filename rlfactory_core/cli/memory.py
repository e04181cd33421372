"""``rlfactory memory``: estimates the memory that a run will need, before it starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from rlfactory_core.cli.options import JSON, SETTINGS, described_run, needs_local
from rlfactory_core.cli.output import echo, echo_json
from rlfactory_core.cli.run import PASSED_ON, RunCommand, resume_overrides, run_words
from rlfactory_core.engines.fitting import Estimate, fitting, keys_text, steps_an_hour, with_keys
from rlfactory_core.errors import UsageError
from rlfactory_core.settings import merge, parse_override

if TYPE_CHECKING:
    from rlfactory_core.config import RunConfig
    from rlfactory_core.engines.memory import MemoryPhase, ModelSize
    from rlfactory_core.engines.settings import EngineSettings

_WIDTH = 16  # of the names of parts


@click.command(cls=RunCommand, context_settings=SETTINGS)
@run_words
@click.option("--memory", "gib", type=click.FloatRange(min=0, min_open=True), help="GiB of a GPU that is not here.")
@JSON
@click.pass_context
def memory(ctx: click.Context, /, gib: float | None, as_json: bool, rest: tuple[str, ...], **options: Any) -> None:
    """Estimate the memory that a run needs, from its model's config.json; exit with 1 if it does not fit.

    It takes the words of `rlfactory run`, starts nothing, loads no weights, and proposes keys that fit. Of several
    stages it shows the one that needs most. For a GPU that is not here: --device cuda --memory 24.
    """
    if gib is not None and not (options["device"] or "").startswith("cuda") and options["engine"] in (None, "local"):
        raise UsageError(f"--memory is of a GPU: add --device cuda --memory {gib:g}")
    config = _config(ctx, rest, **options)
    if config.model is None:
        raise UsageError("Name the model with --model PATH. A task's own tiny model has a few million parameters.")
    sized, estimate = _estimate(config, config.model, gib)
    size, phases = sized(config), estimate(config)
    fits = [phase.fits for phase in phases]
    verdict = False if False in fits else None if None in fits else True
    keys = fitting(config, estimate) if verdict is False else {}
    changed = with_keys(config, keys or {})
    an_hour = steps_an_hour(changed, sized(changed)) if keys is not None and _on_gpu(config) else None
    if as_json:
        pace = {} if an_hour is None else {"steps_an_hour_h100": round(an_hour, 1)}
        echo_json({**_record(config, size, phases, verdict), "proposed": keys, **pace})
    else:
        echo("\n".join([*_lines(config, size, phases, verdict), *_advice(keys, changed, estimate, an_hour)]))
    ctx.exit(1 if verdict is False else 0)


def _config(
    ctx: click.Context,
    rest: Sequence[str],
    *,
    resumed: str | None,
    resume_or_start: bool,
    dry_run: bool,
    **options: Any,
) -> RunConfig:
    """The configuration of the run, or of the one that ``--resume`` names. Nothing is started in any case."""
    if resumed is None:
        return described_run(options, rest, ctx.meta.get(PASSED_ON, ()))[0]
    from rlfactory_core.plugins.registry import Registry
    from rlfactory_core.reporting.folder import RunFolder
    from rlfactory_core.runner.resolving import saved_config

    overrides = resume_overrides(ctx, {**options, "resume_or_start": resume_or_start, "dry_run": dry_run}, rest)
    saved = RunFolder.open(resumed).read_config()
    return saved_config(merge(saved, *map(parse_override, overrides)), Registry())


def _estimate(
    config: RunConfig, model: str, gib: float | None
) -> tuple[Callable[[EngineSettings], ModelSize], Estimate]:
    """Two functions of a configuration: the model's size, and the phases."""
    from rlfactory_core.engines.base import EngineTraits
    from rlfactory_core.plugins.attributes import optional_attributes
    from rlfactory_core.plugins.registry import Registry
    from rlfactory_core.runner.fitting import estimates

    registry = Registry()
    registry.task(config.plugin)
    engine = registry.find(config.engine, "engine").make()
    memory = optional_attributes(engine, EngineTraits, f"The engine '{config.engine}'").memory
    if memory is None:
        raise UsageError(f"The engine '{config.engine}' does not say what memory it needs.")
    with needs_local():
        from rlfactory_core.engines.local.memory import usable_memory

        return estimates(model, memory, usable_memory(config) if gib is None else int(gib * 2**30))


def _advice(
    keys: Mapping[str, Any] | None, changed: EngineSettings, estimate: Estimate, an_hour: float | None
) -> Iterator[str]:
    """Keys that fit, and how long a step takes."""
    if keys is None:
        yield "No keys of ours make it fit: take a smaller model or a larger GPU."
    elif keys:
        most = max(phase.total for phase in estimate(changed)) / 2**30
        yield f"With these keys it needs {most:.1f} GiB: {keys_text(keys)}"
    if an_hour is not None:
        yield (
            f"About {an_hour:,.0f} steps an hour on an H100, if each trajectory has "
            f"{changed.rollout.max_tokens:,} tokens and tools take no time. It rests on "
            "two models (docs/benchmarks.md, On a GPU): expect half or twice as many, and fewer on a smaller GPU."
        )


def _on_gpu(config: EngineSettings) -> bool:
    from rlfactory_core.engines.local.model.loading import choose_device

    there = config.device == "auto" and choose_device("auto").type == "cuda"
    return config.engine == "local" and (there or config.device.startswith("cuda"))


def _record(
    config: EngineSettings, size: ModelSize, phases: Sequence[MemoryPhase], verdict: bool | None
) -> dict[str, Any]:
    parts = {
        phase.name: [{"what": each.what, "bytes": each.size, "formula": each.formula} for each in phase.parts]
        for phase in phases
    }
    return {
        "model": config.model,
        "engine": config.engine,
        "parameters": size.parameters,
        "trained": size.trained,
        "fits": verdict,
        "phases": [
            {"name": each.name, "bytes": each.total, "limit": each.limit, "parts": parts[each.name]} for each in phases
        ],
    }


def _lines(
    config: EngineSettings, size: ModelSize, phases: Sequence[MemoryPhase], verdict: bool | None
) -> Iterator[str]:
    yield f"{config.model} with {size.parameters:,} parameters on the engine {config.engine}; an estimate, in GiB"
    for phase in phases:
        yield f"\n{phase.name}"
        for part in phase.parts:
            yield f"  {part.what:<{_WIDTH}} {part.size / 2**30:8.2f}   {part.formula}"
        limit = "" if phase.limit is None else f"   of {phase.limit / 2**30:.1f} that it may take"
        yield f"  {'together':<{_WIDTH}} {phase.total / 2**30:8.2f}{limit}"
    yield ""
    yield {
        True: "It should fit.",
        False: "It does not fit: lower train.microbatch_tokens, rollout.slots or rollout.max_tokens, set "
        "train.gradient_checkpointing=true, or train adapters (train.lora.rank=16).",
        None: "This machine has no GPU to compare it with: give one with --device cuda --memory GIB.",
    }[verdict]
