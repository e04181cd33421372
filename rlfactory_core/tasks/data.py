"""Reads a user's own samples from files of JSON lines, from JSON arrays, or from parquet files."""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from numbers import Real
from pathlib import Path
from typing import Any, Literal, cast

from rlfactory_core.errors import DataError, MissingExtraError
from rlfactory_core.tasks.messages import HALF, data_in, looks_printed, read_prompt
from rlfactory_core.tasks.settings import DataColumns
from rlfactory_core.types import Message, Sample

__all__ = ["first_rows", "load_samples", "rows_of"]

Row = Mapping[str, Any]
_log = logging.getLogger(__name__)
_ABSENT = object()
ASK = "ask"  # of `DataColumns`
_SOLUTION = re.compile(r"(?<!\S)####[^\n]*\S\s*\Z")  # how GSM8K ends a solution, also in one line
_LINES = (".jsonl", ".json", ".ndjson")


def load_samples(path: str | Path, columns: DataColumns, split: str) -> list[Sample]:
    """All rows of a file as samples.

    The prompt is a text or a list of ``{role, content}`` messages, the answer a text, a number or a list of accepted
    ones; lists may be JSON in a text. If an id is missing or occurs twice, row numbers from 0 become the ids of all
    rows. The row without its prompt becomes the sample's metadata.

    Args:
        columns: the columns' names; dots reach into structs.

    Raises:
        DataError: the file is missing or unreadable or has no rows, a column is missing, or a prompt or an answer is
            empty or may mean two things.
        MissingExtraError: the file is parquet, and pyarrow is not installed.
    """
    path = Path(path)
    rows = list(rows_of(path))
    if not rows:
        raise DataError(f"{path} has no rows; a data file needs at least one question.")
    for what, column, get in (("prompt", columns.prompt, _get), ("answer", columns.answer, _get_answer)):
        if not any(get(row, column) is not _ABSENT for row in rows):
            found = ", ".join(sorted(_paths(rows[0], ""))) or "none"
            raise DataError(
                f"{path} has no column {column!r} for the {what}. Found: {found}. "
                f"Name the right one with data.columns.{what}=COLUMN."
            )
    ids = [_get(row, columns.id) for row in rows]
    named = all(value not in (_ABSENT, None) for value in ids) and len(set(map(str, ids))) == len(ids)
    answers = _Answers(columns.answer_after)
    samples = []
    for number, row in enumerate(rows):
        place = f"{path}, row {number} (from 0): column"
        prompt = read_prompt(_get(row, columns.prompt), f"{place} {columns.prompt!r}")
        samples.append(
            Sample(
                id=str(ids[number]) if named else str(number),
                prompt=_asked(prompt, columns.last_turn, f"{place} {columns.prompt!r}"),
                answer=answers.read(_get_answer(row, columns.answer), f"{place} {columns.answer!r}"),
                metadata={key: value for key, value in row.items() if key != columns.prompt.split(".")[0]},
                split=split,
                tools=_tools(_get(row, columns.tools), f"{place} {columns.tools!r}"),
                slice="" if (value := _get(row, columns.slice)) in (_ABSENT, None) else str(value),
            )
        )
    if answers.kept:
        _log.warning(
            "%s: %d of %d answers in %r are lists or objects in a text, such as %.80r. Each is one answer as it is "
            "written; write several accepted ones as a JSON list of texts.",
            *(path, len(answers.kept), len(rows), columns.answer, answers.kept[0]),
        )
    return samples


def first_rows(path: str | Path, count: int) -> tuple[list[Row], list[str]]:
    """The first rows of a file as they are, and the names of their columns; those within structs have dots.

    Raises:
        DataError, MissingExtraError: as `load_samples`, for these rows.
    """
    rows = list(islice(rows_of(Path(path).expanduser()), count))
    return rows, list(dict.fromkeys(name for row in rows for name in _paths(row, "")))


