"""Trajectories on disk: one JSON object on each line, with all that is needed to read, audit and train on them.

Each turn holds ``context_ids`` (loss mask 0) and ``sampled_ids`` (loss mask 1) with the log-probs of the latter, so ids
and mask cannot disagree. It also holds the texts of the ids, so that readers need no tokenizer. Log-probs are rounded
to 1e-6. Tuples inside ``answer``, ``metadata``, ``info``, tool arguments and verdict data come back as lists.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from rlfactory_core.types import Group, Message, Sample, Score, Trajectory, Turn

FORMAT = 1  # increased if an older reader would misread the file
_LATER = {"code": "fault_codes", "measured": "fault_measured"}
"""Newer fields of a fault, and their lists in a line: readers of the first releases accept no other field."""


@dataclass(frozen=True, slots=True)
class TurnText:
    """A turn's tokens as text, special tokens included; empty where the sampler gave no ids."""

    context: str  # masked from the loss: the prompt in the first turn, the observation later
    sampled: str  # the model's own


@dataclass(frozen=True, slots=True)
class StoredTrajectory:
    """A trajectory and its texts, one `TurnText` for each turn."""

    trajectory: Trajectory
    texts: tuple[TurnText, ...]

    @classmethod
    def of(cls, trajectory: Trajectory, decode: Callable[[Sequence[int]], str]) -> StoredTrajectory:
        """With the texts that ``decode`` of the chat format gives."""
        texts = (TurnText(decode(turn.context_ids), decode(turn.sampled_ids)) for turn in trajectory.turns)
        return cls(trajectory, tuple(texts))

    def to_line(self) -> str:
        """One line of a file, without its end."""
        line = json_text(self.to_dict())
        return line.encode("utf-8", "backslashreplace").decode()  # a model can write half a surrogate pair

    @classmethod
    def from_line(cls, line: str) -> StoredTrajectory:
        """The inverse of `to_line`; raises as `from_dict`."""
        return cls.from_dict(json.loads(line))

    def to_dict(self) -> dict[str, Any]:
        """As JSON data. ``reward`` and ``masked`` follow from the rest and are there for other tools."""
        trajectory = self.trajectory
        return {
            "format": FORMAT,
            "sample": sample_data(trajectory.sample),
            "attempt": trajectory.attempt,
            "stop": trajectory.stop.value,
            "reward": trajectory.reward,
            "masked": trajectory.masked,
            "seconds": round(trajectory.seconds, 6),
            "score": None if trajectory.score is None else _score_to_dict(trajectory.score),
            "faults": [_data(fault, *_LATER) for fault in trajectory.faults],
            **{
                key: found
                for name, key in _LATER.items()
                if any(found := [getattr(each, name) for each in trajectory.faults])
            },
            "tools": [_data(tool) for tool in trajectory.tools],
            **({"info": dict(trajectory.info)} if trajectory.info else {}),
            **({"answer": trajectory.answer} if trajectory.answer is not None else {}),
            "turns": [_turn_to_dict(turn, text) for turn, text in zip(trajectory.turns, self.texts, strict=True)],
        }

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> StoredTrajectory:
        """The inverse of `to_dict`; ignores unknown fields.

        Raises:
            ValueError: the format is newer than this reader, or a field is of another type.
            KeyError, TypeError: the data is not a trajectory.
        """
        if row.get("format", 0) > FORMAT:
            raise ValueError(f"format {row['format']}, this rlfactory reads up to {FORMAT}: upgrade rlfactory")
        faults, score = [dict(fault) for fault in row.get("faults", ())], row.get("score")
        for name, key in _LATER.items():
            for fault, value in zip(faults, row.get(key, ()), strict=False):
                fault[name] = value
        fields_now = {**row, "faults": faults, "score": score and {**score, "turn_rewards": score["turns"]}}
        try:
            trajectory = _reader().validate_python(fields_now)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
        return cls(trajectory, tuple(TurnText(turn["context_text"], turn["sampled_text"]) for turn in row["turns"]))


