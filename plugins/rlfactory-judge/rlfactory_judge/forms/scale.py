"""The judge's scale, its mapping to [0, 1], and numbers as a judge writes them."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

_MOST_CHOICES = 101  # up to so many whole numbers are given to the server as a choice, which every server supports
# Neither pattern backtracks over digits, so long numbers are fast.
_NUMBER = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]{1,4})?")
_OUT_OF = re.compile(r"\s{0,8}(?:/|out\s{1,8}of)\s{0,8}", re.IGNORECASE)
_UNCLEAR = re.compile(
    r"[0-9A-Za-z_]|[.,][0-9]|\s{0,8}(?:/|%|±|[-\u2013\u2014~]\s{0,8}[0-9]|(?:to|or)\s{1,8}[0-9])", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Scale:
    """From ``low``, the worst, to ``high``, the best; the options have checked that they are finite, and low less."""

    low: float
    high: float

    @property
    def whole(self) -> bool:
        """Whether the judge is asked for whole numbers. A scale such as 0 to 1 has too few of them."""
        return self.low == int(self.low) and self.high == int(self.high) and self.high - self.low >= 2

    @property
    def words(self) -> str:
        """Such as ``a whole number from 0 (worst) to 10 (best)``."""
        kind = "a whole number" if self.whole else "a number"
        return f"{kind} from {json_number(self.low)} (worst) to {json_number(self.high)} (best)"

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of one number on the scale."""
        if self.whole and self.high - self.low < _MOST_CHOICES:
            return {"type": "integer", "enum": list(range(int(self.low), int(self.high) + 1))}
        kind = "integer" if self.whole else "number"
        return {"type": kind, "minimum": json_number(self.low), "maximum": json_number(self.high)}

    def example(self, share: float) -> float:
        """A number for an example, ``share`` of the way from ``low`` to ``high``."""
        value = self.low + share * (self.high - self.low)
        return round(value) if self.whole else float(f"{value:.3g}")

    def fraction(self, value: float) -> float:
        """The position of a finite value on the scale: 0.0 for ``low`` or less, 1.0 for ``high`` or more."""
        return min(1.0, max(0.0, (value - self.low) / (self.high - self.low)))


def json_number(number: float) -> int | float:
    """An int where the number is whole, because ``7.0`` in a prompt invites ``7.0`` in the answer."""
    return int(number) if float(number).is_integer() else number


def stated(text: str, start: int, scale: Scale) -> tuple[float | None, int] | None:
    """The number that begins at ``start``, on the judge's scale, and its end; None if there is none.

    The number is None if it is ambiguous (``7-8``, ``7th``, ``1e999``). A denominator equal to ``high`` changes
    nothing. Another one means a scale from 0 to the denominator, and the number is converted in proportion. This is
    clear only if our scale begins with 0, too.
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
        return None, end
    if denominator is None or denominator == scale.high:
        return value, end
    if scale.low != 0 or not (math.isfinite(denominator) and denominator > 0):
        return None, end
    return min(1.0, max(0.0, value / denominator)) * scale.high, end


def only_number(text: str, scale: Scale) -> float | None:
    """The number if the text is one, apart from white space and marks of emphasis; otherwise None."""
    bare = text.strip(" \t\r\n*_`$\"'").rstrip(".")
    value, end = stated(bare, 0, scale) or (None, 0)
    return value if end == len(bare) else None


def as_number(value: object, scale: Scale) -> float | None:
    """A JSON value as a number on the scale: a number, or a text that is one; None for anything else."""
    if isinstance(value, str):
        return only_number(value, scale) if len(value) <= 64 else None
    return value if isinstance(value, float) and math.isfinite(value) else None  # `reading` reads numbers as floats
