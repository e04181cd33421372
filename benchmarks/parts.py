"""The search task and the embedded engine without the command around them, for benchmarks that time their parts."""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from machine import MINIATURE

from rlfactory_core.algo.schedule import UniformPrompts
from rlfactory_core.engines.local.local_run import LocalRun, opened
from rlfactory_core.engines.local.model.loading import quiet_transformers
from rlfactory_core.engines.local.tiny.default_model import OwnModel
from rlfactory_core.engines.local.training.rollouts import Rollouts
from rlfactory_core.engines.local.training.trainer import Observer, StepResult, Trainer
from rlfactory_core.engines.local.workers import Compute, Workers
from rlfactory_core.protocols import Tool
from rlfactory_core.reporting.folder import RunFolder
from rlfactory_core.reporting.progress import NullProgress
from rlfactory_core.runner import prepare
from rlfactory_core.tasks.task import Task
from rlfactory_core.types import Group, Sample

SEED = 0
# Qwen3 shapes; the first is the search task's own tiny model, the second holds it (see `grown`).
TINY = "0.3 M"
LARGE = "5 M"
LARGE_SHAPE = {
    "hidden_size": 256,
    "intermediate_size": 768,
    "num_hidden_layers": 6,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
}


def search_task() -> Task:
    return prepare(None, [{"plugin": "search", "seed": SEED}]).registry.task("search").factory({}, SEED)


def warm_started(*, clean: bool) -> tuple[Any, Any]:
    """The search task's tiny model and its tokenizer: warm-started (a minute) where the cache does not have it.

    Args:
        clean: only on demonstrations without mistakes: it then looks twice where it should.
    """
    task = search_task()
    recipe = task.tiny_model()
    assert recipe is not None
    if clean and not MINIATURE:  # so that all miniatures share a model
        recipe = replace(recipe, stages=recipe.stages[:1])
    return OwnModel(recipe, [tool.spec for tool in task.tools], SEED).build(Workers(), NullProgress())


def save(folder: Path, model: Any, tokenizer: Any) -> Path:
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@torch.no_grad()
def grown(small: Any) -> Any:
    """A 5 M model that computes the same: ``small`` in its corner, zeros elsewhere (after Net2Net, arXiv 1511.05641).

    So both sizes write the same texts, and a step costs what 5 M parameters cost.
    """
    from transformers import Qwen3ForCausalLM

    config = copy.deepcopy(small.config)
    old_width = config.hidden_size
    config.update({**LARGE_SHAPE, "layer_types": None})
    config.layer_types = ["full_attention"] * config.num_hidden_layers
    large = Qwen3ForCausalLM(config)
    large.set_attn_implementation("eager")
    group = config.num_attention_heads // config.num_key_value_heads
    shrink = (old_width / config.hidden_size) ** 0.5  # RMSNorm now also averages over zeros
    source = small.state_dict()
    for name, weight in large.state_dict().items():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            weight.zero_()  # the layers behind small's add nothing
        if name not in source:
            continue
        corner, given = weight, source[name]
        if weight.ndim == 1:
            weight.fill_(1.0)
            given = given * (shrink if len(weight) != len(given) else 1.0)
        else:
            weight.zero_()
        if name.endswith("q_proj.weight"):  # each old head goes to the first head of its key-value head's group
            corner, given = _heads(weight, config)[::group], _heads(given, config)
        elif name.endswith("o_proj.weight"):
            corner, given = _heads(weight.T, config)[::group], _heads(given.T, config)
        corner[tuple(slice(size) for size in given.shape)] = given
    return large.eval()


def _heads(weight: torch.Tensor, config: Any) -> torch.Tensor:
    """[heads * dim, width] -> [heads, dim, width], a view."""
    return weight.unflatten(0, (-1, config.head_dim))


@asynccontextmanager
async def local_run(
    model: Path, scratch: Path, *, tool: Callable[[Tool], Tool] = lambda tool: tool, **sections: Any
) -> AsyncIterator[LocalRun]:
    """The engine's own parts for the search task in this process, with one thread, on the tiny task's settings.

    Args:
        tool: what takes the place of each of the task's tools.
        sections: parts of the configuration, such as ``train={"lr": 1e-4}``.
    """
    task = search_task()
    given = {"plugin": "search", "seed": SEED, "device": "cpu", "model": str(model), "eval": {"limit": 1, "every": 0}}
    prepared = prepare(None, [given, task.tiny_defaults, {"train": {"workers": 1}}, given, sections])
    run = prepared.at(RunFolder.create("benchmark", scratch / "run"), NullProgress())
    task = run.tasks.only.task
    task.tools = [tool(each) for each in task.tools]
    with ThreadPoolExecutor(1, initializer=torch.set_num_threads, initargs=(1,)) as thread, quiet_transformers():
        async with opened(run, Compute(Workers(), thread), training=True) as local:
            yield local


async def play_batch(trainer: Trainer, step: int) -> tuple[list[Group], float]:
    """The groups of a step without an update, and the seconds that they took."""
    start, size = time.perf_counter(), trainer.config.train.prompts_per_step
    positions = range((step - 1) * size, step * size)
    trainer.rollouts.draw(positions)
    groups = await asyncio.gather(*map(trainer.rollouts.start, positions))
    return list(groups), time.perf_counter() - start


def trainer_of(
    local: LocalRun,
    results: list[StepResult],
    chosen: Callable[[Sample], bool],
    after: Callable[[], None] = lambda: None,
) -> Trainer:
    """The training loop on the chosen samples; its steps' results go to ``results``, then ``after`` is called."""

    def on_step(result: StepResult) -> None:
        results.append(result)
        after()

    parts = local.rollouts
    samples = [sample for sample in parts.samples if chosen(sample)]
    config = parts.config
    prompts = UniformPrompts(samples, config.train.prompts_per_step, config.seed)
    rollouts = Rollouts(config, parts.runtime, parts.sampler, parts.workers, samples, [], prompts)
    observer = Observer(NullProgress(), on_step, lambda step, pending: None)
    return replace(local, rollouts=rollouts).trainer(local.learner(), observer)
