"""Reads traces: whole conversations, from which a model learns what the assistant wrote, in the layouts of others.

- OpenAI, TRL, verl: ``messages`` and ``tools``, or ``prompt`` and ``completion`` or ``response``, texts or messages.
- ShareGPT, LLaMA-Factory: ``conversations`` of ``from`` and ``value`` (``function_call``, ``observation``), ``system``,
  ``tools``.
- xLAM, APIGen: ``query``, ``answers``, ``tools``, the latter two as JSON.
- ToolACE, Hermes: the tools, the calls and their results are in texts, see `trace_texts`.

Each row may have another layout. What is not understood is refused, with its row; what is understood and not learnt
is in `Trace.notes`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rlfactory_core.errors import DataError, nearest
from rlfactory_core.tasks.data import rows_of
from rlfactory_core.tasks.messages import data_in, messages_in, read_messages, role_of
from rlfactory_core.tasks.trace_texts import tools_in, with_calls
from rlfactory_core.tasks.trace_tools import no_json, tool_specs
from rlfactory_core.types import Message, Role, ToolSpec

_WHOLE = ("messages", "conversations", "conversation")
_ENDS = ("completion", "response")  # of a row whose prompt is a column of its own
_WEIGHTS = ("weight", "loss_weight", "loss", "train", "trainable")  # fields of a message: whether it is learnt
_MEDIA = ("images", "image", "videos", "video", "audios", "audio")
_THINKING = re.compile(r"(?s)\s*<think>(.*?)</think>\s*")
_NAMED_ROWS, _LISTED_ROWS = 3, 50  # whose reasons, and whose numbers an error has


@dataclass(frozen=True, slots=True)
class Trace:
    """One conversation, from which turns of the assistant are learnt.

    Args:
        place: the file and the row, for errors.
        messages: end with a turn of the assistant.
        tools: that the model is shown; None: the row says nothing of tools.
        learnt: whether it is learnt from, for each turn of the assistant.
        notes: what the row has beside, which is not used.
    """

    place: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] | None = None
    learnt: tuple[bool, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def prompt(self) -> tuple[Message, ...]:
        """The messages before the assistant's first turn."""
        first = next(number for number, message in enumerate(self.messages) if message.role == "assistant")
        return self.messages[:first]

    @property
    def turns(self) -> tuple[Message, ...]:
        """Those of the assistant."""
        return tuple(message for message in self.messages if message.role == "assistant")

    def shown(self, tools: Sequence[ToolSpec]) -> Trace:
        """The trace with these tools, if it says nothing of its own.

        Raises:
            DataError: it calls another tool.
        """
        own = tuple(tools) if self.tools is None else self.tools
        names = [tool.name for tool in own]
        for number, message in enumerate(self.messages):
            if (call := next((call for call in message.tool_calls if call.name not in names), None)) is not None:
                owner = "the task" if self.tools is None else "the row"
                named = nearest(call.name, names) if names else "There are none; expected them in the column 'tools'."
                raise DataError(
                    f"{self.place}: message {number} (from 0) calls {call.name!r}, a tool that {owner} does not have. "
                    f"{named}"
                )
        return replace(self, tools=own)


def read_traces(path: Path) -> list[Trace]:
    """All rows of a file of JSON lines, of a JSON array or of a parquet file.

    Raises:
        DataError: the file cannot be read, has no rows, or rows are no traces; the message names them.
        MissingExtraError: the file is parquet, and pyarrow is not installed.
    """
    found: list[Trace] = []
    refused: dict[int, str] = {}
    number = -1
    for number, row in enumerate(rows_of(path)):
        try:
            found.append(read_trace(row, f"{path}, row {number} (from 0)"))
        except DataError as error:
            refused[number] = str(error)
    if number < 0:
        raise DataError(f"{path} has no rows; expected at least one conversation.")
    _raise_refused(refused, number + 1)
    return found


def shown_traces(traces: Sequence[Trace], tools: Sequence[ToolSpec]) -> list[Trace]:
    """The traces as the model is shown them, see `Trace.shown`.

    Raises:
        DataError: some call tools that there are not.
    """
    found, refused = list[Trace](), dict[int, str]()
    for number, trace in enumerate(traces):
        try:
            found.append(trace.shown(tools))
        except DataError as error:
            refused[number] = str(error)
    _raise_refused(refused, len(traces))
    return found


