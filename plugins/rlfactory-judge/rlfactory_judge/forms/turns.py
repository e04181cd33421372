"""One score for each turn."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rlfactory_core.errors import UsageError
from rlfactory_judge.forms.reading import Found, answer_of, decide, fitting, object_of, whole_json
from rlfactory_judge.forms.scale import Scale, as_number, plain, stated

_KEYS = ("scores", "turns", "score")
_LINE = re.compile(r"^[ \t#>*_`-]{0,8}turn\s{0,4}([0-9]{1,4})[\"'*_`\s]{0,8}[:=][\"'*_`\s]{0,8}", re.IGNORECASE | re.M)

Scores = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class TurnScoresForm:
    """A number from ``low`` to ``high`` for each of ``turns`` turns, in order. Numbers outside are clamped.

    Raises:
        UsageError: ``low`` is not below ``high``, or there is no turn.
    """

    turns: int
    low: float
    high: float
    _scale: Scale = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_scale", Scale(self.low, self.high))
        if self.turns < 1:
            raise UsageError(f"A judge cannot score {self.turns} turns: expected at least one.")

    @property
    def instruction(self) -> str:
        """The description of the form for the judge."""
        return (
            f"Score each of the {self.turns} turns, in their order. A score is {self._scale.words}. End your reply "
            f"with one JSON object that holds exactly {self.turns} scores and nothing else, such as {self._example}."
        )

    @property
    def schema(self) -> Mapping[str, Any]:
        """The JSON schema of the object."""
        scores = {"type": "array", "items": self._scale.schema, "minItems": self.turns, "maxItems": self.turns}
        return object_of("scores", scores)

    def read(self, text: str) -> tuple[float, ...]:
        """One score for each turn, mapped onto [0, 1].

        Raises:
            UnreadableError: as `reading.decide`; also where a turn has no score, or there are scores of other turns.
        """
        answer = answer_of(text)
        whole = whole_json(answer)
        scores = self._of_json(whole) if isinstance(whole, list) else None
        if scores is None:
            marked = list(fitting(answer, self._of_object, _KEYS))
            form = f"{self.turns} scores, each {self._scale.words}"
            scores = decide(answer, marked, self._in_prose, form, example=self._example)
        return tuple(map(self._scale.fraction, scores))

    @property
    def _example(self) -> str:
        """An example of the right length, with different scores, so that none is suggested."""
        shares = (0.7, 0.2, 1.0)
        shown = [plain(self._scale.example(shares[index % 3])) for index in range(self.turns)]
        return f'{{"scores": [{", ".join(shown)}]}}'

    def _of_object(self, found: Mapping[str, Any]) -> Scores | None:
        return self._of_json(next(found[key] for key in _KEYS if key in found))

    def _of_json(self, value: object) -> Scores | None:
        """A list in the turns' order, an object with their numbers as keys, or the score of a single turn."""
        if isinstance(value, dict):
            value = [value.get(str(turn), value.get(f"turn {turn}")) for turn in range(1, len(value) + 1)]
        elif not isinstance(value, list):
            value = [value]
        numbers = [as_number(item, self._scale) for item in value]
        scores = tuple(number for number in numbers if number is not None)
        return scores if len(scores) == len(numbers) == self.turns else None

    def _in_prose(self, answer: str) -> Iterator[Found[Scores]]:
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
