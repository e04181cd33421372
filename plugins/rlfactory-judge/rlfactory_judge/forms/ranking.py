"""An order of several candidates."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from rlfactory_judge.forms.reading import Found, ParsedForm

_CHAIN = re.compile(r"(?<![0-9\[.,])\[?[0-9]{1,4}\]?(?:\s{0,4}[>=,]\s{0,4}\[?[0-9]{1,4}\]?)+(?![0-9.])")
_LABEL = re.compile(r"(?:ranking|order)[\"'*_`\s]{0,8}[:=][\"'*_`\s]{0,8}\Z", re.IGNORECASE)
_NAME = re.compile(r"(?:candidate\s?)?#?([0-9]{1,4})", re.IGNORECASE)

Order = tuple[tuple[int, ...], ...]  # groups of equally good candidates, the best first, counted from 1


@dataclass(frozen=True)
class RankingForm(ParsedForm[Order]):
    """``count`` candidates, at least two, from the best to the worst, ties allowed."""

    count: int
    keys: ClassVar[tuple[str, ...]] = ("ranking", "order")

    @property
    def instruction(self) -> str:
        return (
            f"Rank all {self.count} candidates, the best first, by their numbers; candidates that are equally good "
            "stand together in a list. End your reply with one JSON object that holds the ranking and nothing "
            f"else, such as {self.example}."
        )

    @property
    def wanted(self) -> str:
        return f"an order of the candidates 1 to {self.count}, each named once"

    @property
    def example(self) -> str:
        """An example of the right length, with a tie if there are enough candidates for one."""
        rest = list(range(4, self.count + 1))
        return json.dumps({"ranking": [2, 1] if self.count == 2 else [2, *rest, [1, 3]]})

    @property
    def value_schema(self) -> Mapping[str, Any]:
        """It does not say that each candidate occurs once; `read` checks that."""
        one = {"type": "integer", "enum": list(range(1, self.count + 1))}
        several = {"type": "array", "items": one, "minItems": 2, "maxItems": self.count}
        return {"type": "array", "items": {"anyOf": [one, several]}, "minItems": 1, "maxItems": self.count}

    def of_json(self, value: object) -> Order | None:
        if not isinstance(value, list):
            return None
        return self._checked(
            [[_number(name) for name in (group if isinstance(group, list) else [group])] for group in value]
        )

    def _checked(self, groups: list[list[int | None]]) -> Order | None:
        """The order with ties in one notation; None unless each candidate occurs once."""
        numbers = [number for group in groups for number in group if number is not None]
        if sum(map(len, groups)) != self.count or sorted(numbers) != list(range(1, self.count + 1)):
            return None
        return tuple(tuple(sorted(number for number in group if number is not None)) for group in groups if group)

    def in_prose(self, answer: str) -> Iterator[Found[Order]]:
        """Chains such as ``2 > 1 = 3``. Commas count only after a label, or if the whole answer is the chain."""
        for chain in _CHAIN.finditer(answer):
            whole = len(chain[0]) >= len(answer.strip(" \t\r\n*_`."))
            if ">" in chain[0] or whole or _LABEL.search(answer, max(0, chain.start() - 40), chain.start()):
                groups = re.split(r"[>,]", re.sub(r"[\s\[\]]", "", chain[0]))
                order = self._checked([[int(name) for name in group.split("=")] for group in groups])
                yield Found(order, chain.start(), chain.end())

    def values(self, verdict: Order) -> tuple[float, ...]:
        """1.0 for the best, 0.0 for the worst, evenly spaced; equally good ones share the mean of their places."""
        values = [0.0] * self.count
        place = 0
        for group in verdict:
            for number in group:
                values[number - 1] = 1.0 - (place + (len(group) - 1) / 2) / (self.count - 1)
            place += len(group)
        return tuple(values)


def _number(name: object) -> int | None:
    if isinstance(name, str):
        found = _NAME.fullmatch(name.strip()[:32])
        return int(found[1]) if found else None
    return int(name) if isinstance(name, float) and name.is_integer() else None
