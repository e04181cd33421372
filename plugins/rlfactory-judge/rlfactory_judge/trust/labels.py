"""Labelled examples for measuring a judge: a JSONL file of answers and pairs that people have judged."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from rlfactory_core.errors import DataError, nearest

EXAMPLE = """\
{"prompt": "What is 2 + 3?", "answer": "It is 5.", "truth": "5", "label": true}
{"prompt": "What is 2 + 3?", "answer": "It is 6.", "truth": "5", "label": false}
{"prompt": "What is 2 + 3?", "answers": ["It is 6.", "It is 5."], "truth": "5", "better": 1}"""

FORMAT = f"""\
Expected one JSON object a line, for an answer or for two answers to one prompt:
{EXAMPLE}
label is true, false or a number on the rubric's scale; better is 0, 1 or null for equally good; truth is a text or a
list of them, and may be left out; so may id."""

_SHOWN = 10  # problems of a file that are listed
_ANSWER_KEYS = ("id", "prompt", "answer", "truth", "label")
_PAIR_KEYS = ("id", "prompt", "answers", "truth", "better")
_LONGEST = 60  # characters of a value in a message


@dataclass(frozen=True, slots=True)
class LabelledAnswer:
    """One answer with people's verdict."""

    id: str
    prompt: str
    answer: str
    truth: tuple[str, ...]  # accepted answers; empty if the rubric needs none
    label: bool | float  # right or wrong, or a number on the rubric's scale


@dataclass(frozen=True, slots=True)
class LabelledPair:
    """Two answers to one prompt and which of them people prefer."""

    id: str
    prompt: str
    answers: tuple[str, str]
    truth: tuple[str, ...]
    better: int | None  # 0 or 1; None: equally good


@dataclass(frozen=True, slots=True)
class Labels:
    """All rows of a file, in its order."""

    answers: tuple[LabelledAnswer, ...]
    pairs: tuple[LabelledPair, ...] = ()

    def first(self, limit: int) -> Labels:
        """At most ``limit`` answers and as many pairs; 0: all."""
        return Labels(self.answers[: limit or None], self.pairs[: limit or None])


