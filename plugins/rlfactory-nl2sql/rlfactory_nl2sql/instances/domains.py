"""The kind and format of a column's values, and new values like them.

New values are made from given ones: dates move by a day, a month or a year, texts get another
letter or digit, numbers change by one in the last digit. Except for keys, numbers stay in the given range.
"""

from __future__ import annotations

import datetime as dt
import random
import re
import string
import uuid
import zlib
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from typing import Any

from rlfactory_nl2sql.connection import Row
from rlfactory_nl2sql.instances.shapes import Shape, shape_of
from rlfactory_nl2sql.schema import Column

ISO_DATE = re.compile(r"(\d{4})-(\d{2})-(\d{2})(.*)", re.DOTALL)
_PIECES = re.compile(r"[^\W\d_]+|\d+|[\W_]+")
# Formats of text that queries may read in different ways, such as by strftime, SUBSTR or CAST.
_DIGITS = re.compile(r"\d+")
_FORMATS = (re.compile(r"([01]\d|2[0-3]):[0-5]\d(:[0-5]\d)?"), _DIGITS)
_FREE_TEXT = re.compile(r"char|text|clob|string", re.IGNORECASE)
_OPEN_TYPE = re.compile(f"{_FREE_TEXT.pattern}|date|time|year|num|dec|int|real|money|currency", re.IGNORECASE)
_CLOSED_TYPE = re.compile(r"enum|set\b|bool|tinyint\(1\)", re.IGNORECASE)
_LENGTH = re.compile(r"char\w*(?: varying)?\s*\((\d+)\)", re.IGNORECASE)
_DECIMALS = 6  # most digits after the point of a new number; more are noise of binary fractions
_DAYS = (-31, -1, 1, 31)  # from one date to a new one
_MOST_CHANGES = 4  # of a text
_TRIES = 20  # to make a value that is not taken
_LEARNT = 1024  # domains that are kept


class Kind(Enum):
    """Kinds of values, for which new ones are made differently."""

    NUMBER = "number"
    TEXT = "text"
    DATE = "date"  # dt.date, dt.datetime, or a text that starts with YYYY-MM-DD
    UUID = "uuid"
    OTHER = "other"  # bytes, lists, intervals, truth values; no new ones are made


