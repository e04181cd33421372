"""Labelled examples with the demo's names, in the format of ``rlfactory judge calibrate``."""

from __future__ import annotations

import random
from pathlib import Path

from rlfactory_core.cache import build_once, cache_root, digest
from rlfactory_judge.demo.cases import CaseMaker
from rlfactory_judge.demo.world import Catalogue, Names
from rlfactory_judge.trust.labels import LabelledAnswer, Labels, write_labels

COUNT = 200  # labels on which the judge is measured before a run


def labels_file(seed: int) -> Path:
    """The demo's labels as a file in the cache.

    Raises:
        DataError: the cache cannot be written.
    """
    folder = cache_root() / "judge-labels" / digest([str(seed), Path(__file__).read_text(encoding="utf-8")])
    return (
        build_once(folder, lambda made: write_labels(made / "labels.jsonl", demo_labels(seed, COUNT))) / "labels.jsonl"
    )


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
