"""The judge of the demo: a tiny model that learns from labelled examples, with the same prompt as in training."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from rlfactory_core import Message
from rlfactory_core.cache import digest
from rlfactory_core.tiny import Demonstration, TinyModelRecipe, WarmStartStage
from rlfactory_judge.contract import Question
from rlfactory_judge.demo import cases, world
from rlfactory_judge.demo.cases import Case, CaseMaker
from rlfactory_judge.demo.world import Catalogue, Names
from rlfactory_judge.forms.score import ScoreForm
from rlfactory_judge.rubrics.rubric import Rubric

RUBRIC = Path(__file__).with_name("rubric.jinja")
SOURCES = (world.__file__, cases.__file__, __file__)  # a cached model of other sources is not used
CATALOGUES = 32  # none of them is trained or evaluated on
LOW, HIGH = 0.0, 10.0
ARCHITECTURE = {
    "hidden_size": 96,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
    "max_position_embeddings": 2048,
}


class Examiner:
    """Writes labelled examples as a user's question and the judge's verdict."""

    def __init__(self, make: CaseMaker) -> None:
        self._make = make
        self._rubric = Rubric.load(str(RUBRIC), "outcome")
        self._form = ScoreForm(LOW, HIGH)

    def __call__(self, rng: random.Random) -> Demonstration:
        case = self._make(rng)
        return Message("user", self.question(case).user), Message("assistant", verdict(right=case.right))

    def question(self, case: Case) -> Question:
        return self._rubric.question_of_text(
            prompt=case.prompt, answer=case.answer, truth=(case.truth,), form=self._form
        )


def verdict(*, right: bool) -> str:
    """The judge's whole reply."""
    return f'{{"score": {HIGH if right else LOW:g}}}'


def recipe(names: Names) -> TinyModelRecipe:
    """The recipe over catalogues made of ``names``."""
    examine = Examiner(CaseMaker([Catalogue.make(names, f"judge-{number}") for number in range(CATALOGUES)]))
    held_out = Examiner(CaseMaker([Catalogue.make(names, "judge-probe")]))

    def vocabulary() -> Iterator[str]:
        rng = random.Random("vocabulary")
        for _ in range(600):
            yield "user\n" + "\nassistant\n".join(message.content for message in examine(rng))
        for word in names.words:
            yield from [f" {word}", f"\n{word}\n"] * 12

    return TinyModelRecipe(
        architecture=ARCHITECTURE,
        vocabulary=vocabulary,
        vocab_size=1280,
        stages=(WarmStartStage(examine, 600, 48, target=0.85), WarmStartStage(examine, 250, 48)),
        probe=held_out,
        lr=6e-3,
        fingerprint=digest([*names.words, *(Path(file).read_text(encoding="utf-8") for file in (*SOURCES, RUBRIC))]),
    )
