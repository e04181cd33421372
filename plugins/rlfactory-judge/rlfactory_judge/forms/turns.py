"""One score for each turn."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from rlfactory_judge.forms.reading import Found, ParsedForm
from rlfactory_judge.forms.scale import Scale, as_number, plain, stated

_LINE = re.compile(r"^[ \t#>*_`-]{0,8}turn\s{0,4}([0-9]{1,4})[\"'*_`\s]{0,8}[:=][\"'*_`\s]{0,8}", re.IGNORECASE | re.M)

Scores = tuple[float, ...]


@dataclass(frozen=True)
class TurnScoresForm(ParsedForm[Scores]):
    """A number from ``low`` to ``high`` for each of ``turns`` turns, in order. Numbers outside are clamped."""

    turns: int
    low: float
    high: float
    keys: ClassVar[tuple[str, ...]] = ("scores", "turns", "score")

    @property
    def instruction(self) -> str:
        return (
            f"Score each of the {self.turns} turns, in their order. A score is {self._scale.words}. End your reply "
            f"with one JSON object that holds exactly {self.turns} scores and nothing else, such as {self.example}."
        )

    @property
    def wanted(self) -> str:
        return f"{self.turns} scores, each {self._scale.words}"

    @property
    def example(self) -> str:
        """An example of the right length, with different scores, so that none is suggested."""
        shares = (0.7, 0.2, 1.0)
        shown = [plain(self._scale.example(shares[index % 3])) for index in range(self.turns)]
        return f'{{"scores": [{", ".join(shown)}]}}'

    @property
    def value_schema(self) -> Mapping[str, Any]:
        return {"type": "array", "items": self._scale.schema, "minItems": self.turns, "maxItems": self.turns}

    @property
    def _scale(self) -> Scale:
        return Scale(self.low, self.high)

    def of_json(self, value: object) -> Scores | None:
        """A list in the turns' order, an object with their numbers as keys, or the score of a single turn."""
        if isinstance(value, dict):
            value = [value.get(str(turn), value.get(f"turn {turn}")) for turn in range(1, len(value) + 1)]
        elif not isinstance(value, list):
            value = [value]
        numbers = [as_number(item, self._scale) for item in value]
        scores = tuple(number for number in numbers if number is not None)
        return scores if len(scores) == len(numbers) == self.turns else None

    def in_prose(self, answer: str) -> Iterator[Found[Scores]]:
        """Lines such as ``Turn 2: 7/10``: together they are one verdict."""
        said: dict[int, set[float | None]] = {}
        for line in _LINE.finditer(answer):
            number = stated(answer, line.end(), self._scale)
            if number is not None:
                said.setdefault(int(line[1]), set()).add(number.value)
        if not said:
            return
        values = [next(iter(said[turn])) for turn in range(1, self.turns + 1) if len(said.get(turn, ())) == 1]
        scores = tuple(value for value in values if value is not None)
        yield Found(scores if len(scores) == self.turns == len(said) else None, 0, 0)

    def values(self, verdict: Scores) -> tuple[float, ...]:
        """One score for each turn, mapped onto [0, 1]."""
        return tuple(map(self._scale.fraction, verdict))
