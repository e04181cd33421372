"""The three forms of a judge's answer, and its scale: a score, a score for each turn, and an order."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any, ClassVar

from rlfactory_judge.forms.reading import Form

_MOST_CHOICES = 101  # up to so many whole numbers are given to the server as a choice, which every server supports
_NUMBER = re.compile(r"[-+]?[0-9]{1,12}(?:\.[0-9]{0,12})?")
Scores = tuple[float, ...]
_CANDIDATE = re.compile(r"(?:candidate\s?)?#?([0-9]{1,4})", re.IGNORECASE)
Order = tuple[tuple[int, ...], ...]  # groups of equally good candidates, the best first, counted from 1


@dataclass(frozen=True, slots=True)
class Scale:
    """From ``low``, the worst, to ``high``, the best; the options have checked that they are finite, and low less."""

    low: float
    high: float

    @property
    def whole(self) -> bool:
        """Whether the judge is asked for whole numbers. A scale such as 0 to 1 has too few of them."""
        return self.low == int(self.low) and self.high == int(self.high) and self.high - self.low >= 2

    @property
    def words(self) -> str:
        """Such as ``a whole number from 0 (worst) to 10 (best)``."""
        kind = "a whole number" if self.whole else "a number"
        return f"{kind} from {json_number(self.low)} (worst) to {json_number(self.high)} (best)"

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of one number on the scale."""
        if self.whole and self.high - self.low < _MOST_CHOICES:
            return {"type": "integer", "enum": list(range(int(self.low), int(self.high) + 1))}
        kind = "integer" if self.whole else "number"
        return {"type": kind, "minimum": json_number(self.low), "maximum": json_number(self.high)}

    def example(self, share: float) -> float:
        """A number for an example, ``share`` of the way from ``low`` to ``high``."""
        value = self.low + share * (self.high - self.low)
        return round(value) if self.whole else float(f"{value:.3g}")

    def fraction(self, value: float) -> float:
        """The position of a finite value on the scale: 0.0 for ``low`` or less, 1.0 for ``high`` or more."""
        return min(1.0, max(0.0, (value - self.low) / (self.high - self.low)))


def json_number(number: float) -> int | float:
    """An int where the number is whole, because ``7.0`` in a prompt invites ``7.0`` in the answer."""
    return int(number) if float(number).is_integer() else number


def as_number(value: object, scale: Scale) -> float | None:
    """A JSON number, or a text that is one, such as ``7`` or ``7/10`` on a scale up to 10; None for anything else."""
    if isinstance(value, str) and len(value) <= 64:
        bare = value.strip(" \t\r\n*_`$.\"'").removesuffix(f"/{scale.high:g}")
        return float(bare) if _NUMBER.fullmatch(bare) else None
    return value if isinstance(value, float) and math.isfinite(value) else None


class ScoreForm(Form):
    """A number from ``low`` to ``high``. Numbers outside are clamped. Words such as yes and no are no scores."""

    keys: ClassVar[tuple[str, ...]] = ("score", "rating", "grade")

    def __init__(self, low: float, high: float) -> None:
        self._scale = Scale(low, high)
        self.value_schema = self._scale.schema
        self.wanted = f"a score of {self._scale.words}"
        self.example = json.dumps({"score": json_number(self._scale.example(0.7))})
        self.instruction = (
            f"The score is {self._scale.words}. End your reply with one JSON object that holds the score and nothing "
            f"else, such as {self.example}."
        )

    def of_json(self, value: object) -> float | None:
        return as_number(value, self._scale)

    def values(self, verdict: float) -> tuple[float, ...]:
        """The one score, mapped onto [0, 1]."""
        return (self._scale.fraction(verdict),)

    def is_beyond(self, verdict: float) -> bool:
        return not self._scale.low <= verdict <= self._scale.high


