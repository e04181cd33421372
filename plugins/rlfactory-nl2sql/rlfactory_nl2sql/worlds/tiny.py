"""The recipe of the built-in tiny model: its size, and the demonstrations that it learns from before GRPO.

The values were found by trial on two cores. With heads of size 64 and slow rotary frequencies the model learns sooner
to find a name in the schema, some hundred tokens away. After both stages it writes two of three queries right if it
sees the schema. Otherwise it guesses the names, and calls a tool in one of four episodes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from rlfactory_core.cache import digest
from rlfactory_core.tiny import TinyModelRecipe, WarmStartStage, tools_prompt
from rlfactory_core.types import ToolSpec
from rlfactory_nl2sql import formatting
from rlfactory_nl2sql.worlds import demonstrations, world
from rlfactory_nl2sql.worlds.demonstrations import Demonstrator, Shares
from rlfactory_nl2sql.worlds.names import NAMES
from rlfactory_nl2sql.worlds.world import World

SOURCES = (*world.SOURCES, formatting.__file__, demonstrations.__file__, __file__)  # other sources: another model
DEMO_WORLDS, DEMO_QUESTIONS = 400, 24  # none of them is trained or evaluated on
ARCHITECTURE = {
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "num_key_value_heads": 3,
    "head_dim": 64,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
    "max_position_embeddings": 2048,
}
CLEAN = Shares(order=0.1)
CARELESS = Shares(order=0.05, guess=0.3, fidget=0.12)


def recipe(seed: int, tools: Sequence[ToolSpec]) -> TinyModelRecipe:
    """The recipe over worlds of ``seed`` for a model that is offered ``tools``."""
    made = [World.make(seed, f"demo-{number}", DEMO_QUESTIONS) for number in range(DEMO_WORLDS)]
    held_out = [World.make(seed, "probe-0", DEMO_QUESTIONS)]

    def vocabulary() -> Iterator[str]:
        rng = random.Random("vocabulary")
        # So often that the system prompt becomes few tokens, and every word exactly one.
        yield from [tools_prompt(tools)] * 30
        for demonstrate in (Demonstrator(made, CLEAN), Demonstrator(made, CARELESS)):
            for _ in range(400):
                yield "\n".join(message.content for message in demonstrate(rng))
        yield from ["user\nassistant\n"] * 30  # the template's, in every turn
        for name in (name for names in NAMES.values() for name in names):
            yield from [f" {name} {name}_id"] * 12
            yield from [name] * 12

    return TinyModelRecipe(
        architecture=ARCHITECTURE,
        vocabulary=vocabulary,
        vocab_size=1536,
        stages=(
            WarmStartStage(Demonstrator(made, CLEAN), 600, 16, target=0.7),
            WarmStartStage(Demonstrator(made, CARELESS), 600, 16),
        ),
        probe=Demonstrator(held_out, CLEAN),
        lr=6e-3,
        fingerprint=digest([str(seed), *(Path(file).read_text(encoding="utf-8") for file in SOURCES)]),
    )