def read_labels(path: Path, *, low: float, high: float) -> Labels:
    """The rows of a file. Blank lines and unknown keys are ignored.

    Args:
        low: the lower end of the rubric's scale, which bounds numeric labels.

    Raises:
        DataError: the file cannot be read or has no rows, or rows are invalid; up to ten are listed.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise DataError(f"The labels {path} cannot be read: {error.strerror}.\n{FORMAT}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"The labels {path} are not UTF-8 text: {error}.") from error
    answers: list[LabelledAnswer] = []
    pairs: list[LabelledPair] = []
    problems: list[str] = []
    lines: dict[str, int] = {}  # id -> its line
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = _row(line, number, low, high)
            if row.id in lines:
                raise ValueError(f"the id {row.id!r} is also that of line {lines[row.id]}; ids have to differ")
        except ValueError as error:
            problems.append(f"  line {number}: {error}")
            continue
        lines[row.id] = number
        if isinstance(row, LabelledAnswer):
            answers.append(row)
        else:
            pairs.append(row)
    if problems:
        more = len(problems) - _SHOWN
        listed = problems[:_SHOWN] + ([f"  and {more} more"] if more > 0 else [])
        count = f"{len(problems)} line{'s' * (len(problems) > 1)} that cannot be used"
        raise DataError("\n".join([f"The labels {path} have {count}:", *listed, FORMAT]))
    if not lines:
        raise DataError(f"The labels {path} have no rows.\n{FORMAT}")
    _refuse_zero_and_one(path, answers, low, high)
    return Labels(tuple(answers), tuple(pairs))


def write_labels(path: Path, labels: Labels) -> None:
    """A file that `read_labels` reads as equal labels.

    Raises:
        DataError: it cannot be written.
    """
    rows: tuple[LabelledAnswer | LabelledPair, ...] = (*labels.answers, *labels.pairs)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(asdict(row), ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    except OSError as error:
        raise DataError(f"The labels {path} cannot be written: {error.strerror}.") from error


def _row(line: str, number: int, low: float, high: float) -> LabelledAnswer | LabelledPair:
    """Parse a line; raises `ValueError` with the problem."""
    try:
        data = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON ({error.msg} at column {error.colno})") from error
    except RecursionError as error:
        raise ValueError("not JSON that can be read: nested too deeply") from error
    try:
        json.dumps(data, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ValueError("half a surrogate pair (\\ud800 to \\udfff), which is no character") from error
    if not isinstance(data, dict):
        raise ValueError(f"a JSON {type(data).__name__}, expected an object")
    if "answers" in data and "answer" in data:
        raise ValueError("both 'answer' and 'answers'; a row is one answer or a pair")
    pair = "answers" in data or "better" in data
    keys = _PAIR_KEYS if pair else _ANSWER_KEYS
    missing = [key for key in keys if key not in data and key not in ("id", "truth")]
    if missing:
        raise ValueError(_missing(missing[0], data, keys))
    name = str(number) if data.get("id") is None else str(data["id"])
    prompt, truth = _text(data, "prompt"), _truth(data.get("truth"))
    if not prompt.strip():
        raise ValueError("'prompt' is empty")
    if pair:
        return LabelledPair(name, prompt, _two(data["answers"]), truth, _better(data["better"]))
    return LabelledAnswer(name, prompt, _text(data, "answer"), truth, _label(data["label"], low, high))


def _missing(key: str, data: Mapping[str, Any], keys: Iterable[str]) -> str:
    others = [name for name in data if name not in set(keys)]
    hint = nearest(key, others) if others else ""
    meant = next((name for name in others if hint.startswith("Did you mean") and repr(name) in hint), None)
    return f"no {key!r}" + (f"; is {meant!r} meant to be it?" if meant else "")


def _text(data: Mapping[str, Any], key: str) -> str:
    value = data[key]
    if not isinstance(value, str):
        raise ValueError(f"{key!r} is {_short(value)}, expected a text")
    return value


def _truth(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    items = value if isinstance(value, list) else [value]
    wrong = next((item for item in items if isinstance(item, bool) or not isinstance(item, str | int | float)), None)
    if wrong is not None or None in items:
        raise ValueError(f"'truth' is {_short(value)}, expected a text or a list of texts")
    return tuple(str(item) for item in items)


def _two(value: Any) -> tuple[str, str]:
    if isinstance(value, list) and len(value) == 2 and all(isinstance(item, str) for item in value):
        return (value[0], value[1])
    raise ValueError(f"'answers' is {_short(value)}, expected a list of two texts")


def _better(value: Any) -> int | None:
    if value is None or (value in (0, 1) and isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise ValueError(f"'better' is {_short(value)}, expected 0 (the first answer), 1 (the second) or null")


def _label(value: Any, low: float, high: float) -> bool | float:
    if isinstance(value, bool):
        return value
    expected = f"expected true, false or a number from {low:g} to {high:g}"
    if not isinstance(value, int | float) or not _is_finite(value):
        raise ValueError(f"'label' is {_short(value)}, {expected}")
    if not low <= value <= high:
        raise ValueError(f"'label' is {value:g}, which is not on the scale, {expected}")
    return float(value)


def _is_finite(value: float) -> bool:
    try:
        return isfinite(value)
    except OverflowError:  # an int beyond all floats
        return False


def _refuse_zero_and_one(path: Path, answers: Iterable[LabelledAnswer], low: float, high: float) -> None:
    """Refuse numeric labels that are all 0 or 1 on a wider scale: they are verdicts, and would all count as wrong."""
    numbers = Counter(row.label for row in answers if not isinstance(row.label, bool))
    if numbers and set(numbers) <= {0.0, 1.0} and (low, high) != (0.0, 1.0):
        raise DataError(
            f"The labels {path} that are numbers are all 0 or 1, and the scale goes from {low:g} to {high:g}. "
            "Write true and false for right and wrong, or give the scale of the labels: low=0 high=1."
        )


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
