"""Splits a final answer into its value and its unit, because math-verify drops units: to it 5 cm is 5 km."""

from __future__ import annotations

import re
from dataclasses import dataclass

_UNITS = {
    "cm": "centimeter centimetre", "mm": "millimeter millimetre", "km": "kilometer kilometre", "m": "meter metre",
    "in": "inch inche", "ft": "foot feet", "yd": "yard", "mi": "mile", "kg": "kilogram", "g": "gram gm",
    "mg": "milligram", "lb": "pound", "oz": "ounce", "s": "second sec", "min": "minute", "h": "hour hr", "d": "day",
    "l": "liter litre", "ml": "milliliter millilitre", "deg": "degree", "usd": "dollar", "eur": "euro",
    "cent": "penny pennies", "mph": "miles per hour",
}  # fmt: skip
_NAMES = {name: unit for unit, names in _UNITS.items() for name in (unit, *names.split())}
_CURRENCIES = {"$": "usd", "€": "eur"}
_SPACES = re.compile(r"(?<!\\)\\[,;:!\s]|~|\\q?quad(?![a-zA-Z])")
_BRACKETS = re.compile(r"(?:\\left|\\right|\\[bB]igg?[lr]?)\s*(?=[()\[\]{}\\|.])")
_DEGREE = re.compile(r"\^\s*(?:\{\s*\\circ\s*\}|\\circ)|\\degree(?![a-zA-Z])|°")
_WORDS = r"\\(?:text|mathrm|mbox|textbf|mathbf|operatorname)\s*\{"
_POWER = r"\s*(?P<power>(?:\^\s*\{?\s*-?\d\s*\}?)?)"
WRAPPED = re.compile(_WORDS + r"([^{}]*)\}")
_WRAPPED_UNIT = re.compile(r"(?P<value>.*\S)\s*" + _WORDS + r"(?P<unit>[^{}]*?)\.?\}" + _POWER, re.DOTALL)
_MEASURE = re.compile(  # a number or a formula, and the unit behind it
    r"(?P<value>.*(?:[\d})]|\\pi))\s*(?P<unit>[a-zA-Z\u00b5]+(?:\s*/\s*[a-zA-Z]+)?(?:\s+(?:per\s+)?[a-zA-Z]+)?)\.?"
    + _POWER,
    re.DOTALL,
)
_NO_UNIT = re.compile(r"and|sqrt|frac|sin|cos|tan|log|exp|mod")
_PRODUCT = re.compile(r"(?<=\d)[a-z]{2,3}(?![a-zA-Z{])")
_NAMED = re.compile(r"(?<![a-zA-Z\\])(?:pi|infty)(?![a-zA-Z])")
_EXPONENT = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)[eE]([-+]?\d{1,3})(?!\w)")
_REPEATING = re.compile(r"(?<![\d.])(\d*)\.(\d*)\\overline\s*\{(\d{1,40})\}")


@dataclass(frozen=True, slots=True)
class Measure:
    """A final answer, as math-verify reads it."""

    value: str  # without the unit, in TeX
    unit: str  # in one spelling; empty if there is none


def measured(text: str) -> Measure:
    """The value and the unit of an answer."""
    text = _SPACES.sub(" ", _BRACKETS.sub("", text)).strip().strip("$").strip().rstrip(".")
    text = re.sub(r"(?<=\d)\s(?=\d{3}(?!\d))|(?<=\d)\{,\}(?=\d{3})", "", text)
    text = _PRODUCT.sub(_factors, _NAMED.sub(r"\\\g<0>", text))
    text = _REPEATING.sub(_as_fraction, _EXPONENT.sub(r"\1 \\times 10^{\2}", text))
    text, degrees = _DEGREE.subn("", text)
    if degrees:
        return Measure(text.strip(), "deg")
    if percent := re.fullmatch(r"(.*?)\s*\\?%", text, re.DOTALL):
        return Measure(percent[1], "%")
    if money := re.fullmatch(r"\\?([$€£¥])\s*(.*)", text, re.DOTALL):
        return Measure(money[2], _CURRENCIES.get(money[1], money[1]))
    found = _WRAPPED_UNIT.fullmatch(text) or _MEASURE.fullmatch(text)
    if found and (found.re is _WRAPPED_UNIT or _is_unit(found)):
        return Measure(found["value"].strip(), _unit(found["unit"]) + re.sub(r"[\s{}]", "", found["power"]))
    return Measure(text, "")


def _is_unit(found: re.Match[str]) -> bool:
    """Whether the letters behind a number are a unit, and not variables: 5 km, 5km and 5 apples, but not 5ab."""
    words = found["unit"].strip()
    is_apart = found.string[found.start("unit") - 1].isspace()
    is_known = len(words) > 1 and _unit(words) in _UNITS
    return is_known or (is_apart and len(words) > 2 and not _NO_UNIT.fullmatch(words))


def _unit(words: str) -> str:
    words = " ".join(words.lower().split())
    first, _, rest = words.partition(" ")
    if rest and first in ("square", "sq", "cubic"):
        return _unit(rest) + ("^3" if first == "cubic" else "^2")
    singular = words.removesuffix("s")
    return _NAMES.get(words) or _NAMES.get(singular) or _NAMES.get(words.removesuffix("es")) or singular


def _factors(found: re.Match[str]) -> str:
    """2*x*y for 2xy, of which math-verify would read a unit."""
    return found[0] if _unit(found[0]) in _UNITS else "*" + "*".join(found[0])


def _as_fraction(found: re.Match[str]) -> str:
    """The fraction of a repeating decimal."""
    whole, before, repeated = found.groups()
    under = 10 ** len(before) * (10 ** len(repeated) - 1)
    over = int((whole + before + repeated) or "0") - int((whole + before) or "0")
    return rf"\frac{{{over}}}{{{under}}}"
