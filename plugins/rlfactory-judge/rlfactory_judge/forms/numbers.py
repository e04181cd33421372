"""Numbers as a judge writes them in prose: ``7``, ``7.5``, ``7/10``, ``7 out of 10``, ``70%``."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from rlfactory_judge.forms.scale import Scale

# Neither pattern needs to step back over digits, so ten thousand of them take no time.
_NUMBER = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]{1,4})?")
_OUT_OF = re.compile(r"\s{0,8}(?:/|out\s{1,8}of)\s{0,8}", re.IGNORECASE)
_UNCLEAR = re.compile(
    r"[0-9A-Za-z_]|[.,][0-9]|\s{0,8}(?:/|%|±|[-\u2013\u2014~]\s{0,8}[0-9]|(?:to|or)\s{1,8}[0-9])", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Stated:
    """A number with the place where it ends; None where it is no clear one (``7-8``, ``7th``, ``1e999``)."""

    value: float | None
    end: int


def stated(text: str, start: int, scale: Scale) -> Stated | None:
    """The number that begins at ``start``, on the judge's scale; None where none does.

    A denominator that is the top of the scale says nothing new. Another one states another scale from 0 on, and the
    number is taken over in proportion; that is clear only where our scale begins with 0 too.
    """
    found = _NUMBER.match(text, start)
    if found is None:
        return None
    value, end = float(found[0]), found.end()
    denominator: float | None = None
    if text.startswith("%", end):
        denominator, end = 100.0, end + 1
    elif (out_of := _OUT_OF.match(text, end)) and (below := _NUMBER.match(text, out_of.end())):
        denominator, end = float(below[0]), below.end()
    if not math.isfinite(value) or _UNCLEAR.match(text, end):
        return Stated(None, end)
    if denominator is None or denominator == scale.high:
        return Stated(value, end)
    if scale.low != 0 or not (math.isfinite(denominator) and denominator > 0):
        return Stated(None, end)
    return Stated(min(1.0, max(0.0, value / denominator)) * scale.high, end)


def only_number(text: str, scale: Scale) -> float | None:
    """The number that is all of a text, but for white space and marks of emphasis; None where it is not."""
    bare = text.strip(" \t\r\n*_`$\"'").rstrip(".")
    number = stated(bare, 0, scale)
    return number.value if number is not None and number.end == len(bare) else None


def as_number(value: object, scale: Scale) -> float | None:
    """A JSON value as a number on the scale: a number, or a text that is one; None for anything else."""
    if isinstance(value, str):
        return only_number(value, scale) if len(value) <= 64 else None
    if isinstance(value, float) and math.isfinite(value):  # `reading` reads every JSON number as a float
        return value
    return None