@lru_cache(maxsize=1)
def _reader() -> TypeAdapter[Trajectory]:
    """Made at the first use, since it takes 20 ms. Only for reading, because the lines differ from the types."""
    return TypeAdapter(Trajectory)


def sample_data(sample: Sample) -> dict[str, Any]:
    """A sample as JSON data, for `json_text`."""
    return _data(sample)


_OMITTED: Mapping[type, tuple[str, ...]] = {
    Message: ("reasoning", "tool_calls", "tool_call_id", "name"),
    Sample: ("task", "tools"),
}
"""Fields that a line has only where they differ from their default."""


def _data(item: Any, *without: str) -> dict[str, Any]:
    """A dataclass as JSON data, which may hold others; JSON writes a string enumeration as its value."""
    fields, omitted = item.__dataclass_fields__, _OMITTED.get(type(item), ())
    values = {name: getattr(item, name) for name in fields if name not in without}
    return {name: _value(it) for name, it in values.items() if name not in omitted or it != fields[name].default}


def _value(value: Any) -> Any:
    if hasattr(value, "__dataclass_fields__"):
        return _data(value)
    if isinstance(value, Mapping):
        return {key: _value(each) if hasattr(each, "__dataclass_fields__") else each for key, each in value.items()}
    return [_value(each) for each in value] if isinstance(value, tuple) else value


def stored(
    groups: Iterable[Group], decode: Callable[[Sequence[int]], str] = lambda ids: ""
) -> Iterator[StoredTrajectory]:
    """The trajectories of groups with their texts; ``decode`` is the chat format's where there are ids."""
    return (StoredTrajectory.of(each, decode) for group in groups for each in group.trajectories)


def json_text(data: Mapping[str, Any], indent: int | None = None) -> str:
    """JSON as in the files of a run."""
    separators = (",", ":") if indent is None else (",", ": ")
    return json.dumps(data, ensure_ascii=False, indent=indent, separators=separators, default=_plain)


def _plain(value: Any) -> Any:
    """Convert values of a sample's metadata that JSON lacks; numpy's and torch's numbers have ``item``."""
    if hasattr(value, "item"):
        return value.item()
    return list(value) if isinstance(value, (set, frozenset)) else str(value)


def _turn_to_dict(turn: Turn, text: TurnText) -> dict[str, Any]:
    return {
        "context_text": text.context,
        "sampled_text": text.sampled,
        "message": _data(turn.message),
        "results": [{**_data(result, "reason"), "latency_s": round(result.latency_s, 6)} for result in turn.results],
        "reward": turn.reward,
        "finish": turn.finish,
        "version": turn.version,
        **({"versions": list(turn.versions)} if turn.versions else {}),
        "sample_s": round(turn.sample_s, 6),
        "tools_s": round(turn.tools_s, 6),
        **({"row": turn.row, "fork": turn.fork} if turn.row else {}),
        **({"state": turn.state} if turn.state else {}),
        **({"images": list(turn.images)} if turn.images else {}),
        **({"observed": [_data(each) for each in turn.observed]} if turn.observed else {}),
        **({"tools": [_data(tool) for tool in turn.tools]} if turn.tools is not None else {}),
        "context_ids": list(turn.context_ids),
        "sampled_ids": list(turn.sampled_ids),
        "logprobs": [round(value, 6) for value in turn.logprobs],
        **({"teacher_logprobs": [round(value, 6) for value in turn.teacher_logprobs]} if turn.teacher_logprobs else {}),
    }


def _score_to_dict(score: Score) -> dict[str, Any]:
    rows = {"turns" if name == "turn_rewards" else name: value for name, value in _data(score).items()}
    latency = {name: round(value, 6) for name, value in score.latency_s.items()}
    return {**rows, "latency_s": latency, "seconds": round(score.seconds, 6)}
