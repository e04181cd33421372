"""Reads a user's own samples from files of JSON lines, from JSON arrays, or from parquet files."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from numbers import Real
from pathlib import Path
from typing import Any, cast, get_args

from rlfactory_core.config import DataColumns
from rlfactory_core.errors import DataError, MissingExtraError
from rlfactory_core.types import Message, Role, Sample

__all__ = ["first_rows", "load_samples"]

Row = Mapping[str, Any]
_ABSENT = object()
_LINES = (".jsonl", ".json", ".ndjson")
_HALF = re.compile("[\ud800-\udfff]")  # a surrogate of UTF-16 that is alone; json joins the pairs


def load_samples(path: str | Path, columns: DataColumns, split: str) -> list[Sample]:
    """All rows of a file as samples.

    The prompt is a text or a list of ``{role, content}`` messages, the answer a text, a number or a list of accepted
    ones. If an id is missing or occurs twice, row numbers from 0 become the ids of all rows. The row without its prompt
    becomes the sample's metadata.

    Args:
        columns: the columns' names; dots reach into structs.

    Raises:
        DataError: the file is missing or unreadable or has no rows, a column is missing, or a prompt or an answer is
            empty.
        MissingExtraError: the file is parquet, and pyarrow is not installed.
    """
    path = Path(path)
    rows = list(_read(path))
    if not rows:
        raise DataError(f"{path} has no rows; a data file needs at least one question.")
    for field, column in (("prompt", columns.prompt), ("answer", columns.answer)):
        if not any(_get(row, column) is not _ABSENT for row in rows):
            found = ", ".join(sorted(_paths(rows[0], ""))) or "none"
            raise DataError(
                f"{path} has no column {column!r} for the {field}. Found: {found}. "
                f"Name the right one with data.columns.{field}=COLUMN."
            )
    ids = [_get(row, columns.id) for row in rows]
    named = all(value not in (_ABSENT, None) for value in ids) and len(set(map(str, ids))) == len(ids)
    return [
        Sample(
            id=str(ids[number]) if named else str(number),
            prompt=_prompt(_get(row, columns.prompt), f"{path}, row {number} (from 0): column {columns.prompt!r}"),
            answer=_answer(_get(row, columns.answer), f"{path}, row {number} (from 0): column {columns.answer!r}"),
            metadata={key: value for key, value in row.items() if key != columns.prompt.split(".")[0]},
            split=split,
            tools=_tools(_get(row, columns.tools), f"{path}, row {number} (from 0): column {columns.tools!r}"),
            slice="" if (value := _get(row, columns.slice)) in (_ABSENT, None) else str(value),
        )
        for number, row in enumerate(rows)
    ]


def first_rows(path: str | Path, count: int) -> tuple[list[Row], list[str]]:
    """The first rows of a file as they are, and the names of their columns; those within structs have dots.

    Raises:
        DataError, MissingExtraError: as `load_samples`, for these rows.
    """
    rows = list(islice(_read(Path(path).expanduser()), count))
    return rows, list(dict.fromkeys(name for row in rows for name in _paths(row, "")))


def _read(path: Path) -> Iterator[Row]:
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
    for number, row in enumerate(rows):
        yield _checked(row, f"{path}, row {number} (from 0)", "an array of objects", escapes="\\u" in text)


def _checked(row: Any, place: str, expected: str, *, escapes: bool) -> Row:
    if half := _HALF.search(json.dumps(row, ensure_ascii=False)) if escapes else None:
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
    """The value at a dotted path, or `_ABSENT`; a column whose own name has these dots comes first."""
    if column is None:
        return _ABSENT
    if column in row:
        return row[column]
    value: Any = row
    for key in column.split("."):
        if not isinstance(value, Mapping) or key not in value:
            return _ABSENT
        value = value[key]
    return value


def _paths(row: Row, prefix: str) -> Iterator[str]:
    for key, value in row.items():
        if isinstance(value, Mapping):
            yield from _paths(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def _prompt(value: Any, place: str) -> str | tuple[Message, ...]:
    if isinstance(value, str) and value.strip():
        return value
    if value is _ABSENT or not isinstance(value, Sequence) or isinstance(value, str) or not value:
        raise DataError(f"{place} is empty or not a prompt; expected a text or a list of messages.")
    messages = tuple(_message(item, place) for item in value)
    if not any(message.content.strip() for message in messages):
        raise DataError(f"{place} holds only empty messages.")
    return messages


def _message(item: Any, place: str) -> Message:
    role = item.get("role") if isinstance(item, Mapping) else None
    content = item.get("content") if isinstance(item, Mapping) else None
    if role not in get_args(Role) or not isinstance(content, str):
        expected = f"expected {{role, content}} with a text and one of the roles {', '.join(get_args(Role))}."
        raise DataError(f"{place} holds the message {str(item)[:200]!r}; {expected}")
    return Message(cast(Role, role), content)


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


def _answer(value: Any, place: str) -> str | tuple[str, ...]:
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
        answers = tuple(str(item) for item in value if item is not None and str(item).strip())
        if answers:
            return answers
    elif value not in (_ABSENT, None) and str(value).strip():
        return str(value)
    raise DataError(f"{place} is empty; every question needs an answer to compare with.")


def is_nan(answer: Any) -> bool:
    """Whether an answer, or one of several, is NaN, which pandas writes for a missing value."""
    several = answer if isinstance(answer, Sequence) and not isinstance(answer, str) else (answer,)
    return any(isinstance(each, Real) and math.isnan(each) for each in several)
