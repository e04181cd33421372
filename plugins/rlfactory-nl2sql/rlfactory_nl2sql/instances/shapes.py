"""The shape of a column's texts, such as ``1/31/2018``, ``$1,234.50``, ``CUS-00042`` or ``ann@web.de``.

A text is a row of pieces: digits, letters (with points, as in ``web.de``), and single signs. Its form has 0 for digits
and a for letters, as in ``$0,0.0``. A column has a shape if few forms come again and again, and signs or digits are in
nearly all texts. Then a new text has a given form, and each of its pieces is like those at its place: letters are given
ones, and so are numbers if the same few come again and again; other numbers have a given width and range. Where all
texts hold a date, a new one holds a date that exists, near the given years. Letters that check numbers do so.
"""

from __future__ import annotations

import datetime as dt
import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, permutations

_PIECES = re.compile(r"\d+|[^\W\d_]+(?:[._][^\W\d_]+)*|[\W_]")
_PLAIN = re.compile(r"[^\W\d_]|[ .'&-]")  # characters of names and sentences
_CODE = re.compile(r"[A-Z]{2,5}")
_WILDCARDS = re.compile(r"\[[^]]*\]|[%_*?]")
_SEPARATORS = ";,|/"
_LIST = re.compile(r"([;,|/] ?a)(?:\1)+")
_WHOLE = slice(None)
LONGEST = 200  # characters of a text with a shape, and of a literal
_MOST_CHUNKS = 12  # of a literal
_SHAPED = 0.9  # the share of texts that have a sign or digit
_LISTED = 0.2  # the share of texts that have a separator
_FEW = 3  # so many texts to a form, and so many items of lists to a different one
_DATES = 5  # so many texts show that digits are dates, fewer if they are as long as this:
_WHOLE_DATE = 8
_MOST_RESTS = 40  # that are tried for check letters
_FREE = 3  # digits of a number that may have any value
_CHANGED = 0.7  # the share of new texts with another number rather than with a piece of another text
_POSSIBLE = range(1500, 2300)  # years
_YEARS = 2  # so much before and after the given ones

_COMPACT = {
    8: [
        (slice(0, 4), slice(4, 6), slice(6, 8)),
        *((slice(4, 8), *two) for two in permutations((slice(0, 2), slice(2, 4)))),
    ],
    6: [(slice(0, 4), slice(4, 6)), (slice(2, 6), slice(0, 2)), (slice(0, 2), slice(2, 4), slice(4, 6))],
}
"""By width of a number: where year, month and day are."""

Date = tuple[tuple[int, slice], ...]
"""The places of a year, a month and perhaps a day: a piece, and the characters in it."""


@dataclass(frozen=True, slots=True)
class Place:
    """What the texts of a form have at one place."""

    seen: frozenset[str]
    widths: frozenset[int]
    ends: tuple[int, int]  # the least and the greatest number; 0 for letters and signs
    open: bool  # whether there are other numbers than the given ones

    def fits(self, piece: str) -> bool:
        if piece in self.seen:
            return True
        if not self.open or not piece.isdecimal() or not self.has_style(piece):
            return False
        if len(self.widths) == 1 and len(piece) >= _FREE:
            return len(str(int(piece))) <= len(str(self.ends[1]))
        return self.ends[0] <= int(piece) <= self.ends[1]

    def has_style(self, piece: str) -> bool:
        """Whether the width is one of the given ones; of different widths, none has leading zeros."""
        padded = piece[:1] == "0" and len(piece) > 1
        return len(piece) in self.widths and (len(self.widths) == 1 or not padded)


@dataclass(frozen=True, slots=True)
class Check:
    """A letter that follows from the rest of a division of a number."""

    letter: int  # its place
    number: int  # likewise
    divisor: int
    letters: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class Form:
    """The texts of one form."""

    places: tuple[Place, ...]
    dates: tuple[Date, ...]
    years: range  # of these
    checks: tuple[Check, ...]

    def mended(self, pieces: Sequence[str]) -> list[str]:
        """The pieces with the letters that check the numbers."""
        made = list(pieces)
        for check in self.checks:
            made[check.letter] = check.letters.get(int(pieces[check.number]) % check.divisor, made[check.letter])
        return made

    def fits(self, pieces: Sequence[str]) -> bool:
        dated = {at for date in self.dates for at, _ in date}
        each = enumerate(zip(self.places, pieces, strict=True))
        return (
            all(place.has_style(piece) if at in dated else place.fits(piece) for at, (place, piece) in each)
            and all((day := _day(date, pieces)) and day.year in self.years for date in self.dates)
            and self.mended(pieces) == list(pieces)
        )


