"""The kind and format of a column's values, and new values like them.

New values are made from given ones: dates combine years, months and days, texts get a word of another text or another
letter or digit, numbers change by one in the last digit. Except for keys, values stay in the given range.
"""

from __future__ import annotations

import datetime as dt
import random
import re
import string
import uuid
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Any

from rlfactory_nl2sql.schema import Column

ISO_DATE = re.compile(r"(\d{4})-(\d{2})-(\d{2})(.*)", re.DOTALL)
_PIECES = re.compile(r"[^\W\d_]+|\d+|[\W_]+")
_FREE_TEXT = re.compile(r"char|text|clob|string", re.IGNORECASE)
_CLOSED_TYPE = re.compile(r"enum|set\b|bool|tinyint\(1\)", re.IGNORECASE)
_LENGTH = re.compile(r"char\w*(?: varying)?\s*\((\d+)\)", re.IGNORECASE)
_TRIES = 20


class Kind(Enum):
    """Kinds of values, for which new ones are made differently."""

    INTEGER = "integer"
    REAL = "real"
    TEXT = "text"
    ISO_DATE = "iso date"  # a text that starts with YYYY-MM-DD
    MOMENT = "moment"  # dt.date or dt.datetime
    UUID = "uuid"
    OTHER = "other"  # bytes, lists, intervals, truth values; no new ones are made


