"""Comparing short answers as SQuAD does (Rajpurkar et al. 2016, arXiv 1606.05250; its evaluation script 1.1)."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterable

OPEN, CLOSE = "<answer>", "</answer>"

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize(text: str) -> str:
    """Lower case, without ASCII punctuation, English articles and superfluous white space."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def exact_match(prediction: str, references: Iterable[str]) -> float:
    """1.0 where the prediction equals one of the references after `normalize`, else 0.0."""
    wanted = normalize(prediction)
    return float(any(normalize(reference) == wanted for reference in references))


def f1(prediction: str, references: Iterable[str]) -> float:
    """The best F1 over bags of normalised words, in [0, 1]; 1.0 where both sides have no words left."""
    words = normalize(prediction).split()
    return max((_bag_f1(words, normalize(reference).split()) for reference in references), default=0.0)


def _bag_f1(prediction: list[str], reference: list[str]) -> float:
    if not prediction or not reference:
        return float(prediction == reference)
    common = (Counter(prediction) & Counter(reference)).total()
    return 2.0 * common / (len(prediction) + len(reference))


def extract_answer(text: str) -> str | None:
    """What stands in the last closed ``<answer>…</answer>``, stripped; None where there is none."""
    end = len(text)
    while (start := text.rfind(OPEN, 0, end)) >= 0:
        close = text.find(CLOSE, start, end)
        if close >= 0:
            return text[start + len(OPEN) : close].strip()
        end = start
    return None