def _raise_refused(refused: Mapping[int, str], rows: int) -> None:
    """Raise a `DataError` that names all rows that are refused, if there are any."""
    if refused:
        reasons, listed = list(refused.values()), ", ".join(map(str, list(refused)[:_LISTED_ROWS]))
        listed += ", …" if len(refused) > _LISTED_ROWS else ""
        several = [f"In all {len(refused)} of {rows} rows are refused: {listed}."] if len(refused) > 1 else []
        raise DataError("\n".join([*reasons[:_NAMED_ROWS], *several]))


def read_trace(row: Mapping[str, Any], place: str) -> Trace:
    """One row of any of the layouts.

    Raises:
        DataError: it cannot be learnt from.
    """
    try:
        return _read(_present(row), place)
    except RecursionError as error:
        raise DataError(f"{place} is nested too deeply.") from error


def _present(row: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that have a value; pandas writes NaN where there is none."""
    return {
        key: value
        for key, value in row.items()
        if value is not None and not (isinstance(value, float) and math.isnan(value))
    }


def _read(row: Mapping[str, Any], place: str) -> Trace:
    _refuse_other_kinds(row, place)
    tools = _tools(row, place)
    items, learnt = _conversation(row, place)
    messages = list(read_messages(items, place))
    learnt = _by_column(row, messages, place) or learnt
    notes = ["enable_thinking, in place of which chat.thinking is used"] if "enable_thinking" in row else []
    if (column := _whole(row)) is not None:
        beside = (name for name in (*_WHOLE, *_ENDS) if name != column and row.get(name))
        notes += [f"the column {name!r}, because {column!r} holds a conversation" for name in beside]
    if isinstance(system := row.get("system"), str) and system.strip():
        messages = [Message("system", system), *messages]
    if messages[0].role == "system" and (found := tools_in(messages[0].content, place)) is not None:
        tools, messages = tools or found, messages[1:]
        notes.append("the system message, because the chat format writes the tools and the form of calls itself")
    messages = [*with_calls(map(_with_reasoning, messages), tools or (), place)]
    turns = [number for number, message in enumerate(messages) if message.role == "assistant"]
    if not turns or not any(learnt):
        has = "a weight of 1" if turns else "the role 'assistant'"
        raise DataError(f"{place} has no turn with {has}, so there is nothing to learn.")
    if messages[turns[-1] + 1 :]:
        notes.append("what follows the assistant's last turn")
    messages = messages[: turns[-1] + 1]
    _check_order(messages, place)
    _check_arguments(messages, place)
    trace = Trace(place, tuple(messages), tools, tuple(learnt), tuple(notes))
    return trace if tools is None else trace.shown(tools)


def _refuse_other_kinds(row: Mapping[str, Any], place: str) -> None:
    """Refuse rows of which a reader of conversations would miss what they are for."""
    if {"chosen", "rejected"} <= row.keys():
        raise DataError(f"{place} holds a preference ('chosen' and 'rejected'); expected a conversation to learn from.")
    if row.get("label") is False or row.get("kto_tag") is False:
        raise DataError(f"{place} is labelled false, as an answer that is not wanted; leave it out.")
    if media := [name for name in _MEDIA if row.get(name)]:
        raise DataError(f"{place} has {media[0]}, and traces are learnt from as texts; leave the row out.")


def _tools(row: Mapping[str, Any], place: str) -> tuple[ToolSpec, ...] | None:
    """None: the row says nothing of tools. ``functions`` is OpenAI's older name."""
    column = next((name for name in ("tools", "functions") if name in row), None)
    if column is None:
        return None
    listed = row[column]
    if isinstance(listed, str) and listed.strip() in ("", "null", "None"):
        return ()
    return tool_specs(listed, f"{place}: column {column!r}")


def _conversation(row: Mapping[str, Any], place: str) -> tuple[list[Any], list[bool]]:
    """The messages as they stand, and whether each turn of the assistant is learnt from."""
    if {"query", "answers"} <= row.keys():
        return _question_and_calls(row["query"], row["answers"], place), [True]
    column = _whole(row)
    end = next((name for name in _ENDS if row.get(name)), None)
    if column is not None:
        return _listed(row[column], f"{place}: column {column!r}", "user", learnt=True)
    if row.get("prompt") and end is not None:
        before, not_learnt = _listed(row["prompt"], f"{place}: column 'prompt'", "user", learnt=False)
        after, learnt = _listed(row[end], f"{place}: column {end!r}", "assistant", learnt=True)
        return [*before, *after], [*not_learnt, *learnt]
    raise DataError(
        f"{place} has the columns {', '.join(row) or 'none'}; expected a conversation in 'messages' or "
        "'conversations', 'prompt' and 'completion', or 'query' and 'answers'."
    )


def _whole(row: Mapping[str, Any]) -> str | None:
    """The column that holds the whole conversation, if one does."""
    return next((name for name in _WHOLE if row.get(name)), None)


def _listed(value: Any, place: str, role: Role, *, learnt: bool) -> tuple[list[Any], list[bool]]:
    """The messages in a column, and the weights that they have.

    Args:
        role: of a text.
        learnt: of a turn without a weight.
    """
    items = messages_in(value, place)
    if isinstance(items, str):
        items = [{"role": role, "content": items}]
    weights = []
    for item in items:
        fields = item if isinstance(item, Mapping) else {}
        given = next((fields[name] for name in _WEIGHTS if fields.get(name) is not None), None)
        weight = _weight(given, f"{place} holds the message {str(item)[:200]!r}")
        if role_of(fields) == "assistant":
            weights.append(learnt if weight is None else weight)
        elif weight:
            raise DataError(f"{place} wants the message {str(item)[:200]!r} learnt; expected turns of the assistant.")
    return list(items), weights


def _weight(given: Any, place: str) -> bool | None:
    """None: there is none."""
    if given is None or (isinstance(given, float) and math.isnan(given)):
        return None
    if not isinstance(given, int | float) or given not in (0, 1):
        raise DataError(f"{place} with the weight {given!r}; expected 0 or 1.")
    return bool(given)


def _by_column(row: Mapping[str, Any], messages: Sequence[Message], place: str) -> list[bool]:
    """What a column says of the turns: one weight for each message, or for each turn of the assistant."""
    name = next((name for name in _WEIGHTS if isinstance(row.get(name), list)), None)
    if name is None:
        return []
    weights = [_weight(each, f"{place}: column {name!r} has an entry") is not False for each in row[name]]
    turns = [number for number, message in enumerate(messages) if message.role == "assistant"]
    if len(weights) not in (len(messages), len(turns)):
        raise DataError(
            f"{place}: column {name!r} has {len(weights)} weights; expected one for each of {len(messages)} messages, "
            f"or of the assistant's {len(turns)} turns."
        )
    return [weights[number] for number in turns] if len(weights) == len(messages) else weights


def _question_and_calls(query: Any, answers: Any, place: str) -> list[Any]:
    """xLAM's row, whose answer is in words where no tool is called."""
    calls = data_in(answers) if isinstance(answers, str) else answers
    turn = {"tool_calls": calls} if isinstance(calls, list) and calls else {"content": str(answers).strip()}
    if turn.get("content") in ("", "[]"):
        raise DataError(f"{place}: column 'answers' holds no call and no text, so there is nothing to learn.")
    return [{"role": "user", "content": str(query)}, {"role": "assistant", **turn}]


def _with_reasoning(message: Message) -> Message:
    """A turn whose thinking is tagged in its text."""
    found = _THINKING.match(message.content) if message.role == "assistant" and not message.reasoning else None
    return replace(message, content=message.content[found.end() :], reasoning=found[1].strip()) if found else message


def _check_order(messages: Sequence[Message], place: str) -> None:
    """Refuse a conversation that no model can have had."""
    if messages[0].role == "assistant":
        raise DataError(f"{place} begins with the assistant; expected the question before it.")
    open_calls: dict[str, str] = {}
    before = None
    for number, message in enumerate(messages):
        what = f"{place}: message {number} (from 0)"
        if message.role == "tool":
            if message.tool_call_id not in open_calls:
                raise DataError(f"{what} is the result of a call that nobody has made, or has a result before it.")
            del open_calls[message.tool_call_id]
        elif open_calls:
            raise DataError(f"{what} follows calls of {', '.join(open_calls.values())} that have no results.")
        elif message.role == "system" and number:
            raise DataError(f"{what} is a system message, which many chat templates write at the beginning only.")
        elif message.role == "assistant":
            if before == "assistant":
                raise DataError(f"{what} follows another turn of the assistant; expected what it answers.")
            if not (message.content.strip() or message.tool_calls):
                raise DataError(f"{what} is an empty turn of the assistant.")
            open_calls = {call.id: call.name for call in message.tool_calls}
            if len(open_calls) < len(message.tool_calls):
                raise DataError(f"{what} has two calls with one id.")
        before = message.role


def _check_arguments(messages: Sequence[Message], place: str) -> None:
    for number, message in enumerate(messages):
        for call in message.tool_calls:
            if (wrong := no_json(call.arguments)) is not None:
                what = f"{place}: message {number} (from 0) calls {call.name!r}"
                raise DataError(f"{what} with arguments that are no JSON: {wrong}.")
