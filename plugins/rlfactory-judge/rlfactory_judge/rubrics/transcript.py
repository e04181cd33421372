"""A trajectory as plain data for a rubric. Everything that a model or a tool wrote is quoted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlfactory_core.rewards import extract_answer
from rlfactory_core.types import Sample, ToolCall, Trajectory, Turn
from rlfactory_judge.rubrics.quoting import MAX_QUOTED, harmless, quoted

MAX_RESULT = 4_096  # characters of one tool result or call
MAX_TRANSCRIPT = 131_072  # characters of all quotations of a transcript, or of all candidates
_LEAST = 256  # minimum characters of each piece
_MAX_DEPTH = 8  # of metadata


def final_answer(trajectory: Trajectory) -> str:
    """The policy's last ``<answer>``, otherwise its last message; empty if it wrote nothing."""
    for turn in reversed(trajectory.turns):
        answer = extract_answer(turn.message.content)
        if answer is not None:
            return answer
    return trajectory.turns[-1].message.content if trajectory.turns else ""


def sample_view(sample: Sample) -> dict[str, Any]:
    """The sample: id, prompt and system prompt (quoted), and its metadata as plain values."""
    shown = [message for message in sample.messages if message.role != "system"]
    prompt = "\n\n".join(f"{message.role}: {message.content}" for message in shown)
    system = "\n\n".join(message.content for message in sample.messages if message.role == "system")
    return {
        "id": harmless(sample.id),
        "prompt": quoted(shown[0].content if len(shown) == 1 else prompt, MAX_TRANSCRIPT),
        "system": quoted(system, MAX_TRANSCRIPT) if system else "",
        "metadata": plain_data(sample.metadata),
    }


def turn_views(turns: Sequence[Turn], budget: int = MAX_TRANSCRIPT) -> list[dict[str, Any]]:
    """Each turn: number, text and reasoning, calls and results. The longest pieces are cut until all fit the budget."""
    pieces = [len(turn.message.content) for turn in turns]
    pieces += [len(_call(call)) for turn in turns for call in turn.message.tool_calls]
    pieces += [len(result.content) for turn in turns for result in turn.results]
    limit = MAX_QUOTED
    while limit > _LEAST and sum(min(size, limit) for size in pieces) > budget:
        limit //= 2
    return [_turn_view(number, turn, limit) for number, turn in enumerate(turns, 1)]


def transcript(views: Sequence[Mapping[str, Any]]) -> str:
    """All turns as text: a heading for each piece, followed by the piece as a quotation."""
    return "\n\n".join("\n".join(_turn_lines(view)) for view in views)


def plain_data(value: object, depth: int = 0) -> Any:
    """Data without methods: dicts, lists, numbers, and texts without control tokens; anything else as its text."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if depth < _MAX_DEPTH and isinstance(value, Mapping):
        return {str(key): plain_data(item, depth + 1) for key, item in value.items()}
    if depth < _MAX_DEPTH and isinstance(value, (list, tuple)):
        return [plain_data(item, depth + 1) for item in value]
    return harmless(str(value))


def _turn_view(number: int, turn: Turn, limit: int) -> dict[str, Any]:
    message = turn.message
    short = min(limit, MAX_RESULT)
    return {
        "number": number,
        "text": quoted(message.content, limit),
        "reasoning": quoted(message.reasoning, limit) if message.reasoning else "",
        "calls": [quoted(_call(call), short) for call in message.tool_calls],
        "results": [
            {"content": quoted(result.content, short), "failed": result.fault is not None} for result in turn.results
        ],
        "cut_off": turn.finish == "length",
    }


def _turn_lines(view: Mapping[str, Any]) -> list[str]:
    number = view["number"]
    lines = [f"Turn {number}, the model's text:", view["text"]]
    for call in view["calls"]:
        lines += [f"Turn {number}, a tool call of the model:", call]
    for result in view["results"]:
        said = "the tool's refusal" if result["failed"] else "the tool's result"
        lines += [f"Turn {number}, {said}:", result["content"]]
    if view["cut_off"]:
        lines.append(f"(Turn {number} was cut off by the limit on its length.)")
    return lines


def _call(call: ToolCall) -> str:
    """A call as text. The name is the model's text too and may be unknown."""
    return f"{call.name} {call.arguments_text}"