@dataclass(frozen=True, slots=True)
class Domain:
    """The given values of one column."""

    kind: Kind  # of most values
    known: tuple[Any, ...]  # the distinct values without NULL, in the order of the rows
    nulls: bool
    longest: int | None  # limit of characters by the declared type; None: no limit
    closed: bool  # whether only given values are possible: flags, enumerations, unknown kinds
    allows: Callable[[Any], bool]  # whether the column's declared CHECKs hold for a value
    ends: tuple[Any, Any]  # the least and the greatest value of a column of numbers
    step: Any  # one unit of the numbers' last digit, of their type
    decimals: int  # the largest number of digits after the decimal point
    format: re.Pattern[str] | None  # that all given texts have
    shape: Shape | None  # of the given texts, or of numbers that are dates

    def accepts(self, value: Any) -> bool:
        """Whether a value is short enough, and allowed by the CHECKs."""
        short = self.longest is None or not isinstance(value, str) or len(value) <= self.longest
        return short and self.allows(value)

    def fits(self, value: Any) -> bool:
        """Whether a text has the format of the given ones."""
        if self.shape is not None:
            return value in self.known or self.shape.fits(str(value))
        return self.format is None or not isinstance(value, str) or self.format.fullmatch(value) is not None

    def may_hold(self, value: Any) -> bool:
        """Whether it accepts a value, which also has the format of the given ones."""
        return self.accepts(value) and self.fits(value)

    def invent(self, rng: random.Random, known: Sequence[Any] = (), taken: Container[Any] | None = None) -> Any:
        """A possible value, new or given, made from ``known`` ones.

        With ``taken`` (see `comparable`), for a unique column, one that is not among these, or None.
        """
        known = known or self.known
        if self.shape is not None and taken is None:
            return rng.choice(known)  # no new texts: a query may depend on more than their shape
        for attempt in range(_TRIES if known else 0):
            one, other = rng.choice(known), rng.choice(known)
            value = one
            if self.kind is Kind.UUID and taken is not None:
                value = uuid.UUID(int=rng.getrandbits(128), version=4)
            elif kind_of(one) is kind_of(other) is self.kind and not (
                self.closed and (self.kind is not Kind.NUMBER or taken is None)
            ):
                reach = 1 if taken is None else rng.randint(1, 5 * (attempt + 1) ** 2 + len(known))  # ever wider
                with suppress(ValueError, OverflowError):  # no such date
                    value = self._varied(one, other, reach, rng)
            if self.may_hold(value) and (taken is None or comparable(value) not in taken):
                return value
        return None if taken is not None else rng.choice(known)

    def _varied(self, one: Any, other: Any, reach: int, rng: random.Random) -> Any:
        if self.shape is not None:
            return type(one)(self.shape.another(str(one), str(other), reach, rng))
        if self.kind is Kind.NUMBER:
            number = one + rng.choice((-1, 1)) * reach * self.step
            number = round(number, self.decimals) if self.decimals else number
            return max(number if reach > 1 else min(number, self.ends[1]), self.ends[0])
        if self.kind is Kind.DATE:
            return _moved(one, reach * rng.choice(_DAYS))
        for _ in range(min(reach, _MOST_CHANGES) if self.kind is Kind.TEXT else 0):
            one = vary_text(one, other, rng)
        return one

    def pool(self, size: int, salt: int, rng: random.Random) -> list[Any]:
        """Values to draw from, half of them new. Columns with equal given values keep the same, so joins find rows."""
        known = sorted(self.known, key=lambda value: zlib.crc32(f"{value!r} {salt}".encode("utf-8", "replace")))
        if self.shape is not None:
            return known[:size]
        kept = known[: max(size // 2, 1)]
        values = list(distinct([*kept, *(self.invent(rng, kept) for _ in range(size - len(kept)))]))
        return values if len(values) > 2 else list(distinct([*values, *known]))[:size]


class Sample:
    """Rows of a table, as a key: the same ones, since it would take long to compare them."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = rows

    def __hash__(self) -> int:
        return id(self.rows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sample) and self.rows is other.rows


@lru_cache(_LEARNT)
def learn(column: Column, sample: Sample, place: int) -> Domain:
    """The domain of the column at this place of the rows, without its CHECKs."""
    values = [row[place] for row in sample.rows]
    known = distinct(value for value in values if value is not None)
    kinds = [kind_of(value) for value in known]
    kind = max(Kind, key=kinds.count) if kinds else Kind.OTHER
    numbers: list[Any] = [0]
    if kind is Kind.NUMBER:
        numbers = [value for value, its in zip(known, kinds, strict=True) if its is kind]
    if any(isinstance(value, float) for value in numbers):  # SQLite's NUMERIC columns give 1 for 1.00
        known = tuple(float(value) if value in numbers and type(value) is int else value for value in known)
        numbers = [float(value) for value in numbers]
    decimals = max((_decimals(value) for value in numbers if not isinstance(value, int)), default=0)
    length = _LENGTH.search(column.type)
    free_text = not column.type or _FREE_TEXT.search(column.type) is not None
    format_ = next((one for one in _FORMATS if known and all(map(one.fullmatch, map(str, known)))), None)
    return Domain(
        kind=kind,
        known=known,
        nulls=None in values,
        longest=int(length[1]) if length else None,
        closed=kind is Kind.OTHER
        or _CLOSED_TYPE.match(column.type) is not None
        or (kind is Kind.NUMBER and set(known) <= {0, 1})
        or (kind is Kind.TEXT and not free_text),
        allows=lambda _: True,
        ends=(min(numbers), max(numbers)),
        step=type(numbers[0])(Decimal(1).scaleb(-decimals)),
        decimals=decimals,
        format=format_ if kind is Kind.TEXT else None,
        shape=_shape(known, kind, column.type) if format_ in {None, _DIGITS} else None,
    )


def _shape(known: Sequence[Any], kind: Kind, type_: str) -> Shape | None:
    """The shape of texts, or of whole numbers that are dates, such as 20180131."""
    if kind is Kind.NUMBER and all(type(value) is int for value in known):
        return shape_of([str(value) for value in known])
    if kind is Kind.TEXT and (not type_ or _OPEN_TYPE.search(type_)) and not _CLOSED_TYPE.match(type_):
        return shape_of([value for value in known if isinstance(value, str)])
    return None


def kind_of(value: Any) -> Kind:
    """The kind of one value."""
    if isinstance(value, str):
        return Kind.DATE if ISO_DATE.match(value) else Kind.TEXT
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return Kind.NUMBER
    if isinstance(value, dt.date):
        return Kind.DATE
    return Kind.UUID if isinstance(value, uuid.UUID) else Kind.OTHER


def distinct(values: Iterable[Any]) -> tuple[Any, ...]:
    """Each value once, in order. Values are compared by type and text, so 1 and 1.0 are two."""
    return tuple({(type(value), repr(value)): value for value in values}.values())


def comparable(value: Any) -> Any:
    """A form that is equal for values that some database treats as equal in a unique column, such as 'a' and 'A '."""
    if isinstance(value, str):
        return value.rstrip().casefold()
    return value if isinstance(value, int | float | Decimal | dt.date | uuid.UUID) else repr(value)


def vary_text(text: str, other: str, rng: random.Random) -> str:
    """The text with another letter or digit in a word where it differs from the other text."""
    pieces, others = _PIECES.findall(text), _PIECES.findall(other)
    words = [at for at, piece in enumerate(pieces) if piece[0].isalnum()]
    places = [at for at in words if at >= len(others) or others[at] != pieces[at]] or words[-1:]
    if not places:
        return text
    place = rng.choice(places)
    piece = pieces[place]
    at = rng.randrange(len(piece))
    old = piece[at]
    letters = string.digits if old.isdigit() else string.ascii_uppercase if old.isupper() else string.ascii_lowercase
    pieces[place] = piece[:at] + rng.choice(letters) + piece[at + 1 :]
    return "".join(pieces)


def _moved(date: Any, days: int) -> Any:
    """A later date. Raises ``ValueError`` or ``OverflowError`` if there is none."""
    if isinstance(date, dt.date):
        return date + dt.timedelta(days=days)
    return (dt.date.fromisoformat(date[:10]) + dt.timedelta(days=days)).isoformat() + date[10:]


def _decimals(number: Any) -> int:
    """The number of digits after the decimal point, at most a few."""
    exponent = Decimal(repr(number) if isinstance(number, float) else number).as_tuple().exponent
    return min(max(-exponent, 0), _DECIMALS) if isinstance(exponent, int) else 0
