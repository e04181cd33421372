"""Which of two candidates is better."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rlfactory_judge.forms.reading import Found, answer_of, decide, fitting, is_quoted, marks, object_of

_KEYS = ("better", "winner", "preference")
_NAMES = {
    "1": 1.0,
    "a": 1.0,
    "2": 0.0,
    "b": 0.0,
    "tie": 0.5,
    "c": 0.5,
}  # how good the first one is; MT-Bench's C: a tie
_NAME = r"(?:(?i:candidate|answer|response|option)\s{1,4})?([12AB]|(?i:tie))"  # not "a", which is a word
_WHOLE = re.compile(_NAME)
_SPOKEN = re.compile(
    rf"(?<![A-Za-z0-9_])(?i:better|winner|preference)[\"'*_`\s]{{0,8}}[:=][\"'*_`\s]{{0,8}}{_NAME}(?![A-Za-z0-9_]|[.,/-]\w)"
)
_EXAMPLE = '{"better": "2"}'


@dataclass(frozen=True, slots=True)
class PreferenceForm:
    """The first candidate, the second, or a tie."""

    @property
    def instruction(self) -> str:
        """The description of the form for the judge."""
        return (
            'Say which candidate is better: "1", "2", or "tie" where they are equally good. End your reply with one '
            f"JSON object that holds your choice and nothing else, such as {_EXAMPLE}."
        )

    @property
    def schema(self) -> Mapping[str, Any]:
        """The JSON schema of the object."""
        return object_of("better", {"type": "string", "enum": ["1", "2", "tie"]})

    def read(self, text: str) -> tuple[float, ...]:
        """(1.0, 0.0) for the first, (0.0, 1.0) for the second, (0.5, 0.5) for a tie.

        Raises:
            UnreadableError: as `reading.decide`.
        """
        answer = answer_of(text)
        first = _of_text(answer.strip(" \t\r\n*_`.\"'"))
        if first is None:
            objects = list(fitting(answer, _of_object, _KEYS))
            marked = sorted([*objects, *marks(answer, "better", _of_mark)], key=lambda found: found.end)
            first = decide(answer, marked, _in_prose, "one of two candidates or a tie", example=_EXAMPLE)
        return (first, 1.0 - first)


def _of_text(text: str) -> float | None:
    found = _WHOLE.fullmatch(text, 0, 40) if len(text) <= 40 else None
    return _NAMES[found[1].lower()] if found else None


def _of_mark(text: str) -> float | None:
    return 0.5 if text.strip() == "C" else _of_text(text.strip())


def _of_object(found: Mapping[str, Any]) -> float | None:
    value = next(found[key] for key in _KEYS if key in found)
    if isinstance(value, float):
        return {1.0: 1.0, 2.0: 0.0}.get(value)
    return _of_text(value.strip()) if isinstance(value, str) else None


def _in_prose(answer: str) -> Iterator[Found[float]]:
    for found in _SPOKEN.finditer(answer):
        said = None if is_quoted(answer, found.start()) else _NAMES[found[1].lower()]
        yield Found(said, found.start(), found.end())
