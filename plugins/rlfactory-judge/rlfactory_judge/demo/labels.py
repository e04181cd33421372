"""Labelled examples about names of the demo, in the layout that ``rlfactory judge calibrate`` reads."""

from __future__ import annotations

import random

from rlfactory_judge.demo.cases import CaseMaker
from rlfactory_judge.demo.world import Catalogue, Names
from rlfactory_judge.trust.labels import LabelledAnswer, Labels


def demo_labels(seed: int, count: int) -> Labels:
    """Answers to ``count`` questions about a catalogue that neither judge nor policy was shown."""
    draw = CaseMaker([Catalogue.make(Names.make(seed), "labels")])
    rng = random.Random(f"labels {seed}")
    cases = [draw(rng) for _ in range(count)]
    return Labels(
        tuple(
            LabelledAnswer(
                f"{number}-{case.kind.replace(' ', '-')}", case.prompt, case.answer, (case.truth,), case.right
            )
            for number, case in enumerate(cases)
        )
    )