class TurnScoresForm(Form):
    """A number from ``low`` to ``high`` for each of ``turns`` turns, in order. Numbers outside are clamped."""

    keys: ClassVar[tuple[str, ...]] = ("scores", "turns", "score")

    def __init__(self, turns: int, low: float, high: float) -> None:
        self.turns, self._scale = turns, Scale(low, high)
        self.value_schema = {"type": "array", "items": self._scale.schema, "minItems": turns, "maxItems": turns}
        self.wanted = f"{turns} scores, each {self._scale.words}"
        # An example of the right length, with different scores, so that none is suggested.
        shares = ((0.7, 0.2, 1.0)[turn % 3] for turn in range(turns))
        self.example = json.dumps({"scores": [json_number(self._scale.example(share)) for share in shares]})
        self.instruction = (
            f"Score each of the {turns} turns, in their order. A score is {self._scale.words}. End your reply "
            f"with one JSON object that holds exactly {turns} scores and nothing else, such as {self.example}."
        )

    def of_json(self, value: object) -> Scores | None:
        """A list in the turns' order, an object with their numbers as keys, or the score of a single turn."""
        if isinstance(value, dict):
            value = [value.get(str(turn), value.get(f"turn {turn}")) for turn in range(1, len(value) + 1)]
        elif not isinstance(value, list):
            value = [value]
        numbers = [as_number(item, self._scale) for item in value]
        scores = tuple(number for number in numbers if number is not None)
        return scores if len(scores) == len(numbers) == self.turns else None

    def values(self, verdict: Scores) -> tuple[float, ...]:
        """One score for each turn, mapped onto [0, 1]."""
        return tuple(map(self._scale.fraction, verdict))

    def is_beyond(self, verdict: Scores) -> bool:
        return not self._scale.low <= min(verdict) <= max(verdict) <= self._scale.high


class RankingForm(Form):
    """``count`` candidates, at least two, from the best to the worst, ties allowed."""

    keys: ClassVar[tuple[str, ...]] = ("ranking", "order")

    def __init__(self, count: int) -> None:
        self.count = count
        # The schema does not say that each candidate occurs once; `read` checks that.
        one = {"type": "integer", "enum": list(range(1, count + 1))}
        several = {"type": "array", "items": one, "minItems": 2, "maxItems": count}
        self.value_schema = {"type": "array", "items": {"anyOf": [one, several]}, "minItems": 1, "maxItems": count}
        self.wanted = f"an order of the candidates 1 to {count}, each named once"
        # An example of the right length, with a tie if there are enough candidates for one.
        self.example = json.dumps({"ranking": [2, 1] if count == 2 else [2, *range(4, count + 1), [1, 3]]})
        tie = " ([[1, 2]])" if count == 2 else ""
        self.instruction = (
            f"Rank all {count} candidates, the best first, by their numbers; candidates that are equally good "
            f"stand together in a list{tie}. End your reply with one JSON object that holds the ranking and nothing "
            f"else, such as {self.example}."
        )

    def of_json(self, value: object) -> Order | None:
        """The order with ties in one notation; None unless each candidate occurs once."""
        if not isinstance(value, list):
            return None
        groups = [[_candidate(name) for name in (group if isinstance(group, list) else [group])] for group in value]
        numbers = [number for group in groups for number in group if number is not None]
        if sum(map(len, groups)) != self.count or sorted(numbers) != list(range(1, self.count + 1)):
            return None
        return tuple(tuple(sorted(number for number in group if number is not None)) for group in groups if group)

    def values(self, verdict: Order) -> tuple[float, ...]:
        """1.0 for the best, 0.0 for the worst, evenly spaced; equally good ones share the mean of their places."""
        values = [0.0] * self.count
        place = 0
        for group in verdict:
            for number in group:
                values[number - 1] = 1.0 - (place + (len(group) - 1) / 2) / (self.count - 1)
            place += len(group)
        return tuple(values)


def _candidate(name: object) -> int | None:
    if isinstance(name, str):
        found = _CANDIDATE.fullmatch(name.strip()[:32])
        return int(found[1]) if found else None
    return int(name) if isinstance(name, float) and name.is_integer() else None
