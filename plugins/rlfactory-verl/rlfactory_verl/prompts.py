"""Opens the task on the driver before anything heavy starts, and finds the prompts that leave no room for an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from rlfactory_core.engines import EngineRun, known_positions, load_tokenizer, quiet_transformers
from rlfactory_core.tasks import CheckedPrompts, OpenTasks, check_prompts
from rlfactory_core.types import Sample
from rlfactory_verl.vision import shows_images


@quiet_transformers()
def checked_prompts(run: EngineRun, model: str, train: Sequence[Sample], held_out: Sequence[Sample]) -> CheckedPrompts:
    """The samples with room for an answer. Tells the user what `check_prompts` notes, and raises what it raises.

    Args:
        model: a folder or a hub id, also of a task's own model.
    """
    checked = asyncio.run(_check(run, model, train, held_out))
    for note in checked.notes:
        run.progress.say(note)
    return checked


async def _check(run: EngineRun, model: str, train: Sequence[Sample], held_out: Sequence[Sample]) -> CheckedPrompts:
    tasks = OpenTasks(run.tasks, str(run.folder.path.resolve()))
    try:
        await tasks.open(run.progress, pools_later=True)
        tasks.check([*train, *held_out])
        images = shows_images(run.config.chat, model)
        tasks.use_chat(run.make_chat(load_tokenizer(model), images=images))
        return check_prompts(tasks, train, held_out, known_positions(_config(model)))
    finally:
        await tasks.close()


def _config(model: str) -> Any:
    from transformers import AutoConfig

    with suppress(Exception):  # a damaged file can raise any error; verl says what is wrong with it
        return AutoConfig.from_pretrained(model)
    return None