def rows_of(path: Path) -> Iterator[Row]:
    """The rows of a file as they are; raises as `load_samples`."""
    if not path.exists():
        raise DataError(f"There is no data file {path}.")
    if not path.is_file():
        raise DataError(f"{path} is not a file; give one .jsonl or .parquet file.")
    if path.suffix == ".parquet":
        return _read_parquet(path)
    if path.suffix == ".json" and _is_array(path):
        return _read_array(path)
    if path.suffix in _LINES:
        return _read_lines(path)
    raise DataError(f"{path} ends in {path.suffix or 'nothing'!r}; expected .jsonl or .parquet.")


def _read_lines(path: Path) -> Iterator[Row]:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line.decode("utf-8-sig"))
            except (ValueError, RecursionError) as error:
                reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
                raise DataError(f"{path}, line {number} is not JSON: {reason}. Expected one object a line.") from error
            yield _checked(row, f"{path}, line {number}", "one object a line", escapes=b"\\u" in line)


def _is_array(path: Path) -> bool:
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        return next((line.lstrip().startswith("[") for line in file if line.strip()), False)


def _read_array(path: Path) -> Iterator[Row]:
    try:
        text = path.read_text(encoding="utf-8-sig")
        rows = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} cannot be read as a JSON array: {error}.") from error
    escapes = "\\u" in text  # a search through the whole file, which is not done for each row
    for number, row in enumerate(rows):
        yield _checked(row, f"{path}, row {number} (from 0)", "an array of objects", escapes=escapes)


def _checked(row: Any, place: str, expected: str, *, escapes: bool) -> Row:
    if half := HALF.search(json.dumps(row, ensure_ascii=False)) if escapes else None:
        raise DataError(
            f"{place} has half of a character, {half[0]!r}, which no tokenizer can read. "
            "Expected whole ones; a program that cuts texts at a number of UTF-16 units leaves such halves."
        )
    if not isinstance(row, dict):
        raise DataError(f"{place} is a JSON {type(row).__name__}; expected {expected}.")
    return row


def _read_parquet(path: Path) -> Iterator[Row]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MissingExtraError(f"Reading {path} needs pyarrow: python -m pip install pyarrow") from error
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches():
                columns = [  # a float32 that is only widened would be 0.10000000149011612 for 0.1
                    column.cast(pa.string()).cast(pa.float64()) if pa.types.is_float32(column.type) else column
                    for column in batch.columns
                ]
                yield from pa.RecordBatch.from_arrays(columns, names=batch.schema.names).to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} cannot be read as parquet: {error}") from error


def _get(row: Row, column: str | None) -> Any:
    """The value at a dotted path, or `_ABSENT`; a column whose own name has these dots comes first.

    A struct on the way may be JSON in a text.
    """
    if column is None:
        return _ABSENT
    if column in row:
        return row[column]
    value: Any = row
    for key in column.split("."):
        if isinstance(value, str) and value.lstrip()[:1] == "{":
            value = data_in(value)
        if not isinstance(value, Mapping) or key not in value:
            return _ABSENT
        value = value[key]
    return value


def _get_answer(row: Row, column: str) -> Any:
    """As `_get`; the text of verl's own layout stands where Search-R1's has a struct."""
    value = _get(row, column)
    if value is not _ABSENT or column != DataColumns().answer:
        return value
    value = _get(row, column.rpartition(".")[0])
    return _ABSENT if isinstance(value, Mapping) else value


def _asked(
    prompt: str | tuple[Message, ...], last_turn: Literal["ask", "drop", "keep"], place: str
) -> str | tuple[Message, ...]:
    """The prompt, without the assistant's last turn if that is to be dropped."""
    if isinstance(prompt, str) or prompt[-1].role != "assistant" or last_turn == "keep":
        return prompt
    if last_turn == ASK:
        raise DataError(
            f"{place} ends with the assistant's own turn, {prompt[-1].content[:80]!r}. Is that the answer that the "
            "model should find? Then leave it out of the prompt: data.columns.last_turn=drop. Should the model speak "
            "again after it? data.columns.last_turn=keep"
        )
    kept = prompt[: max((index + 1 for index, each in enumerate(prompt) if each.role != "assistant"), default=0)]
    if not kept:
        raise DataError(f"{place} holds only turns of the assistant, so data.columns.last_turn=drop leaves nothing.")
    return kept


