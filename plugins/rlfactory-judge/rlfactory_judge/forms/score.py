"""One score on a stated scale."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rlfactory_judge.forms.reading import Found, answer_of, decide, fitting, is_quoted, marks, object_of
from rlfactory_judge.forms.scale import Scale, as_number, json_number, only_number, stated

_KEYS = ("score", "rating", "grade")
_SPOKEN = re.compile(r"(?<![A-Za-z0-9_])(?:score|rating|grade)([\"'*_`\s]{0,8})[:=][\"'*_`\s]{0,8}", re.IGNORECASE)
_JSON_END = re.compile(r"[\"'\s]{0,8}[,}]")


@dataclass(frozen=True, slots=True)
class ScoreForm:
    """A number from ``low`` to ``high``. Numbers outside are clamped. Words such as yes and no are no scores.

    Raises:
        UsageError: ``low`` is not below ``high``, or one of them is not finite.
    """

    low: float
    high: float
    _scale: Scale = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_scale", Scale(self.low, self.high))

    @property
    def instruction(self) -> str:
        """The description of the form for the judge."""
        return (
            f"The score is {self._scale.words}. End your reply with one JSON object that holds the score and nothing "
            f"else, such as {self._example}."
        )

    @property
    def schema(self) -> Mapping[str, Any]:
        """The JSON schema of the object."""
        return object_of("score", self._scale.schema)

    def read(self, text: str) -> tuple[float, ...]:
        """The one score, mapped onto [0, 1].

        Raises:
            UnreadableError: as `reading.decide`.
        """
        answer = answer_of(text)
        value = only_number(answer, self._scale)
        if value is None:
            objects = list(fitting(answer, self._of_object, _KEYS))
            marked = sorted([*objects, *marks(answer, "score", self._of_text)], key=lambda found: found.end)
            value = decide(answer, marked, self._in_prose, f"a score of {self._scale.words}", example=self._example)
        return (self._scale.fraction(value),)

    @property
    def _example(self) -> str:
        return json.dumps({"score": json_number(self._scale.example(0.7))})

    def _of_object(self, found: Mapping[str, Any]) -> float | None:
        first, *others = [as_number(found[key], self._scale) for key in _KEYS if key in found]
        return first if {first, *others} <= {first, None} else None

    def _of_text(self, text: str) -> float | None:
        return only_number(text, self._scale)

    def _in_prose(self, answer: str) -> Iterator[Found[float]]:
        for label in _SPOKEN.finditer(answer):
            number = stated(answer, label.end(), self._scale)
            if number is not None:
                if is_quoted(answer, label.start()):
                    yield Found(None, label.start(), number.end)
                    continue
                cut = '"' in label[1] and not _JSON_END.match(answer, number.end)  # `{"score": 1` may have been 10
                yield Found(None if cut else number.value, label.start(), number.end)
