"""Mistral: ``[TOOL_CALLS]`` before a JSON list of calls, or before each ``NAME[ARGS]{…}``.

The list is of tokenizers up to v7 (``[{"name": …, "arguments": {…}}, …]``); later ones write a name, perhaps
``[CALL_ID]…``, ``[ARGS]`` and the arguments. Magistral thinks between ``[THINK]`` and ``[/THINK]``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlfactory_core.chat.parsers.json_calls import CallObject, read_call_object, read_object
from rlfactory_core.chat.parsers.turn import MAX_CALLS, MalformedError, Syntax, Turn, is_name, read_turn, skip_space
from rlfactory_core.types import Message, ToolSpec

_OPEN = "[TOOL_CALLS]"
_HEAD = re.compile(r"\s*([^\s\[{]*)\s*(?:\[CALL_ID\][^\[{]*)?(?:\[ARGS\])?\s*")


def parse_mistral(text: str, tools: Sequence[ToolSpec] = (), *, thinking_open: bool = False) -> Message:
    """Read one assistant turn; see `read_turn` for thinking and limits.

    Nothing closes a ``NAME[ARGS]{…}`` call but its JSON, so whole JSON is a whole call, also at the end of the text;
    ``[ARGS]`` may lack, as peers read it too. A list that is not JSON up to its ``]`` holds no calls and is one error.
    Peers disagree on ``[ARGS]`` calls (older ones know the list only): they are read. Call ids that the model writes
    are not used.
    """
    return read_turn(text, tools, _MISTRAL, thinking=("[THINK]", "[/THINK]"), thinking_open=thinking_open)


def _read(turn: Turn, start: int) -> int:
    begin = skip_space(turn.text, start)
    if turn.text.startswith("[", begin) and not turn.text.startswith("[ARGS]", begin):
        return _read_list(turn, begin)
    head = _HEAD.match(turn.text, start)
    name = head.group(1) if head else ""
    if head is None or not is_name(name):
        raise MalformedError(f"neither a list nor a function name follows {_OPEN}", start)
    arguments = read_object(turn.text, head.end(), name)
    turn.call(name, turn.text[arguments.start : arguments.end], arguments.value)
    return arguments.end


def _read_list(turn: Turn, begin: int) -> int:
    found: list[CallObject] = []
    position = begin + 1
    while turn.num_read + len(found) < MAX_CALLS:
        call = read_call_object(turn.text, position)
        found.append(call)
        position = skip_space(turn.text, call.end)
        if turn.text.startswith("]", position):
            break
        if not turn.text.startswith(",", position):
            raise MalformedError("the list of calls is not valid JSON (expecting ',' or ']')", position)
        position += 1
    else:
        raise MalformedError(f"a turn holds at most {MAX_CALLS} calls", position)
    for call in found:
        turn.call(call.name, call.arguments_text, call.arguments)
    return position + 1


_MISTRAL = Syntax(
    _OPEN,
    _read,
    f'{_OPEN}[{{"name": "NAME", "arguments": {{…}}}}] or {_OPEN}NAME[ARGS]{{…}}',
    re.compile(re.escape(_OPEN)),
)