def _paths(row: Row, prefix: str) -> Iterator[str]:
    for key, value in row.items():
        if isinstance(value, Mapping):
            yield from _paths(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def _tools(value: Any, place: str) -> tuple[str, ...] | None:
    """The names in a list of names, or of schemas; the list may be written as JSON."""
    if value in (_ABSENT, None):
        return None
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            value = [value]
    items = value if isinstance(value, Sequence) and not isinstance(value, str) else [None]
    names = tuple(map(_tool_name, items))
    if not all(isinstance(name, str) for name in names):
        raise DataError(
            f"{place} holds {str(value)[:200]!r}; expected the names of the tools that the row's episodes may use, or "
            "their schemas in OpenAI's format. Where the column means something else: data.columns.tools=null"
        )
    return cast(tuple[str, ...], names)


def _tool_name(item: Any) -> Any:
    if not isinstance(item, Mapping):
        return item
    function = item.get("function")
    return (function if isinstance(function, Mapping) else item).get("name")


@dataclass(slots=True)
class _Answers:
    """Reads the answers of a file.

    Args:
        after: as `DataColumns.answer_after`.
        kept: texts that hold data, and are taken as they are.
    """

    after: str | None
    kept: list[str] = field(default_factory=list)

    def read(self, value: Any, place: str) -> str | tuple[str, ...]:
        value = self._listed(value)
        if isinstance(value, Mapping):
            keys = ", ".join(map(str, value))
            raise DataError(f"{place} is a struct with {keys}; name one of these with data.columns.answer=COLUMN.KEY.")
        if is_nan(value):
            raise DataError(f"{place} is not a number (NaN), which no answer equals; drop the row, or give its answer.")
        several = isinstance(value, Sequence) and not isinstance(value, str | bytes)
        for item in value if several else (value,):
            if isinstance(item, bytes) or (isinstance(item, Sequence | Mapping) and not isinstance(item, str)):
                held = f"{str(item)[:200]}, a {type(item).__name__}"
                raise DataError(f"{place} holds {held}; expected a text, a number, or a list of these.")
        if several:
            answers = tuple(self._final(str(item), place) for item in value if item is not None and str(item).strip())
            if answers:
                return answers
        elif value not in (_ABSENT, None) and str(value).strip():
            return self._final(str(value), place)
        raise DataError(f"{place} is empty; every question needs an answer to compare with.")

    def _listed(self, value: Any) -> Any:
        """The list of texts that a text wholly is; a list of numbers alone may well be one answer."""
        if not isinstance(value, str):
            return value
        if (found := data_in(value)) is None:
            self.kept += [value] if looks_printed(value) else []
            return value
        plain = isinstance(found, list) and not any(isinstance(item, list | Mapping) for item in found)
        if plain and any(isinstance(item, str) for item in found):
            return found
        self.kept.append(value)
        return value

    def _final(self, answer: str, place: str) -> str:
        """What follows the text behind which the answer begins."""
        if self.after == ASK and _SOLUTION.search(answer):
            raise DataError(
                f"{place} holds a solution that ends with {answer[answer.rindex('####') :][:80]!r}, as in GSM8K. Is "
                "only what follows #### the answer? data.columns.answer_after=#### Is it the whole text? "
                "data.columns.answer_after=null"
            )
        if self.after in (ASK, None, ""):
            return answer
        _, found, final = answer.rpartition(str(self.after))
        if not found or not final.strip():
            raise DataError(
                f"{place} holds {answer[-80:]!r}, in which no answer follows data.columns.answer_after={self.after}"
            )
        return final.strip()


def is_nan(answer: Any) -> bool:
    """Whether an answer, or one of several, is NaN, which pandas writes for a missing value."""
    several = answer if isinstance(answer, Sequence) and not isinstance(answer, str) else (answer,)
    return any(isinstance(each, Real) and math.isnan(each) for each in several)
