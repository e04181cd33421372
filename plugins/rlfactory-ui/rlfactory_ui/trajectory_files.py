"""A run's trajectory files: what is in each line, and one line at a time."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from rlfactory_core.errors import DataError, UsageError
from rlfactory_core.reporting import RunFolder, StoredTrajectory

_NAME = re.compile(r"(step-\d+|eval-[\w.-]+|control-[\w.-]+)\.jsonl")
_FILES_KEPT = 32  # indexed files in memory


@dataclass(frozen=True, slots=True)
class Line:
    """What one trajectory is found by."""

    number: int  # in its file, from 0
    offset: int  # bytes
    sample: str
    asked: str  # the same for the same prompt, in whatever run and under whatever id
    answer: str  # the same for the same accepted answers
    question: str
    slice: str
    attempt: int
    reward: float
    masked: bool
    stop: str
    faults: Sequence[str]  # kinds
    tools: Sequence[str]  # those that it called
    tool_calls: int
    turns: int
    tokens: int  # sampled
    scores: Mapping[str, float]  # unweighted, by scorer


@dataclass(frozen=True, slots=True)
class Filter:
    """Which trajectories of a file to show; an empty value asks for nothing."""

    slice: str = ""
    stop: str = ""
    fault: str = ""
    tool: str = ""
    reward: str = ""  # "success", "failure" or "masked"
    text: str = ""

    def holds(self, line: Line, succeeded: bool) -> bool:
        asked = {"success": succeeded, "failure": not succeeded, "masked": line.masked}
        return (
            (not self.slice or line.slice == self.slice)
            and (not self.stop or line.stop == self.stop)
            and (not self.fault or self.fault in line.faults)
            and (not self.tool or self.tool in line.tools)
            and asked.get(self.reward, True)
        )


def files(folder: RunFolder) -> list[str]:
    """The names of all files: evaluations before and after, then the steps in order, then the other evaluations."""
    found = [match[1] for path in folder.trajectories.glob("*.jsonl") if (match := _NAME.fullmatch(path.name))]
    return sorted(found, key=lambda name: (not name.startswith("step-"), name))


def lines(folder: RunFolder, name: str) -> Sequence[Line]:
    """What is in a file, in the file's order.

    Raises:
        UsageError: there is no such file.
        DataError: a line is not a trajectory.
    """
    path = _path(folder, name)
    seen = path.stat()
    return _lines(path, seen.st_mtime_ns, seen.st_size)


def matching(folder: RunFolder, name: str, wanted: Filter, metric: str) -> list[Line]:
    """The lines that a filter lets through; its text may be anywhere in a trajectory."""
    every = lines(folder, name)
    good = succeeded(every, metric)
    found = [line for line in every if wanted.holds(line, line.number in good)]
    if not wanted.text:
        return found
    escaped = {wanted.text.lower(), json.dumps(wanted.text, ensure_ascii=False)[1:-1].lower()}
    with _path(folder, name).open("rb") as file:
        return [line for line in found if any(text in _read(file, line).lower() for text in escaped)]


def succeeded(every: Sequence[Line], metric: str) -> set[int]:
    """The numbers of the trajectories with a success score above 0.5, or without one above half the largest reward."""
    half = max([line.reward for line in every] or [0.0]) / 2
    return {
        line.number for line in every if (line.scores[metric] > 0.5 if metric in line.scores else line.reward > half)
    }


def trajectory(folder: RunFolder, name: str, number: int) -> tuple[Line, StoredTrajectory]:
    """One trajectory.

    Raises:
        UsageError: there is no such file or line.
        DataError: it cannot be read.
    """
    found = lines(folder, name)
    if not 0 <= number < len(found):
        raise UsageError(f"{name} has {len(found)} trajectories; there is no number {number}.")
    with _path(folder, name).open("rb") as file:
        text = _read(file, found[number])
    try:
        return found[number], StoredTrajectory.from_dict(json.loads(text))
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{name}, line {number + 1}: not a trajectory ({error})") from error


def _read(file: Any, line: Line) -> str:
    file.seek(line.offset)
    return str(file.readline().decode("utf-8", "replace"))


def _path(folder: RunFolder, name: str) -> Path:
    path = folder.trajectories / f"{name}.jsonl"
    if not _NAME.fullmatch(path.name) or not path.is_file():
        raise UsageError(f"{folder.name} has no trajectories called '{name}'.")
    return path


@lru_cache(maxsize=_FILES_KEPT)
def _lines(path: Path, _changed: int, _size: int) -> Sequence[Line]:
    return tuple(_read_lines(path))


def _read_lines(path: Path) -> Iterator[Line]:
    offset = 0
    with path.open("rb") as file:
        for number, text in enumerate(file):
            try:
                yield _line(number, offset, json.loads(text))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise DataError(f"{path.name}, line {number + 1}: not a trajectory ({error!r})") from error
            offset += len(text)


def _line(number: int, offset: int, row: dict[str, Any]) -> Line:
    turns, prompt = row["turns"], row["sample"]["prompt"]
    calls = [call.get("name") or "?" for turn in turns for call in turn["message"].get("tool_calls", ())]
    asked = prompt if isinstance(prompt, str) else next((m["content"] for m in prompt[::-1] if m["role"] == "user"), "")
    return Line(
        number,
        offset,
        str(row["sample"]["id"]),
        _key([{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt),
        _key(row["sample"].get("answer")),
        str(asked)[:300],
        str(row["sample"].get("slice") or ""),
        int(row["attempt"]),
        float(row["reward"]),
        bool(row["masked"]),
        str(row["stop"]),
        tuple(dict.fromkeys(str(fault["kind"]) for fault in row.get("faults", ()))),
        tuple(dict.fromkeys(calls)),
        len(calls),
        len(turns),
        sum(len(turn["sampled_ids"]) for turn in turns),
        {str(name): float(value) for name, value in ((row.get("score") or {}).get("components") or {}).items()},
    )


def _key(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
