"""The leaderboard's table: its categories and their means as it weighs them, with 95 % confidence intervals."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import fsum, sqrt

from rlfactory_benchmarks.bfcl.data import categories, entries
from rlfactory_core import Group
from rlfactory_core.algo import wilson
from rlfactory_core.reporting import EvalTable

__all__ = ["leaderboard", "measured"]

_MEANS: Mapping[str, Mapping[str, float]] = {  # weights; 0: by the numbers of the leaderboard's questions
    "non-live": dict.fromkeys(("simple_python", "simple_java", "simple_javascript"), 1 / 12)
    | dict.fromkeys(("multiple", "parallel", "parallel_multiple"), 1 / 4),
    "live": dict.fromkeys(("live_simple", "live_multiple", "live_parallel", "live_parallel_multiple"), 0),
    "irrelevance": dict.fromkeys(("irrelevance", "live_irrelevance"), 1 / 2),
    "multi-turn": {f"multi_turn_{name}": 1 / 4 for name in ("base", "miss_func", "miss_param", "long_context")},
}


def measured(groups: Sequence[Group]) -> Mapping[str, Sequence[float]]:
    """The share of right attempts at each question, by category; masked attempts count in none."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    for group in groups:
        scores = [each.score.components for each in group.trajectories if each.score is not None and not each.masked]
        if right := [components["bfcl"] for components in scores if "bfcl" in components]:
            found[group.sample.slice].append(fsum(right) / len(right))
    return found


def leaderboard(title: str, found: Mapping[str, Sequence[float]], notes: Sequence[str]) -> EvalTable:
    """The table.

    Args:
        found: by category, the share of right outputs of each question.
    """
    rows: list[list[str | float]] = [
        [name, len(found[name]), *_interval(found[name])] for name in categories() if found.get(name)
    ]
    return EvalTable(title, ["category", "questions", "right", "low", "high"], [*rows, *_means(found)], notes)


def _interval(values: Sequence[float]) -> tuple[float, float, float]:
    share = fsum(values) / len(values)
    return share, *wilson(share, len(values))


def _means(found: Mapping[str, Sequence[float]]) -> Iterator[list[str | float]]:
    """The means of which all categories are measured.

    The interval is made of theirs, by the method of variance estimates recovery (Zou and Donner, Statistics in Medicine
    27, 2008).
    """
    for title, weights in _MEANS.items():
        if not all(found.get(name) for name in weights):
            continue
        sizes = {name: len(entries(name)) for name in weights}
        shares = {name: weight or sizes[name] / sum(sizes.values()) for name, weight in weights.items()}
        parts = [(weight, _interval(found[name])) for name, weight in shares.items()]
        mean = fsum(weight * share for weight, (share, _, _) in parts)
        below = sqrt(fsum((weight * (share - low)) ** 2 for weight, (share, low, _) in parts))
        above = sqrt(fsum((weight * (high - share)) ** 2 for weight, (share, _, high) in parts))
        number = sum(len(found[name]) for name in weights)
        yield [f"{title} (mean)", number, mean, max(0.0, mean - below), min(1.0, mean + above)]
