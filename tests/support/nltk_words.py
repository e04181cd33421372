"""The resources of NLTK that word games read, in small: lists of words, and a tagger that takes each for a noun."""

from __future__ import annotations

import json
from pathlib import Path

BASIC = ("crane", "slate", "apple", "house", "river", "stone")
MORE = (*BASIC, "table", "chair", "plant", "bread")


def write(folder: Path) -> None:
    """Write them as NLTK lays them out."""
    words = folder / "corpora" / "words"
    words.mkdir(parents=True)
    (words / "README").write_text("words for tests\n")
    (words / "en").write_text("\n".join(MORE) + "\n")
    (words / "en-basic").write_text("\n".join(BASIC) + "\n")
    tagger = folder / "taggers" / "averaged_perceptron_tagger_eng"
    tagger.mkdir(parents=True)
    for part, content in {"weights": {}, "tagdict": dict.fromkeys(MORE, "NN"), "classes": ["NN"]}.items():
        (tagger / f"averaged_perceptron_tagger_eng.{part}.json").write_text(json.dumps(content))
