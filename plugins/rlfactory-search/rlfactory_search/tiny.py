"""The recipe of the built-in tiny model: its size and its warm start.

The first stage shows correct demonstrations and ends when the model copies held-out turns correctly, after about 250
steps. The second stage shows careless ones.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from rlfactory_core.cache import digest
from rlfactory_core.tiny import TinyModelRecipe, WarmStartStage, tools_prompt
from rlfactory_core.types import ToolSpec
from rlfactory_search import demonstrations, worlds
from rlfactory_search.demonstrations import Carelessness, Demonstrator
from rlfactory_search.world_search import WorldSearch
from rlfactory_search.worlds import Names, World

SOURCES = (worlds.__file__, demonstrations.__file__, __file__)  # a change of these files makes a cached model invalid
DEMO_WORLDS = 16  # not used for training or evaluation
ARCHITECTURE = {
    "hidden_size": 96,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "num_key_value_heads": 3,
    "head_dim": 32,
    "max_position_embeddings": 1024,
}
CARELESS = Carelessness(stop_early=0.7, clumsy_query=0.35, wrong_copy=0.12, format_slip=0.08)


def recipe(names: Names, search: WorldSearch, tool: ToolSpec) -> TinyModelRecipe:
    """The recipe, with worlds made of ``names``."""
    made = [World.make(names, f"demo-{number}") for number in range(DEMO_WORLDS)]
    held_out = [World.make(names, "probe")]

    def vocabulary() -> Iterator[str]:
        rng = random.Random("vocabulary")
        demonstrate = Demonstrator(made[:1], search.answer, two_hop=0.5)
        # Repeated so that the tokenizer encodes the system prompt as few tokens, and each name as one.
        yield from [tools_prompt([tool])] * 30
        for text in (*made[0].documents, *(question.text for question in made[0].questions)):
            yield f" {text}"
        for _ in range(300):
            yield "\n".join(message.content for message in demonstrate(rng))
        for word in names.words:
            yield from [f" {word}"] * 12

    return TinyModelRecipe(
        architecture=ARCHITECTURE,
        vocabulary=vocabulary,
        vocab_size=2048,
        stages=(
            WarmStartStage(Demonstrator(made, search.answer, 0.35), 700, 16, target=0.95, context_weight=0.3),
            WarmStartStage(Demonstrator(made, search.answer, 0.5, CARELESS), 150, 16, context_weight=0.3),
        ),
        probe=Demonstrator(held_out, search.answer, two_hop=0.5),
        fingerprint=digest([*names.words, *(Path(file).read_text(encoding="utf-8") for file in SOURCES)]),
    )
