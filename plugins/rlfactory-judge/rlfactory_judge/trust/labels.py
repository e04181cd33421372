"""Labelled examples for measuring a judge: a JSONL file of answers and pairs that people have judged."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic_core import from_json

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
_LONGEST = 60  # characters of a value in a message
_CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {  # of each field's value, and what is expected
    "prompt": (lambda value: isinstance(value, str) and bool(value.strip()), "a text that is not empty"),
    "answer": (lambda value: isinstance(value, str), "a text"),
    "label": (lambda value: isinstance(value, int | float), "true, false or a number"),
    "answers": (lambda value: _are_texts(value) and len(value) == 2, "a list of two texts"),
    "better": (lambda value: value is None or (type(value) is int and value in (0, 1)), "0 (the first), 1 or null"),
}
_ANSWER, _PAIR = ("prompt", "answer", "label"), ("prompt", "answers", "better")


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
    rows: dict[str, tuple[int, LabelledAnswer | LabelledPair]] = {}
    problems: list[str] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = _row(line, number, low, high)
            if row.id in rows:
                raise ValueError(f"the id {row.id!r} is also that of line {rows[row.id][0]}; ids have to differ")
            rows[row.id] = number, row
        except ValueError as error:
            problems.append(f"  line {number}: {error}")
    if problems:
        more = len(problems) - _SHOWN
        listed = problems[:_SHOWN] + ([f"  and {more} more"] if more > 0 else [])
        count = f"{len(problems)} line{'s' * (len(problems) > 1)} that cannot be used"
        raise DataError("\n".join([f"The labels {path} have {count}:", *listed, FORMAT]))
    if not rows:
        raise DataError(f"The labels {path} have no rows.\n{FORMAT}")
    answers = tuple(row for _, row in rows.values() if isinstance(row, LabelledAnswer))
    numbers = {row.label for row in answers if not isinstance(row.label, bool)}
    if numbers and numbers <= {0.0, 1.0} and (low, high) != (0.0, 1.0):  # verdicts, which would all count as wrong
        raise DataError(
            f"The labels {path} that are numbers are all 0 or 1, and the scale goes from {low:g} to {high:g}. "
            "Write true and false for right and wrong, or give the scale of the labels: low=0 high=1."
        )
    return Labels(answers, tuple(row for _, row in rows.values() if isinstance(row, LabelledPair)))


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
        data = from_json(line, allow_inf_nan=False)  # refuses halves of surrogate pairs, too
    except ValueError as error:
        raise ValueError(f"not JSON that can be read ({error})") from error
    if not isinstance(data, dict):
        raise ValueError(f"a JSON {type(data).__name__}, expected an object")
    if "answers" in data and "answer" in data:
        raise ValueError("both 'answer' and 'answers'; a row is one answer or a pair")
    is_pair = "answers" in data or "better" in data
    for key in _PAIR if is_pair else _ANSWER:
        fits, expected = _CHECKS[key]
        if key not in data:
            hint = nearest(key, data)
            raise ValueError(f"no {key!r}" + (f" ({hint})" if hint.startswith("Did you mean") else ""))
        if not fits(data[key]):
            raise ValueError(f"{key!r} is {_short(data[key])}, expected {expected}")
    truth = data.get("truth")
    truths = truth if isinstance(truth, list) else [] if truth is None else [truth]
    if any(isinstance(each, bool) or not isinstance(each, str | int | float) for each in truths):
        raise ValueError(f"'truth' is {_short(truth)}, expected a text or a list of texts")
    name = str(number) if data.get("id") is None else str(data["id"])
    texts, label = tuple(map(str, truths)), data.get("label", False)
    if is_pair:
        return LabelledPair(name, data["prompt"], tuple(data["answers"]), texts, data["better"])
    if isinstance(label, bool):
        return LabelledAnswer(name, data["prompt"], data["answer"], texts, label)
    if not low <= label <= high:
        raise ValueError(f"'label' is {_short(label)}, which is not on the scale from {low:g} to {high:g}")
    return LabelledAnswer(name, data["prompt"], data["answer"], texts, float(label))


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
