"""An order of several candidates."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rlfactory_core.errors import UsageError
from rlfactory_judge.forms.reading import Found, answer_of, decide, fitting, object_of, whole_json

_KEYS = ("ranking", "order")
_CHAIN = re.compile(r"(?<![0-9\[.,])\[?[0-9]{1,4}\]?(?:\s{0,4}[>=,]\s{0,4}\[?[0-9]{1,4}\]?)+(?![0-9.])")
_LABEL = re.compile(r"(?:ranking|order)[\"'*_`\s]{0,8}[:=][\"'*_`\s]{0,8}\Z", re.IGNORECASE)
_NAME = re.compile(r"(?:candidate\s?)?#?([0-9]{1,4})", re.IGNORECASE)

Order = tuple[tuple[int, ...], ...]  # groups of equally good candidates, the best first, counted from 1


@dataclass(frozen=True, slots=True)
class RankingForm:
    """``count`` candidates from the best to the worst, ties allowed.

    Raises:
        UsageError: there are not at least two candidates.
    """

    count: int

    def __post_init__(self) -> None:
        if self.count < 2:
            raise UsageError(f"A judge cannot rank {self.count} candidates: expected at least two.")

    @property
    def instruction(self) -> str:
        """The description of the form for the judge."""
        return (
            f"Rank all {self.count} candidates, the best first, by their numbers; candidates that are equally good "
            "stand together in a list. End your reply with one JSON object that holds the ranking and nothing "
            f"else, such as {self._example}."
        )

    @property
    def schema(self) -> Mapping[str, Any]:
        """The JSON schema of the object. `read` checks that each candidate occurs once."""
        one = {"type": "integer", "enum": list(range(1, self.count + 1))}
        several = {"type": "array", "items": one, "minItems": 2, "maxItems": self.count}
        ranking = {"type": "array", "items": {"anyOf": [one, several]}, "minItems": 1, "maxItems": self.count}
        return object_of("ranking", ranking)

    def read(self, text: str) -> tuple[float, ...]:
        """One value per candidate, in the candidates' order: 1.0 for the best, 0.0 for the worst, evenly spaced.

        Equally good candidates share the mean of their places.

        Raises:
            UnreadableError: as `reading.decide`; also where a candidate is missing, repeated or unknown.
        """
        answer = answer_of(text)
        whole = whole_json(answer)
        order = self._of_json(whole) if isinstance(whole, list) else None
        if order is None:
            marked = list(fitting(answer, self._of_object, _KEYS))
            form = f"an order of the candidates 1 to {self.count}, each named once"
            order = decide(answer, marked, self._in_prose, form, example=self._example)
        return self._values(order)

    @property
    def _example(self) -> str:
        """An example of the right length, with a tie if there are enough candidates for one."""
        rest = list(range(4, self.count + 1))
        return json.dumps({"ranking": [2, 1] if self.count == 2 else [2, *rest, [1, 3]]})

    def _of_object(self, found: Mapping[str, Any]) -> Order | None:
        return self._of_json(next(found[key] for key in _KEYS if key in found))

    def _of_json(self, value: object) -> Order | None:
        if not isinstance(value, list):
            return None
        groups = [[_number(name) for name in (group if isinstance(group, list) else [group])] for group in value]
        return self._checked(groups)

    def _checked(self, groups: list[list[int | None]]) -> Order | None:
        """The order with ties in one notation; None unless each candidate occurs once."""
        numbers = [number for group in groups for number in group if number is not None]
        if sum(map(len, groups)) != self.count or sorted(numbers) != list(range(1, self.count + 1)):
            return None
        return tuple(tuple(sorted(number for number in group if number is not None)) for group in groups if group)

    def _in_prose(self, answer: str) -> Iterator[Found[Order]]:
        """Chains such as ``2 > 1 = 3``. Commas count only after a label, or if the whole answer is the chain."""
        for chain in _CHAIN.finditer(answer):
            whole = len(chain[0]) >= len(answer.strip(" \t\r\n*_`."))
            if ">" in chain[0] or whole or _LABEL.search(answer, max(0, chain.start() - 40), chain.start()):
                groups = re.split(r"[>,]", re.sub(r"[\s\[\]]", "", chain[0]))
                order = self._checked([[int(name) for name in group.split("=")] for group in groups])
                yield Found(order, chain.start(), chain.end())

    def _values(self, order: Order) -> tuple[float, ...]:
        values = [0.0] * self.count
        place = 0
        for group in order:
            middle = place + (len(group) - 1) / 2
            for number in group:
                values[number - 1] = 1.0 - middle / (self.count - 1)
            place += len(group)
        return tuple(values)


def _number(name: object) -> int | None:
    if isinstance(name, str):
        found = _NAME.fullmatch(name.strip()[:32])
        return int(found[1]) if found else None
    return int(name) if isinstance(name, float) and name.is_integer() else None
