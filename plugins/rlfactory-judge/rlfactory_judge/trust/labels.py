"""Labelled examples for measuring a judge: a JSONL file of answers and pairs that people have judged."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Discriminator, Field, Tag, TypeAdapter, ValidationError

from rlfactory_core.errors import DataError

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


def _texts(given: Any) -> tuple[Any, ...]:
    """A text, a number or a list of them as a tuple of texts; anything else is left for the validation to refuse."""
    values = given if isinstance(given, list | tuple) else () if given is None else (given,)
    return tuple(str(value) if type(value) in (int, float) else value for value in values)


# In a file, by default the number of the line.
Name = Annotated[str, BeforeValidator(lambda given: "" if given is None else str(given)), Field(default="")]
Prompt = Annotated[str, Field(pattern=r"\S")]
Truth = Annotated[tuple[str, ...], BeforeValidator(_texts), Field(default=())]


@dataclass(frozen=True, slots=True)
class LabelledAnswer:
    """One answer with people's verdict."""

    id: Name
    prompt: Prompt
    answer: str
    truth: Truth  # accepted answers; empty if the rubric needs none
    label: bool | Annotated[float, Field(allow_inf_nan=False)]  # right or wrong, or a number on the rubric's scale


@dataclass(frozen=True, slots=True)
class LabelledPair:
    """Two answers to one prompt and which of them people prefer."""

    id: Name
    prompt: Prompt
    answers: tuple[str, str]
    truth: Truth
    better: Annotated[int, Field(ge=0, le=1)] | None  # None: equally good


def _kind(row: Any) -> str:
    return "pair" if isinstance(row, dict) and ("answers" in row or "better" in row) else "answer"


Row = LabelledAnswer | LabelledPair
_TAGGED = Annotated[LabelledAnswer, Tag("answer")] | Annotated[LabelledPair, Tag("pair")]
_ROW: TypeAdapter[Row] = TypeAdapter(Annotated[_TAGGED, Discriminator(_kind)])


@dataclass(frozen=True, slots=True)
class Labels:
    """All rows of a file, in its order."""

    answers: tuple[LabelledAnswer, ...]
    pairs: tuple[LabelledPair, ...] = ()


def read_labels(path: Path, *, low: float, high: float) -> Labels:
    """The rows of a file, with numeric labels from ``low`` to ``high``. Blank lines and unknown keys are ignored.

    Raises:
        DataError: the file cannot be read or has no rows, or rows are invalid; up to ten are listed.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"The labels {path} cannot be read as UTF-8 text: {error}.\n{FORMAT}") from error
    rows: dict[str, Row] = {}
    problems: list[str] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = _ROW.validate_json(line, strict=True)
            row = row if row.id else replace(row, id=str(number))
            if row.id in rows:
                raise ValueError(f"the id {row.id!r} is also that of another line; ids have to differ")
            label = row.label if isinstance(row, LabelledAnswer) else False
            if not isinstance(label, bool) and not low <= label <= high:
                raise ValueError(f"label: {label:g} is not on the scale from {low:g} to {high:g}")
            rows[row.id] = row
        except ValueError as error:
            problems.append(f"  line {number}: {_what(error)}")
    if problems:
        more = len(problems) - _SHOWN
        listed = problems[:_SHOWN] + ([f"  and {more} more"] if more > 0 else [])
        count = f"{len(problems)} line{'s' * (len(problems) > 1)} that cannot be used"
        raise DataError("\n".join([f"The labels {path} have {count}:", *listed, FORMAT]))
    if not rows:
        raise DataError(f"The labels {path} have no rows.\n{FORMAT}")
    answers = tuple(row for row in rows.values() if isinstance(row, LabelledAnswer))
    numbers = {row.label for row in answers if not isinstance(row.label, bool)}
    if numbers and numbers <= {0.0, 1.0} and (low, high) != (0.0, 1.0):  # verdicts, which would all count as wrong
        raise DataError(
            f"The labels {path} that are numbers are all 0 or 1, and the scale goes from {low:g} to {high:g}. "
            "Write true and false for right and wrong, or give the scale of the labels: low=0 high=1."
        )
    return Labels(answers, tuple(row for row in rows.values() if isinstance(row, LabelledPair)))


def _what(error: ValueError) -> str:
    """The problems of a line, each with its field and what was found there."""
    if not isinstance(error, ValidationError):
        return str(error)
    shown = []
    for each in error.errors(include_url=False):
        found = json.dumps(each["input"], ensure_ascii=False, default=repr)
        place = "".join(f"{name}: " for name in each["loc"][1:])
        shown.append(f"{place}{each['msg']}, got {found if len(found) <= _LONGEST else f'{found[:_LONGEST]}…'}")
    return "; ".join(shown)


def write_labels(path: Path, labels: Labels) -> None:
    """A file that `read_labels` reads as equal labels."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows: tuple[Row, ...] = (*labels.answers, *labels.pairs)
    path.write_text("".join(json.dumps(asdict(row), ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
