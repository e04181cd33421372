"""Makes the recipe of a tiny model from episodes of `Task.demonstrate`.

The episodes are of training samples, in the task's real environment with its real tools. The cache keeps them. The
model first learns to imitate them. Then it learns from careless versions of them, with answers before all calls are
made, answers to another sample, or answers without their closing tag. It can then do every step, but often leaves one
out, so that GRPO has something to improve.
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from rlfactory_core.cache import build_once, cache_root, digest
from rlfactory_core.tasks import solving
from rlfactory_core.tasks.setup import TaskSetup
from rlfactory_core.tasks.solving import DEFAULTS, Played, is_demonstrated, play_solutions
from rlfactory_core.tasks.task import Task
from rlfactory_core.tiny import ANSWER_CLOSE, Demonstration, TinyModelRecipe, WarmStartStage, calls_text, tools_prompt
from rlfactory_core.types import ToolSpec

__all__ = ["DEFAULTS", "demonstrated_recipe", "recipe_of"]

HELD_OUT = 8  # one episode in eight is kept for the probe
ARCHITECTURE = {
    "hidden_size": 96,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "num_key_value_heads": 3,
    "head_dim": 32,
    "max_position_embeddings": 4096,
}
VOCABULARY = 1024
_FILE = "episodes.json"
_PLAYED = TypeAdapter(list[Played])


def recipe_of(setup: TaskSetup, code: str = "") -> TinyModelRecipe | None:
    """The recipe of a task's tiny model: its own, or made from the episodes that it demonstrates; None: it has neither.

    Args:
        code: changes with the code of the task and its environment. Episodes of the same code, options, seed and
            samples come from the cache. Empty: they are played each time.

    Raises:
        PluginError, UsageError, BackendError: as `demonstrated_recipe`.
    """
    return demonstrated_recipe(setup, code) if is_demonstrated(setup.task) else setup.task.tiny_model()


def demonstrated_recipe(task: TaskSetup | Task, code: str = "") -> TinyModelRecipe:
    """Play episodes with another task of the same class and options, and make the recipe from them.

    The same seed gives the same recipe if the tools give the same results.

    Args:
        code: as in `recipe_of`.

    Raises:
        PluginError: there are no training samples, `Task.demonstrate` does not solve one of them, or too many episodes
            were lost because of the tools.
        UsageError, BackendError: as the task's `open`.
    """
    played = _episodes(TaskSetup(task) if isinstance(task, Task) else task, code)
    held_out = tuple(played[::HELD_OUT])
    shown = tuple(each for number, each in enumerate(played) if number % HELD_OUT) or held_out
    careless = Demonstrator(shown, too_early=0.6, wrong_answer=0.1, format_slip=0.08)
    tools = played[0].tools
    return TinyModelRecipe(
        architecture=ARCHITECTURE,
        vocabulary=lambda: _vocabulary(shown, tools),
        vocab_size=VOCABULARY,
        stages=(
            WarmStartStage(Demonstrator(shown), 500, 16, target=0.95, context_weight=0.3),
            WarmStartStage(careless, 60, 16, context_weight=0.3),
        ),
        probe=Demonstrator(held_out),
        fingerprint=digest([Path(__file__).read_text(encoding="utf-8"), _PLAYED.dump_json(list(played))]),
        tools=tools,
    )


def _episodes(setup: TaskSetup, code: str) -> Sequence[Played]:
    """From the cache, or played and then cached; what servers answer is not cached."""
    folder = _cache_folder(setup.task, code) if code and not setup.sources else None
    if folder is not None and folder.is_dir():
        try:
            return _PLAYED.validate_json((folder / _FILE).read_bytes())
        except (OSError, ValidationError):  # damaged
            shutil.rmtree(folder, ignore_errors=True)
    # In a thread of its own, because the engine calls this within a running event loop.
    with ThreadPoolExecutor(1, "rlfactory-demonstrations") as thread:
        played = thread.submit(lambda: asyncio.run(play_solutions(setup))).result()
    if folder is not None:
        build_once(folder, lambda temporary: _write(temporary, played))
    return played


def _write(folder: Path, played: list[Played]) -> None:
    (folder / _FILE).write_bytes(_PLAYED.dump_json(played))


def _cache_folder(task: Task, code: str) -> Path:
    """The folder of the task's episodes, whether it exists or not; its name is a hash of all they depend on."""
    own = json.dumps(solving.tiny_defaults(task).get("rollout"), default=str)
    parts = [Path(solving.__file__).read_text(encoding="utf-8"), code, type(task).__qualname__, own, str(task.seed)]
    samples = map(repr, solving.chosen_samples(task))
    return cache_root() / "demonstrations" / digest([*parts, task.config.model_dump_json(), *samples])


@dataclass(frozen=True, slots=True)
class Demonstrator:
    """Returns a random episode at each call, with mistakes of these probabilities."""

    episodes: Sequence[Played]
    too_early: float = 0.0  # an answer to another sample, before one of the calls
    wrong_answer: float = 0.0  # an answer to another sample, after all calls
    format_slip: float = 0.0  # an answer without its closing tag

    def __call__(self, rng: random.Random) -> Demonstration:
        episode = rng.choice(self.episodes)
        *before, end = episode.turns
        answer = episode.messages[end]
        other = rng.choice(self.episodes)
        wrong = other.messages[other.turns[-1]]
        chance = rng.random()
        if chance < self.too_early:
            end, answer = rng.choice(before or [end]), wrong
        elif chance < self.too_early + self.wrong_answer:
            answer = wrong
        if rng.random() < self.format_slip:
            answer = replace(answer, content=answer.content.removesuffix(ANSWER_CLOSE).rstrip())
        return (*episode.messages[:end], answer)


def _vocabulary(episodes: Sequence[Played], tools: Sequence[ToolSpec]) -> Iterator[str]:
    """Texts for the tokenizer; the parts of every prompt are repeated so that they become few tokens."""
    yield from [tools_prompt(tools)] * 30 if tools else []
    yield from ["user\nassistant\n"] * 30
    for episode in episodes:
        yield "\n".join(f"{message.content}\n{calls_text(message)}" for message in episode.messages)
