"""The recipe of the tiny policy: its size, and the demonstrations that it learns from before GRPO."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from rlfactory_core.cache import digest
from rlfactory_core.tiny import TinyModelRecipe, WarmStartStage, tools_prompt
from rlfactory_core.types import ToolSpec
from rlfactory_judge.demo import demonstrations, world
from rlfactory_judge.demo.demonstrations import Carelessness, Demonstrator
from rlfactory_judge.demo.world import Catalogue, Names

SOURCES = (world.__file__, demonstrations.__file__, __file__)  # a cached model of other sources is not used
DEMO_CATALOGUES = 16  # none of them is trained or evaluated on
ARCHITECTURE = {
    "hidden_size": 96,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "num_key_value_heads": 3,
    "head_dim": 32,
    "max_position_embeddings": 1024,
}
CARELESS = Carelessness(stop_early=0.7, wrong_name=0.15, wrong_copy=0.12, format_slip=0.08)


def recipe(names: Names, tool: ToolSpec) -> TinyModelRecipe:
    """The recipe over catalogues made of ``names``, for a model that is offered ``tool``."""
    made = [Catalogue.make(names, f"demo-{number}") for number in range(DEMO_CATALOGUES)]
    held_out = [Catalogue.make(names, "probe")]

    def vocabulary() -> Iterator[str]:
        rng = random.Random("vocabulary")
        demonstrate = Demonstrator(made[:1], two_hop=0.5)
        # So often that the system prompt becomes few tokens, and every name exactly one.
        yield from [tools_prompt([tool])] * 30
        for _ in range(300):
            yield "\n".join(message.content for message in demonstrate(rng))
        yield from ["user\nassistant\n"] * 30  # the template's, in every turn
        for word in names.words:
            yield from [f" {word}"] * 12

    return TinyModelRecipe(
        architecture=ARCHITECTURE,
        vocabulary=vocabulary,
        vocab_size=1024,
        stages=(
            WarmStartStage(Demonstrator(made, 0.35), 700, 16, target=0.95, context_weight=0.3),
            WarmStartStage(Demonstrator(made, 0.5, CARELESS), 120, 16, context_weight=0.3),
        ),
        probe=Demonstrator(held_out, 0.5),
        fingerprint=digest([*names.words, *(Path(file).read_text(encoding="utf-8") for file in SOURCES)]),
    )
