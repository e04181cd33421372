"""Compares two final answers: first as texts, then as mathematics, by the library math-verify.

math-verify drops units and compares some brackets and number bases loosely; these are compared here. This module is
loaded by the worker process; there math-verify's own time limits are off, because the process has one.
"""

from __future__ import annotations

import logging
import re
from functools import lru_cache
from typing import Any

from rlfactory_core.rewards.answers import exact_match
from rlfactory_core.rewards.maths.measures import WRAPPED, measured

MAX_CHARACTERS = 2_000  # of a final answer; a longer one equals only its own text

_PLAIN = re.compile(r"[\w\s.,:%$'-]*")  # no brackets, operators or TeX: `exact_match` reads it well
_BASE = re.compile(r"(?<=\d)_\{?(\d+)\}?\s*$")
_LISTED = re.compile(r"(\\\{|[(\[]).*,.*(\\\}|[)\]])", re.DOTALL)


def same(gold: str, answer: str) -> bool:
    """Whether an answer is the gold one: as plain texts, or with equal values and no other unit."""
    if not answer.strip():
        return False
    if same_text(gold, answer):
        return True
    if max(len(gold), len(answer)) > MAX_CHARACTERS:
        return False
    one, other = measured(gold), measured(answer)
    if one.unit and other.unit and one.unit != other.unit:
        return False
    left, right = one.value, other.value
    if one.unit == "%" and not other.unit and _equal(left, right):
        return True  # what percent of … is 75
    if "%" in (one.unit, other.unit) and one.unit != other.unit:
        left, right = (rf"\frac{{{each.value}}}{{100}}" if each.unit == "%" else each.value for each in (one, other))
    return _same_form(left, right) and _equal(left, right)


def same_text(gold: str, answer: str) -> bool:
    """Whether two answers are the same text, or plain texts that `exact_match` accepts; it needs no process."""
    gold, answer = gold.strip(), answer.strip()
    plain, plain_answer = _plain(gold), _plain(answer)
    return bool(answer) and (gold == answer or bool(plain and plain_answer and exact_match(plain_answer, [plain])))


def is_parsable(gold: str) -> bool:
    """Whether a gold answer can be compared: as a plain text, or as mathematics."""
    return _plain(gold) is not None or any(not isinstance(each, str) for each in _parsed(measured(gold).value))


def _plain(text: str) -> str | None:
    """The text without TeX around words; None if there is other TeX, brackets or operators."""
    plain = WRAPPED.sub(r"\1", text)
    return plain if _PLAIN.fullmatch(plain) else None


def _same_form(left: str, right: str) -> bool:
    """What math-verify does not distinguish: the base of a number, and the brackets of a list if both have some."""
    bases = [found and found[1] for found in (_BASE.search(left), _BASE.search(right))]
    brackets = [found and found.groups() for found in map(_LISTED.fullmatch, (left.strip(), right.strip()))]
    return bases[0] == bases[1] and (None in brackets or brackets[0] == brackets[1])


def _equal(gold: str, answer: str) -> bool:
    from math_verify import verify

    left, right = _parsed(gold), _parsed(answer)
    return bool(left and right and verify(left, right, timeout_seconds=None))


@lru_cache(maxsize=1024)
def _parsed(text: str) -> Any:
    from math_verify import parse

    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that its own time limit is off
    return parse(f"\\boxed{{{text}}}", parsing_timeout=None)