@dataclass(frozen=True, slots=True)
class Domain:
    """The given values of one column."""

    kind: Kind  # of most values
    known: tuple[Any, ...]  # the distinct values without NULL, in the order of the rows
    nulls: bool
    decimals: int  # the largest number of digits after the decimal point
    longest: int | None  # limit of characters by the declared type; None: no limit
    frame: tuple[int, int]  # the lengths of the prefix and the suffix that all texts share
    closed: bool  # whether only given values are possible: flags, enumerations, unknown kinds
    allows: Callable[[Any], bool]  # whether the column's declared CHECKs hold for a value
    ends: tuple[Any, Any]  # the least and the greatest value of a column of numbers
    step: Any  # one unit of the last digit after the decimal point

    def invent(self, rng: random.Random, known: Sequence[Any] = ()) -> Any:
        """A possible value, new or given, made from ``known`` ones."""
        known = known or self.known
        value = self._invented(rng, known)
        return value if self.allows(value) else rng.choice(known)

    def _invented(self, rng: random.Random, known: Sequence[Any]) -> Any:
        one, other, third = rng.choice(known), rng.choice(known), rng.choice(known)
        if self.closed or kind_of(one) is not self.kind:
            return one
        if self.kind is Kind.INTEGER:
            return _clamp(rng.choice((one - 1, one + 1, (one + _same(other, one)) // 2)), self.ends)
        if self.kind is Kind.REAL:
            return self._real(one, _same(other, one), rng)
        if self.kind is Kind.ISO_DATE:
            return _date_of_parts(one, other, third)
        if self.kind is Kind.MOMENT:
            return one.replace(year=_same(other, one).year, month=_same(third, one).month, day=min(one.day, 28))
        if self.kind is Kind.TEXT:
            text = self.vary(one, other, rng)
            return text if self.takes(text) else one
        return one

    def vary(self, one: str, other: Any, rng: random.Random) -> str:
        """A text like these two. The prefix and the suffix of all texts are kept."""
        start, end = self.frame
        part, others = one[start : len(one) - end], str(other)[start : len(str(other)) - end]
        return one[:start] + vary_text(part, others, rng) + one[len(one) - end :]

    def takes(self, text: str) -> bool:
        """Whether a text is short enough."""
        return self.longest is None or len(text) <= self.longest

    def _real(self, one: Any, other: Any, rng: random.Random) -> Any:
        value = rng.choice((one - self.step, one + self.step, (one + other) / 2))
        return _clamp(round(value, self.decimals), self.ends)


def learn(
    column: Column, values: Iterable[Any], allows: Callable[[Any], bool], *, nulls_matter: bool = False
) -> Domain:
    """The domain of a column with these values, NULLs included; ``nulls_matter``: it should have some."""
    values = list(values)
    known = distinct(value for value in values if value is not None)
    kinds = [kind_of(value) for value in known]
    kind = max(Kind, key=kinds.count) if kinds else Kind.OTHER
    if kind is Kind.INTEGER and Kind.REAL in kinds:
        kind = Kind.REAL  # SQLite's NUMERIC columns give 1 for 1.00
    length = _LENGTH.search(column.type)
    declared_free = not column.type or _FREE_TEXT.search(column.type) is not None
    closed = (
        kind is Kind.OTHER
        or _CLOSED_TYPE.match(column.type) is not None
        or (kind is Kind.INTEGER and set(known) <= {0, 1})
        or (kind is Kind.TEXT and not declared_free)
    )
    if kind is Kind.REAL:
        known = tuple(_as_real(value) for value in known)
    numbers = [value for value in known if kind_of(value) is kind] if kind in (Kind.INTEGER, Kind.REAL) else [0]
    decimals = max(map(_decimals, known), default=0)
    return Domain(
        kind=kind,
        known=known,
        nulls=any(value is None for value in values) or (nulls_matter and column.nullable),
        decimals=decimals,
        longest=int(length[1]) if length else None,
        frame=_frame([value for value in known if isinstance(value, str)]),
        closed=closed,
        allows=allows,
        ends=(min(numbers), max(numbers)),
        step=Decimal(1).scaleb(-decimals) if isinstance(numbers[0], Decimal) else 10.0**-decimals,
    )


def kind_of(value: Any) -> Kind:
    """The kind of one value."""
    if isinstance(value, bool):
        return Kind.OTHER
    if isinstance(value, int):
        return Kind.INTEGER
    if isinstance(value, float | Decimal):
        return Kind.REAL
    if isinstance(value, str):
        return Kind.ISO_DATE if ISO_DATE.match(value) else Kind.TEXT
    if isinstance(value, dt.date):
        return Kind.MOMENT
    if isinstance(value, uuid.UUID):
        return Kind.UUID
    return Kind.OTHER


def distinct(values: Iterable[Any]) -> tuple[Any, ...]:
    """Each value once, in order. Values are compared by type and text, so 1 and 1.0 are two."""
    return tuple({(type(value), repr(value)): value for value in values}.values())


def fresh(domain: Domain, taken: Container[Any], rng: random.Random) -> Any:
    """A value for a unique column that is not in ``taken`` (see `comparable`); None if none can be made."""
    for attempt in range(_TRIES):
        value = _fresh_candidate(domain, attempt, rng)
        if value is not None and comparable(value) not in taken and domain.allows(value):
            return value
    return None


def comparable(value: Any) -> Any:
    """A form that is equal for values that some database treats as equal in a unique column, such as 'a' and 'A '."""
    if isinstance(value, str):
        return value.rstrip().casefold()
    return value if isinstance(value, int | float | Decimal | dt.date | uuid.UUID) else repr(value)


def vary_text(text: str, other: str, rng: random.Random) -> str:
    """The text with a word of the other text, or with another letter or digit."""
    pieces, others = _PIECES.findall(text), _PIECES.findall(other)
    places = [at for at, piece in enumerate(pieces) if piece[0].isalnum()]
    if not places:
        return text
    at = rng.choice(places)
    other_piece = others[at] if at < len(others) else pieces[at]
    if len(places) > 1 and other_piece != pieces[at] and other_piece.isalpha() == pieces[at].isalpha():
        pieces[at] = other_piece
    else:
        pieces[at] = _vary_character(pieces[at], rng)
    return "".join(pieces)


def _fresh_candidate(domain: Domain, attempt: int, rng: random.Random) -> Any:
    kind, known = domain.kind, domain.known
    if not known or (domain.closed and kind is not Kind.INTEGER):
        return None
    reach = rng.randint(1, 5 * (attempt + 1) * (attempt + 1) + len(known))  # wider with each attempt
    if kind in (Kind.INTEGER, Kind.REAL):
        return domain.ends[1] + reach
    if kind is Kind.UUID:
        return uuid.UUID(int=rng.getrandbits(128), version=4)
    if kind is Kind.MOMENT:
        return rng.choice(known) + dt.timedelta(days=reach)
    if kind is Kind.ISO_DATE and attempt < _TRIES // 2:
        return _date_of_parts(rng.choice(known), rng.choice(known), rng.choice(known))
    text = str(rng.choice(known))
    for _ in range(1 + attempt):
        text = domain.vary(text, rng.choice(known), rng)
    return text if domain.takes(text) else None


def _vary_character(piece: str, rng: random.Random) -> str:
    at = rng.randrange(len(piece))
    classes: Sequence[tuple[Callable[[str], bool], str]] = (
        (str.isdigit, string.digits),
        (str.isupper, string.ascii_uppercase),
        (str.isalpha, string.ascii_lowercase),
    )
    letters = next((letters for is_one, letters in classes if is_one(piece[at])), piece[at])
    return piece[:at] + rng.choice(letters) + piece[at + 1 :]


def _date_of_parts(one: str, other: str, third: str) -> str:
    parts = [ISO_DATE.match(text) for text in (one, other, third)]
    year, month, day = (part or parts[0] for part in parts)
    if year is None or month is None or day is None:
        return one
    return f"{year[1]}-{month[2]}-{min(int(day[3]), 28):02}{year[4]}"


def _frame(texts: Sequence[str]) -> tuple[int, int]:
    if len(texts) < 2:
        return 0, 0
    start = _shared(texts)
    return start, _shared([text[start:][::-1] for text in texts])


def _shared(texts: Sequence[str]) -> int:
    """The length of the common prefix."""
    first, last = min(texts), max(texts)
    return next((at for at, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]), len(first))


def _same(other: Any, one: Any) -> Any:
    return other if type(other) is type(one) else one


def _as_real(value: Any) -> Any:
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _clamp(value: Any, bounds: tuple[Any, Any]) -> Any:
    return min(max(value, bounds[0]), bounds[1])


def _decimals(value: Any) -> int:
    if isinstance(value, Decimal):
        exponent = value.as_tuple().exponent
        return -exponent if isinstance(exponent, int) and exponent < 0 else 0
    if isinstance(value, float):
        return min(len(repr(value).partition(".")[2]), 6) if "e" not in repr(value) else 6
    return 0
