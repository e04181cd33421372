"""The search task and the embedded engine without the command around them, for benchmarks that time their parts."""

from __future__ import annotations

import copy
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from machine import MINIATURE

from rlfactory_core.engines.local.engine import LocalEngine
from rlfactory_core.engines.local.tiny.building import build
from rlfactory_core.engines.local.workers import Workers
from rlfactory_core.engines.tiny import TinyModel
from rlfactory_core.protocols import Tool
from rlfactory_core.reporting.folder import RunFolder
from rlfactory_core.reporting.progress import Progress
from rlfactory_core.runner import prepare
from rlfactory_core.tasks.task import Task
from rlfactory_core.training import loop
from rlfactory_core.training.run import OpenRun, opened
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
    return build(TinyModel(recipe, [tool.spec for tool in task.tools], SEED), Workers(), Progress())


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
) -> AsyncIterator[OpenRun]:
    """The engine's own parts for the search task in this process, with one thread, on the tiny task's settings.

    Args:
        tool: what takes the place of each of the task's tools.
        sections: parts of the configuration, such as ``train={"lr": 1e-4}``.
    """
    task = search_task()
    given = {"plugin": "search", "seed": SEED, "device": "cpu", "model": str(model), "eval": {"limit": 1, "every": 0}}
    prepared = prepare(None, [given, task.tiny_defaults, {"train": {"workers": 1}}, given, sections])
    run = prepared.at(RunFolder.create("benchmark", scratch / "run"), Progress())
    task = run.tasks.only.task
    task.tools = [tool(each) for each in task.tools]
    alone = {"OMP_NUM_THREADS": "1"}
    with patch.dict(os.environ, alone), patch.object(loop, "save_checkpoint", lambda *_, **__: None):
        async with opened(LocalEngine(), run, training=True) as local:
            yield local


async def play_batch(trainer: loop.Loop, step: int) -> tuple[list[Group], float]:
    """The groups of a step without an update, and the seconds that they took."""
    start = time.perf_counter()
    trainer.playing.plan(step, step, ())
    trainer.playing.begin(step)
    groups = [each.group for each in await trainer.playing.queue.take(step)]
    return groups, time.perf_counter() - start


@dataclass(frozen=True)
class StepResult:
    """One step of the loop."""

    step: int
    groups: Sequence[Group]
    metrics: Mapping[str, float]


@dataclass
class Watcher:
    """Stands in for the recorder of a run."""

    results: list[StepResult]
    after: Callable[[], None]
    progress: Progress = field(default_factory=Progress)
    stage: int = 0

    def step(self, step: int, groups: Sequence[Group], metrics: Mapping[str, float], _texts: Any) -> Sequence[str]:
        self.results.append(StepResult(step, groups, metrics))
        self.after()
        return ()

    def totals_now(self) -> dict[str, float]:
        return {}


def trainer_of(
    local: OpenRun,
    results: list[StepResult],
    chosen: Callable[[Sample], bool],
    after: Callable[[], None] = lambda: None,
) -> loop.Loop:
    """The training loop on the chosen samples; its steps' results go to ``results``, then ``after`` is called."""
    prompts = replace(local.prompts, train=[each for each in local.prompts.train if chosen(each)], held_out=[])
    watcher: Any = Watcher(results, after)
    parts = replace(local, prompts=prompts, recorder=watcher)
    return parts.loop(parts.place, parts.play)
