"""Writes a text in one layout, so that ``5km`` and ``5 km`` or ``1,2,3`` and ``1, 2, 3`` become the same.

Only white space and notations change that carry no meaning of their own. Numbers keep their value: ``1,234`` stays one
number and ``1, 234`` two.
"""

from __future__ import annotations

import re

_SUPERSCRIPT = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ", "0123456789+-n", strict=True))
_PLAIN = {ord(sub): sign for sub, sign in zip("₀₁₂₃₄₅₆₇₈₉₊₋", "0123456789+-", strict=True)}
_PLAIN |= dict.fromkeys((0xAD, 0x200B, 0x200E, 0x200F, 0x2060, 0xFEFF), "")  # signs that nobody sees
_LETTER = r"[^\W\d_]"
_ITEM = r"[-+]?\d+(?:[./]\d+)?"
_LIST = re.compile(rf"(?<![\w.,]){_ITEM}(?:,{_ITEM})+")
_THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?")
_EUROPEAN = re.compile(  # 1.234,5 or 1 234,5 or 1.234.567
    r"(?<![\w.,])(?:(?P<whole>[1-9]\d{0,2}(?:(?:\.\d{3})+|(?: \d{3})+)),(?P<part>\d+)|[1-9]\d{0,2}(?:\.\d{3}){2,})"
    r"(?![.,]?\d)"
)
_MEASURED = re.compile(
    rf"(?<![\w.,])(?P<number>(?:[1-9]\d{{0,2}}(?:,\d{{3}})+|[1-9]\d*|0(?=\.)|0(?!x))(?:\.\d+)?)"
    rf"(?!e[-+]?\d|(?:st|nd|rd|th)\b)(?P<unit>{_LETTER}+)",
    re.IGNORECASE,
)
_ROUNDED_UNIT = re.compile(  # 3.0km is 3 km, but 3.10a is not 3.1a
    r"n?[smn]|[munµ]?[mls]|[kcd]?[mglnjvw]|sec|min|hrs?|[hdvwtkjn]|in|ft|yd|mi|lbs?|oz|[kmgt]b|[kmg]?hz|ma|kwh|k?pa|bar|mol"
    r"|k?ev|db|mph|kmh|bn|usd|eur|gbp|[ap]m",
    re.IGNORECASE,
)
_RULES = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\^\{([-+]?(?:\d+|[a-z]))\}(?!\w)", r"^\1"),
        (r"_\{(\d+|[a-z])\}", r"_\1"),
        (r"(?<=[\w)\]])\*\*(?=[\w(+-])", "^"),
        (r" ?\\(?:times|cdot)\b ?", "\u00d7"),
        (r"(?<![\w.,^])(\d+(?:\.\d+)?) ?[x\u00d7*·⋅] ?10 ?\^ ?([-+]?\d{1,3})(?!\d|\.\d)", r"\1e\2 "),
        (r"(?<=\d)(?<!\b0) ?[x\u00d7] ?(?=\d)", " x "),
        (r",(?=[^\s\d])|(?<=[^\d\s]),(?=\d)", ", "),
        (r";(?=\S)", "; "),
        (rf"(?<={_LETTER}):(?={_LETTER})", ": "),
        (r"(?<=[\w)\]}]) ?([=<>]=?|!=|[≤≥≠]) ?(?=[\w(\[{+.-])", r" \1 "),
        (r"(?<=[\w)\]])(?<!\d[eE])(?: ([+*]) |([+*]))(?=[\w(\[])", r" \1\2 "),
        (rf"(?:(?<=\b{_LETTER})|(?<=\d{_LETTER}))-(?={_LETTER}\b|\d)", " - "),
        (r"(?<=\w) / (?=\w)", "/"),
        (r"(?<=[\w)\]]) ?\^ ?(?=[\w(+-])", "^"),
        (r"(?<=\d)'(?=s\b)", ""),
        (r"(?<=\d) ?(°) ?(?=[CFKcfk]\b)|(?<=\d) ?(°)", r" \1\2"),
        (r"([€£¥₹]) ?(?=[\d.])", r"\1 "),
        (r"(?<=\d) ?(?=[€£¥₹])", " "),
    )
)


def laid_out(text: str) -> str:
    """The text in one layout; white space has to be single spaces already, and letters keep their case."""
    if text.isascii() and text.replace(" ", "").isalpha():
        return text
    text = re.sub(f"[{''.join(_SUPERSCRIPT)}]+", _raised, text.translate(_PLAIN))
    text = _LIST.sub(_spaced, _EUROPEAN.sub(_with_point, text))
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    if "\\" in text or "^{" in text:  # TeX: \frac{a}{bc} is not \frac{ab}{c}
        text = text.replace("{", " ").replace("}", " ")
    return _MEASURED.sub(_apart, text)


def _raised(found: re.Match[str]) -> str:
    return "^" + "".join(_SUPERSCRIPT[sign] for sign in found[0])


def _with_point(found: re.Match[str]) -> str:
    if found["part"] is not None:
        return re.sub("[. ]", "", found["whole"]) + "." + found["part"]
    parts = found[0].split(".")
    is_address = len(parts) == 4 and all(int(part) <= 255 for part in parts)
    return found[0] if is_address else "".join(parts)


def _spaced(found: re.Match[str]) -> str:
    return found[0] if _THOUSANDS.fullmatch(found[0]) else found[0].replace(",", ", ")


def _apart(found: re.Match[str]) -> str:
    rounded = "." in found["number"] and found["number"].endswith("0")
    if rounded and not _ROUNDED_UNIT.fullmatch(found["unit"]):
        return found[0]
    return f"{found['number']} {found['unit']}"
