"""Which of two candidates is better."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from rlfactory_judge.forms.reading import Found, ParsedForm, is_quoted

# How good the first one is; MT-Bench's C is a tie.
_NAMES = {"1": 1.0, "a": 1.0, "2": 0.0, "b": 0.0, "tie": 0.5, "c": 0.5}
_NAME = r"(?:(?i:candidate|answer|response|option)\s{1,4})?([12AB]|(?i:tie))"  # not "a", which is a word
_WHOLE = re.compile(_NAME)
_SPOKEN = re.compile(
    rf"(?<![A-Za-z0-9_])(?i:better|winner|preference)[\"'*_`\s]{{0,8}}[:=][\"'*_`\s]{{0,8}}{_NAME}(?![A-Za-z0-9_]|[.,/-]\w)"
)


@dataclass(frozen=True)
class PreferenceForm(ParsedForm[float]):
    """The first candidate, the second, or a tie."""

    keys: ClassVar[tuple[str, ...]] = ("better", "winner", "preference")
    marked: ClassVar[bool] = True
    wanted = "one of two candidates or a tie"
    example = '{"better": "2"}'
    instruction = (
        'Say which candidate is better: "1", "2", or "tie" where they are equally good. End your reply with one '
        f"JSON object that holds your choice and nothing else, such as {example}."
    )

    @property
    def value_schema(self) -> Mapping[str, Any]:
        return {"type": "string", "enum": ["1", "2", "tie"]}

    def whole(self, answer: str) -> float | None:
        return _of_name(answer.strip(" \t\r\n*_`.\"'"))

    def of_text(self, text: str) -> float | None:
        return 0.5 if text.strip() == "C" else _of_name(text.strip())

    def of_object(self, found: Mapping[str, Any]) -> float | None:
        value = next(found[key] for key in self.keys if key in found)
        if isinstance(value, float):
            return {1.0: 1.0, 2.0: 0.0}.get(value)
        return _of_name(value.strip()) if isinstance(value, str) else None

    def in_prose(self, answer: str) -> Iterator[Found[float]]:
        for found in _SPOKEN.finditer(answer):
            said = None if is_quoted(answer, found.start()) else _NAMES[found[1].lower()]
            yield Found(said, found.start(), found.end())

    def values(self, verdict: float) -> tuple[float, ...]:
        """(1.0, 0.0) for the first, (0.0, 1.0) for the second, (0.5, 0.5) for a tie."""
        return (verdict, 1.0 - verdict)


def _of_name(text: str) -> float | None:
    found = _WHOLE.fullmatch(text) if len(text) <= 40 else None
    return _NAMES[found[1].lower()] if found else None
