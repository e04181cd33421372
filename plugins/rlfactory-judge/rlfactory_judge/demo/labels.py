"""Labelled examples with the demo's names, in the format of ``rlfactory judge calibrate``."""

from __future__ import annotations

import random

from rlfactory_judge.demo.cases import CaseMaker
from rlfactory_judge.demo.world import Catalogue, Names
from rlfactory_judge.trust.labels import LabelledAnswer, Labels


def demo_labels(seed: int, count: int) -> Labels:
    """Answers to ``count`` questions about a catalogue that neither judge nor policy has seen."""
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
