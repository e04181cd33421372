"""The scale that a judge is told, and how its numbers come to lie in [0, 1]."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from rlfactory_core.errors import UsageError

_MOST_CHOICES = 101  # a scale with so many whole numbers is told to the server as a choice, which every server knows


@dataclass(frozen=True, slots=True)
class Scale:
    """From ``low``, the worst, to ``high``, the best.

    Raises:
        UsageError: the bounds are not finite, or ``low`` is not below ``high``.
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        span = self.high - self.low  # infinite too where both are huge
        if not (math.isfinite(self.low) and math.isfinite(self.high) and math.isfinite(span) and span > 0):
            raise UsageError(
                f"A judge's scale goes from low={self.low} to high={self.high}: expected two finite numbers, low below "
                "high, such as low: 0 and high: 10."
            )

    @property
    def whole(self) -> bool:
        """Whether whole numbers are asked for; a scale such as 0 to 1 has too few of them."""
        return self.low == int(self.low) and self.high == int(self.high) and self.high - self.low >= 2

    @property
    def words(self) -> str:
        """Such as ``a whole number from 0 (worst) to 10 (best)``."""
        kind = "a whole number" if self.whole else "a number"
        return f"{kind} from {plain(self.low)} (worst) to {plain(self.high)} (best)"

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of one number on the scale."""
        if self.whole and self.high - self.low < _MOST_CHOICES:
            return {"type": "integer", "enum": list(range(int(self.low), int(self.high) + 1))}
        kind = "integer" if self.whole else "number"
        return {"type": kind, "minimum": json_number(self.low), "maximum": json_number(self.high)}

    def example(self, share: float) -> float:
        """A number of the scale for an example, ``share`` of the way up."""
        value = self.low + share * (self.high - self.low)
        return round(value) if self.whole else float(f"{value:.3g}")

    def fraction(self, value: float) -> float:
        """Where a finite value lies on the scale: 0.0 for ``low`` or less, 1.0 for ``high`` or more."""
        return min(1.0, max(0.0, (value - self.low) / (self.high - self.low)))


def plain(number: float) -> str:
    """Without a point where it needs none."""
    return str(json_number(number))


def json_number(number: float) -> int | float:
    """An int where the number is whole, because ``7.0`` in a prompt invites ``7.0`` in the answer."""
    return int(number) if float(number).is_integer() else number