@dataclass(frozen=True, slots=True)
class Shape:
    """The forms of a column's texts."""

    forms: Mapping[str, Form]

    def fits(self, text: str) -> bool:
        """Whether a new text could be one of the column."""
        pieces = _PIECES.findall(text)
        form = self.forms.get(form_of(pieces))
        return form is not None and form.fits(pieces)

    def another(self, text: str, other: str, reach: int, rng: random.Random) -> str:
        """The text with one piece of the other, or with one number changed by up to ``reach``; it may not fit."""
        pieces, others = _PIECES.findall(text), _PIECES.findall(other)
        at = rng.choice([at for at, piece in enumerate(pieces) if piece[0].isalnum()] or [0])
        if pieces and pieces[at].isdecimal() and rng.random() < _CHANGED:
            pieces[at] = str(abs(int(pieces[at]) + rng.randint(-reach, reach))).zfill(len(pieces[at]))
        elif form_of(pieces) == form_of(others) and pieces:
            pieces[at] = others[at]
        return "".join(pieces)

    def near(self, literal: str | float, text: str) -> Iterator[str]:
        """Texts like ``text`` that have the literal, a part of it, or what is close to it, in the place of a piece.

        They may not fit.
        """
        written = literal if isinstance(literal, str) else f"{abs(literal):.15g}"
        chunks = [chunk for chunk in _WILDCARDS.split(written) if chunk]
        parts = [piece for chunk in chunks for piece in _PIECES.findall(chunk) if piece[0].isalnum()]
        every = dict.fromkeys([written, *chunks, *parts][:_MOST_CHUNKS])
        for made in chain(_with_number(text, literal), *(_with_chunk(text, chunk) for chunk in every)):
            pieces = _PIECES.findall(made)
            form = self.forms.get(form_of(pieces))
            yield "".join(form.mended(pieces)) if form is not None and form.checks else made


