"""One score on a stated scale."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from rlfactory_judge.forms.reading import Found, ParsedForm, is_quoted
from rlfactory_judge.forms.scale import Scale, as_number, json_number, only_number, stated

_SPOKEN = re.compile(r"(?<![A-Za-z0-9_])(?:score|rating|grade)([\"'*_`\s]{0,8})[:=][\"'*_`\s]{0,8}", re.IGNORECASE)
_JSON_END = re.compile(r"[\"'\s]{0,8}[,}]")


@dataclass(frozen=True)
class ScoreForm(ParsedForm[float]):
    """A number from ``low`` to ``high``. Numbers outside are clamped. Words such as yes and no are no scores."""

    low: float
    high: float
    keys: ClassVar[tuple[str, ...]] = ("score", "rating", "grade")
    marked: ClassVar[bool] = True

    @property
    def instruction(self) -> str:
        return (
            f"The score is {self._scale.words}. End your reply with one JSON object that holds the score and nothing "
            f"else, such as {self.example}."
        )

    @property
    def wanted(self) -> str:
        return f"a score of {self._scale.words}"

    @property
    def example(self) -> str:
        return json.dumps({"score": json_number(self._scale.example(0.7))})

    @property
    def value_schema(self) -> Mapping[str, Any]:
        return self._scale.schema

    @property
    def _scale(self) -> Scale:
        return Scale(self.low, self.high)

    def of_text(self, text: str) -> float | None:
        return only_number(text, self._scale)

    def of_object(self, found: Mapping[str, Any]) -> float | None:
        first, *others = [as_number(found[key], self._scale) for key in self.keys if key in found]
        return first if {first, *others} <= {first, None} else None

    def in_prose(self, answer: str) -> Iterator[Found[float]]:
        for label in _SPOKEN.finditer(answer):
            number = stated(answer, label.end(), self._scale)
            if number is not None:
                # `{"score": 1` may have been 10
                cut = '"' in label[1] and not _JSON_END.match(answer, number.end)
                unclear = cut or is_quoted(answer, label.start())
                yield Found(None if unclear else number.value, label.start(), number.end)

    def values(self, verdict: float) -> tuple[float, ...]:
        """The one score, mapped onto [0, 1]."""
        return (self._scale.fraction(verdict),)
