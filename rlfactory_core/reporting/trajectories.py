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

from rlfactory_core.types import Fault, Group, Message, Sample, Score, ToolCall, ToolResult, ToolSpec, Trajectory, Turn

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
            "sample": _sample_to_dict(trajectory.sample),
            "attempt": trajectory.attempt,
            "stop": trajectory.stop.value,
            "reward": trajectory.reward,
            "masked": trajectory.masked,
            "seconds": round(trajectory.seconds, 6),
            "score": None if trajectory.score is None else _score_to_dict(trajectory.score),
            "faults": [_fields(fault, *_LATER) for fault in trajectory.faults],
            **{
                key: found
                for name, key in _LATER.items()
                if any(found := [getattr(each, name) for each in trajectory.faults])
            },
            "tools": [_fields(tool) for tool in trajectory.tools],
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


def _fields(item: ToolCall | ToolResult | ToolSpec | Sample | Fault, *without: str) -> dict[str, Any]:
    """The fields of a dataclass; JSON writes a string enumeration as its value."""
    return {name: getattr(item, name) for name in item.__dataclass_fields__ if name not in without}


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


def _sample_to_dict(sample: Sample) -> dict[str, Any]:
    prompt = sample.prompt
    whole = prompt if isinstance(prompt, str) else [_message_to_dict(message) for message in prompt]
    # Readers of the first releases accept no other fields.
    without = [name for name, absent in (("task", ""), ("tools", None)) if getattr(sample, name) == absent]
    return {**_fields(sample, *without), "prompt": whole, "metadata": dict(sample.metadata)}


def _message_to_dict(message: Message) -> dict[str, Any]:
    row: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.reasoning:
        row["reasoning"] = message.reasoning
    if message.tool_calls:
        row["tool_calls"] = [
            {**_fields(call), "arguments": None if call.arguments is None else dict(call.arguments)}
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        row["tool_call_id"] = message.tool_call_id
    if message.name is not None:
        row["name"] = message.name
    return row


def _turn_to_dict(turn: Turn, text: TurnText) -> dict[str, Any]:
    return {
        "context_text": text.context,
        "sampled_text": text.sampled,
        "message": _message_to_dict(turn.message),
        "results": [{**_fields(result, "reason"), "latency_s": round(result.latency_s, 6)} for result in turn.results],
        "reward": turn.reward,
        "finish": turn.finish,
        "version": turn.version,
        **({"versions": list(turn.versions)} if turn.versions else {}),
        "sample_s": round(turn.sample_s, 6),
        "tools_s": round(turn.tools_s, 6),
        **({"row": turn.row, "fork": turn.fork} if turn.row else {}),
        **({"state": turn.state} if turn.state else {}),
        **({"images": list(turn.images)} if turn.images else {}),
        "context_ids": list(turn.context_ids),
        "sampled_ids": list(turn.sampled_ids),
        "logprobs": [round(value, 6) for value in turn.logprobs],
    }


def _score_to_dict(score: Score) -> dict[str, Any]:
    return {
        "value": score.value,
        "components": dict(score.components),
        "turns": list(score.turn_rewards),
        "verdicts": {
            name: {"passed": verdict.passed, "reasons": list(verdict.reasons), "data": dict(verdict.data)}
            for name, verdict in score.verdicts.items()
        },
        "latency_s": {name: round(value, 6) for name, value in score.latency_s.items()},
        "counts": dict(score.counts),
        "seconds": round(score.seconds, 6),
    }