def shape_of(texts: Sequence[str]) -> Shape | None:
    """The shape of different texts; None if they have none, such as names and sentences."""
    by_form: dict[str, list[list[str]]] = {}
    if any(len(text) > LONGEST for text in texts):
        return None
    for text in texts:
        pieces = _PIECES.findall(text)
        by_form.setdefault(form_of(pieces), []).append(pieces)
    if len(texts) > 1 and all(_CODE.fullmatch(text) for text in texts):
        return Shape({form: _form(those) for form, those in by_form.items()})
    kinds = {_LIST.sub(r"\1", form) for form in by_form}  # lists are alike, whatever their length
    if len(texts) < _FEW or len(kinds) > max(len(texts) // _FEW, 1):
        return None
    if all(text.isdecimal() for text in texts):
        found = {form: _form(those) for form, those in by_form.items()}
        enough = _FEW if all(len(text) == _WHOLE_DATE for text in texts) else _DATES
        dates = len(texts) >= enough and all(one.dates for one in found.values())
        widths = {*map(len, texts)}
        codes = len(widths) == 1 and widths != {1} and any(text[0] == "0" for text in texts)  # such as ZIP codes
        return Shape(found) if dates or codes else None
    if sum(bool(_PLAIN.sub("", text)) for text in texts) < _SHAPED * len(texts) and not _are_lists(texts):
        return None
    return Shape({form: _form(those) for form, those in by_form.items()})


def form_of(pieces: Sequence[str]) -> str:
    return "".join(["0" if piece.isdecimal() else "a" if piece[0].isalpha() else piece for piece in pieces])


def _are_lists(texts: Sequence[str]) -> bool:
    """Whether a separator is in many texts, and what it separates comes again."""
    for separator in _SEPARATORS:
        items = [item.strip() for text in texts for item in text.split(separator)]
        if sum(separator in text for text in texts) >= _LISTED * len(texts) and len(items) >= _FEW * len({*items}):
            return True
    return False


def _form(texts: Sequence[Sequence[str]]) -> Form:
    columns = list(zip(*texts, strict=True))
    found = [(date, [_day(date, pieces) for pieces in texts]) for date in _layouts(columns)]
    valid = [(date, days) for date, days in found if all(day and day.year in _POSSIBLE for day in days)]
    years = [day.year for _, days in valid for day in days if day]
    numbers = [at for at, column in enumerate(columns) if column[0].isdecimal()]
    return Form(
        tuple(_place(columns, at) for at in range(len(columns))),
        tuple(date for date, _ in valid),
        range(min(years) - _YEARS, max(years) + _YEARS + 1) if years else range(0),
        tuple(check for at in _letters(columns) for number in numbers for check in _checks(columns, at, number)),
    )


def _letters(columns: Sequence[Sequence[str]]) -> list[int]:
    return [at for at, column in enumerate(columns) if len({*column}) > _FEW and all(map(str.isalpha, column))]


def _checks(columns: Sequence[Sequence[str]], at: int, number: int) -> Iterator[Check]:
    for divisor in range(_FEW, min(_MOST_RESTS, len(columns[at]) // 2) + 1):
        found: dict[int, str] = {}
        rests = ((int(one) % divisor, letter) for one, letter in zip(columns[number], columns[at], strict=True))
        if all(found.setdefault(rest, letter) == letter for rest, letter in rests):
            yield Check(at, number, divisor, found)
            return


def _place(columns: Sequence[Sequence[str]], at: int) -> Place:
    column = columns[at]
    seen, widths = frozenset(column), frozenset(map(len, column))
    numbers = [int(piece) for piece in column if piece.isdecimal()]
    pointed = at > 1 and columns[at - 1][0] in {".", ","} and columns[at - 2][0].isdecimal()
    closed = len(column) >= _FEW * len(seen) or (pointed and len(widths) > 1)  # 1.5 and 1.50 are not both given
    return Place(seen, widths, (min(numbers, default=0), max(numbers, default=0)), bool(numbers) and not closed)


def _layouts(columns: Sequence[Sequence[str]]) -> Iterator[Date]:
    """Where a date may be: three neighbouring pieces, or parts of one."""
    widths = [{len(piece) for piece in column} for column in columns]
    words = [at for at, column in enumerate(columns) if column[0].isalnum()]
    for at in words:
        parts = _COMPACT.get(max(widths[at]), ()) if len(widths[at]) == 1 and columns[at][0].isdecimal() else ()
        yield from (tuple((at, part) for part in date) for date in parts)
    for one, other, third in zip(words, words[1:], words[2:], strict=False):
        for year, month, day in ((one, other, third), (third, one, other), (third, other, one)):
            if widths[year] in ({4}, {2}):
                yield (year, _WHOLE), (month, _WHOLE), (day, _WHOLE)


def _day(date: Date, pieces: Sequence[str]) -> dt.date | None:
    """The date in the pieces of a text, or the first of its month; a year of two digits is one of 2000 to 2099."""
    with suppress(ValueError):  # no number, or no such date
        year, month, *day = (int(pieces[at][part]) for at, part in date)
        at, part = date[0]
        return dt.date(year if len(pieces[at][part]) > 2 else 2000 + year, month, *(day or [1]))
    return None


def _with_chunk(text: str, chunk: str) -> Iterator[str]:
    """The text with a chunk in the place of like pieces, or of like characters."""
    pieces, parts = _PIECES.findall(text), _PIECES.findall(chunk)
    kinds, wanted = form_of(pieces), form_of(parts)
    for at in range(len(kinds) - len(wanted) + 1):
        if kinds[at : at + len(wanted)] == wanted:
            yield "".join([*pieces[:at], *parts, *pieces[at + len(parts) :]])
            filled = [part.zfill(len(old)) for part, old in zip(parts, pieces[at:], strict=False)]
            yield "".join([*pieces[:at], *filled, *pieces[at + len(parts) :]])
    kinds, wanted = form_of(text), form_of(chunk)  # of single characters
    for at in range(len(kinds) - len(wanted) + 1):
        if kinds[at : at + len(wanted)] == wanted:
            yield text[:at] + chunk + text[at + len(chunk) :]


def _with_number(text: str, literal: str | float) -> Iterator[str]:
    """The text with the digits of a number, or of one close to it, in the places of its digits."""
    try:
        number = abs(float(literal))
    except ValueError:
        return
    places = [at for at, sign in enumerate(text) if sign.isdecimal()]
    for decimals in range(4):
        if round(number, decimals) != number or not number < 10 ** len(places):
            continue
        for more in (0, 1, -1):
            digits = f"{abs(number + more * 10**-decimals):.{decimals}f}".replace(".", "").zfill(len(places))
            if len(digits) == len(places):
                signs = list(text)
                for at, digit in zip(places, digits, strict=True):
                    signs[at] = digit
                yield "".join(signs)


def forms_first(texts: Sequence[str]) -> list[str]:
    """The texts so that each form comes once before one comes again."""
    counts, order = Counter[str](), list[tuple[int, int]]()
    for at, text in enumerate(texts):
        form = form_of(_PIECES.findall(text))
        order.append((counts[form], at))
        counts[form] += 1
    return [texts[at] for _, at in sorted(order)]
