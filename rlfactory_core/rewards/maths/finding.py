"""Finds the final answer in the texts that models and data sets write: ``\\boxed{}``, ``<answer>`` or ``####``."""

from __future__ import annotations

import re

_MARK = re.compile(r"\\(?:boxed|fbox|framebox)\s*(?=\{)|<answer>|####")
_SPECIAL = re.compile(r"\\.|[{}]", re.DOTALL)


def final_answer(text: str) -> str | None:
    """What the last complete mark of a text holds, stripped; None if there is none.

    The content of ``\\boxed{}`` up to its own closing brace, of ``<answer>`` up to ``</answer>``, and the rest of the
    line after ``####``. A mark within another is the later one, so ``<answer>\\boxed{2}</answer>`` holds 2.
    """
    closing = _closing_braces(text)
    end_of_answers = text.rfind("</answer>")
    for found in reversed(list(_MARK.finditer(text))):
        start = found.end()
        if found[0] == "####":
            held: str | None = text[start:].partition("\n")[0].partition("</answer>")[0]
        elif found[0] == "<answer>":
            held = text[start:].partition("</answer>")[0] if start <= end_of_answers else None
        else:
            held = text[start + 1 : closing[start]] if start in closing else None
        if held is not None:
            return held.strip()
    return None


def _closing_braces(text: str) -> dict[int, int]:
    """The place of each brace's closing one; in one pass, because a policy may open many."""
    opened: list[int] = []
    closing: dict[int, int] = {}
    for found in _SPECIAL.finditer(text):
        if found[0] == "{":
            opened.append(found.start())
        elif found[0] == "}" and opened:
            closing[opened.pop()] = found.start()
    return closing
