"""Trajectories on disk: one JSON object a line, whole enough to read, to audit and to train on without a tokenizer.

Each turn holds ``context_ids`` (loss mask 0) and ``sampled_ids`` (loss mask 1) with the log-probs of the latter, so ids
and mask cannot disagree, and beside the ids their texts, so that people's tools need no tokenizer. Log-probs are kept
to 1e-6. Tuples inside ``answer``, ``metadata``, tool arguments and verdict data come back as lists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlfactory_core.types import (
    Fault,
    FaultKind,
    Message,
    Sample,
    Score,
    StopReason,
    ToolCall,
    ToolResult,
    ToolSpec,
    Trajectory,
    Turn,
    Verdict,
)

FORMAT = 1  # raised when a reader of the former number would misread


@dataclass(frozen=True, slots=True)
class TurnText:
    """A turn's tokens as text, special tokens included; empty where the sampler gave no ids."""

    context: str  # masked from the loss: the prompt in the first turn, the observation later
    sampled: str  # the model's own


@dataclass(frozen=True, slots=True)
class StoredTrajectory:
    """A trajectory and its texts, one `TurnText` a turn."""

    trajectory: Trajectory
    texts: tuple[TurnText, ...]

    @classmethod
    def of(cls, trajectory: Trajectory, decode: Callable[[Sequence[int]], str]) -> StoredTrajectory:
        """Take the texts with ``decode``, the chat format's."""
        texts = (TurnText(decode(turn.context_ids), decode(turn.sampled_ids)) for turn in trajectory.turns)
        return cls(trajectory, tuple(texts))

    def to_dict(self) -> dict[str, Any]:
        """JSON-able data. ``reward`` and ``masked`` follow from the rest; they stand there for other tools."""
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
            "faults": [_fault_to_dict(fault) for fault in trajectory.faults],
            "tools": [
                {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
                for tool in trajectory.tools
            ],
            "turns": [_turn_to_dict(turn, text) for turn, text in zip(trajectory.turns, self.texts, strict=True)],
        }

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> StoredTrajectory:
        """The inverse of `to_dict`.

        Raises:
            ValueError: the format is newer than this reader.
            KeyError: a field is missing.
        """
        if row["format"] > FORMAT:
            raise ValueError(f"format {row['format']}, this rlfactory reads up to {FORMAT}: upgrade rlfactory")
        trajectory = Trajectory(
            sample=_sample_from_dict(row["sample"]),
            attempt=row["attempt"],
            turns=tuple(_turn_from_dict(turn) for turn in row["turns"]),
            stop=StopReason(row["stop"]),
            faults=tuple(Fault(**{**fault, "kind": FaultKind(fault["kind"])}) for fault in row["faults"]),
            score=None if row["score"] is None else _score_from_dict(row["score"]),
            seconds=row["seconds"],
            tools=tuple(ToolSpec(**tool) for tool in row["tools"]),
        )
        return cls(trajectory, tuple(TurnText(turn["context_text"], turn["sampled_text"]) for turn in row["turns"]))


def _sample_to_dict(sample: Sample) -> dict[str, Any]:
    prompt = sample.prompt
    return {
        "id": sample.id,
        "prompt": prompt if isinstance(prompt, str) else [_message_to_dict(message) for message in prompt],
        "answer": sample.answer,
        "metadata": dict(sample.metadata),
        "split": sample.split,
        "slice": sample.slice,
    }


def _sample_from_dict(row: Mapping[str, Any]) -> Sample:
    prompt = row["prompt"]
    whole = prompt if isinstance(prompt, str) else tuple(_message_from_dict(message) for message in prompt)
    return Sample(**{**row, "prompt": whole})


def _message_to_dict(message: Message) -> dict[str, Any]:
    row: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.reasoning:
        row["reasoning"] = message.reasoning
    if message.tool_calls:
        row["tool_calls"] = [_call_to_dict(call) for call in message.tool_calls]
    if message.tool_call_id is not None:
        row["tool_call_id"] = message.tool_call_id
    if message.name is not None:
        row["name"] = message.name
    return row


def _message_from_dict(row: Mapping[str, Any]) -> Message:
    return Message(**{**row, "tool_calls": tuple(ToolCall(**call) for call in row.get("tool_calls", ()))})


def _call_to_dict(call: ToolCall) -> dict[str, Any]:
    return {
        "id": call.id,
        "name": call.name,
        "arguments_text": call.arguments_text,
        "arguments": None if call.arguments is None else dict(call.arguments),
        "error": call.error,
    }


def _result_to_dict(result: ToolResult) -> dict[str, Any]:
    return {
        "call_id": result.call_id,
        "name": result.name,
        "content": result.content,
        "fault": None if result.fault is None else result.fault.value,
        "latency_s": round(result.latency_s, 6),
        "attempts": result.attempts,
        "cached": result.cached,
        "truncated": result.truncated,
        "size_bytes": result.size_bytes,
    }


def _result_from_dict(row: Mapping[str, Any]) -> ToolResult:
    return ToolResult(**{**row, "fault": None if row["fault"] is None else FaultKind(row["fault"])})


def _turn_to_dict(turn: Turn, text: TurnText) -> dict[str, Any]:
    return {
        "context_text": text.context,
        "sampled_text": text.sampled,
        "message": _message_to_dict(turn.message),
        "results": [_result_to_dict(result) for result in turn.results],
        "reward": turn.reward,
        "finish": turn.finish,
        "version": turn.version,
        "sample_s": round(turn.sample_s, 6),
        "tools_s": round(turn.tools_s, 6),
        "context_ids": list(turn.context_ids),
        "sampled_ids": list(turn.sampled_ids),
        "logprobs": [round(value, 6) for value in turn.logprobs],
    }


def _turn_from_dict(row: Mapping[str, Any]) -> Turn:
    return Turn(
        context_ids=tuple(row["context_ids"]),
        sampled_ids=tuple(row["sampled_ids"]),
        logprobs=tuple(row["logprobs"]),
        message=_message_from_dict(row["message"]),
        results=tuple(_result_from_dict(result) for result in row["results"]),
        reward=row["reward"],
        finish=row["finish"],
        version=row["version"],
        sample_s=row["sample_s"],
        tools_s=row["tools_s"],
    )


def _fault_to_dict(fault: Fault) -> dict[str, Any]:
    return {"kind": fault.kind.value, "source": fault.source, "message": fault.message, "turn": fault.turn}


def _score_to_dict(score: Score) -> dict[str, Any]:
    return {
        "value": score.value,
        "components": dict(score.components),
        "turns": list(score.turns),
        "verdicts": {
            name: {"passed": verdict.passed, "reasons": list(verdict.reasons), "data": dict(verdict.data)}
            for name, verdict in score.verdicts.items()
        },
        "latency_s": {name: round(value, 6) for name, value in score.latency_s.items()},
        "counts": dict(score.counts),
        "seconds": round(score.seconds, 6),
    }


def _score_from_dict(row: Mapping[str, Any]) -> Score:
    verdicts = {
        name: Verdict(verdict["passed"], tuple(verdict["reasons"]), verdict["data"])
        for name, verdict in row["verdicts"].items()
    }
    # Files of the first release have neither.
    counts, seconds = row.get("counts", {}), row.get("seconds", 0.0)
    return Score(row["value"], row["components"], tuple(row["turns"]), verdicts, row["latency_s"], counts, seconds)
