"""Ollama's Modelfile for a run's model: a Go template that writes conversations as the run's chat format does.

Ollama does not read the chat template of a GGUF file: it looks for the nearest of its own, and may take a wrong one. So
the template is made here from what the chat format writes for a few conversations, and compared with it on others. One
difference stays: Ollama writes tools and arguments as JSON without spaces.

Fields of the template: https://github.com/ollama/ollama/blob/main/docs/template.md
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlfactory_core.errors import ChatFormatError, ModelError
from rlfactory_core.protocols import ChatFormat
from rlfactory_core.rollout.written import written_text
from rlfactory_core.types import Message, ToolCall, ToolSpec

_SYSTEM, _USER, _RESULTS, _TEXT, _THOUGHT = "@system@", "@user@", ("@result1@", "@result2@"), "@text@", "@thought@"
_SCHEMA = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
_TOOLS = [ToolSpec(f"probe_{name}", f"{name} probe", _SCHEMA) for name in ("first", "second")]


@dataclass(frozen=True, slots=True)
class _Head:
    """What stands before the first user's text, in parts: texts, and the places of the system's text and the tools."""

    parts: tuple[str, ...]  # texts, `_SYSTEM` and `_TOOL`


_TOOL = "@tools@"


@dataclass(frozen=True, slots=True)
class _Pieces:
    """The texts between the contents of a conversation."""

    heads: Mapping[tuple[bool, bool], _Head]  # with a system message, with tools
    tool: tuple[str, str, str]  # before and after each tool's function, and between two tools
    user: str  # before a further user message
    after_user: str  # up to what the model samples
    result: tuple[str, str]  # before the first tool result after a turn, and between two
    after_result: str
    unthinking: str  # at the beginning of a turn without thinking
    thinking: tuple[str, str] | None  # before and after a turn's thinking, if the model writes it apart
    call: tuple[str, str, str]  # before a call's name, between it and the arguments, behind them
    between_calls: str | None  # None: a turn has one call at most
    beside: str | None  # between a turn's text and its calls; None: the text is left out
    stop: str


def modelfile(chat: ChatFormat, config: Mapping[str, Any]) -> str:
    """
    Args:
        config: the run's, which has the most tokens and the temperature.

    Raises:
        ModelError: a Go template cannot write what the chat format writes.
    """
    pieces = _exact_pieces(chat)
    stops = dict.fromkeys(chat.decode([id_]) for id_ in chat.stop_token_ids)
    rollout = config.get("rollout") or {}
    lines = [
        "FROM ./model.gguf",
        f'TEMPLATE """{_go(pieces)}"""',
        *(f"PARAMETER stop {json.dumps(stop)}" for stop in stops),
        "PARAMETER temperature 0",
        f"PARAMETER num_ctx {rollout.get('max_tokens', 4096)}",
        f"PARAMETER num_predict {rollout.get('max_turn_tokens', 512)}",
    ]
    return "\n".join(lines) + "\n"


def _exact_pieces(chat: ChatFormat) -> _Pieces:
    """The pieces of a chat format, if conversations are made of them."""
    cause: Exception | None = None
    try:
        pieces = _probe(chat)
        played = _conversations(1 if pieces.between_calls is None else 2)
        if all(_written(pieces, *each) == _expected(chat, *each) for each in played):
            return pieces
    except (ValueError, IndexError) as error:
        cause = error
    raise ModelError(
        f"The chat format {chat.name} of this model cannot be written as a Go template of Ollama's. Export with "
        "--to gguf, and serve the file by llama.cpp, which reads its chat template: llama-server --jinja -m FILE"
    ) from cause


# --- what the chat format writes ------------------------------------------------------------------------------------


def _probe(chat: ChatFormat) -> _Pieces:
    start = _prompt(chat, [Message("user", _USER)], [])
    stop = chat.decode(chat.stop_token_ids[:1])
    after_user = start.split(_USER)[1]
    follow = _observed(chat, [Message("user", _USER)]).split(_USER)
    first, second = (Message("tool", text, name="probe_first", tool_call_id="c") for text in _RESULTS)
    one = _observed(chat, [first]).split(_RESULTS[0])
    two = _observed(chat, [first, second])
    calls = [ToolCall(f"c{at}", tool.name, '{"query": "@"}', {"query": "@"}) for at, tool in enumerate(_TOOLS)]
    unthinking, _, ended = _turn(chat, _TEXT, []).partition(_TEXT)
    thinking = _turn(chat, _TEXT, [], _THOUGHT).partition(_TEXT)[0].split(_THOUGHT)

    def calling(text: str, some: Sequence[ToolCall]) -> str:
        return _turn(chat, text, some).removesuffix(stop).removeprefix(unthinking)

    call, beside = _call_pieces(calling("", calls[:1]), calls[0]), calling(_TEXT, calls[:1])
    first_call, second_call = ("".join((call[0], each.name, call[1], each.arguments_text, call[2])) for each in calls)
    try:
        both = calling("", calls)
    except ChatFormatError:
        between_calls = None
    else:
        between_calls = both.removeprefix(first_call).removesuffix(second_call)
        if both != f"{first_call}{between_calls}{second_call}":
            raise ValueError("two calls are written otherwise than one")
    if follow[1] != after_user or ended != stop:
        raise ValueError("the parts of a conversation depend on each other")
    apart = None if beside == first_call else beside.removeprefix(_TEXT).removesuffix(first_call)
    if apart is not None and beside != f"{_TEXT}{apart}{first_call}":
        raise ValueError("text beside calls is written otherwise")
    heads, tool = _heads(chat)
    return _Pieces(
        heads,
        tool,
        follow[0],
        after_user,
        (one[0], _between(two, *_RESULTS)),
        one[1],
        unthinking,
        (thinking[0], thinking[1]) if len(thinking) == 2 else None,
        call,
        between_calls,
        apart,
        stop,
    )


def _prompt(chat: ChatFormat, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> str:
    return chat.decode(chat.initial_ids(messages, tools))


def _observed(chat: ChatFormat, messages: Sequence[Message]) -> str:
    return chat.decode(chat.observation_ids(messages))


def _turn(chat: ChatFormat, text: str, calls: Sequence[ToolCall], reasoning: str = "") -> str:
    """A sampled turn with its stop token."""
    return written_text(chat, Message("assistant", text, reasoning, tool_calls=tuple(calls)))


def _between(text: str, first: str, second: str) -> str:
    return text[text.index(first) + len(first) : text.index(second)]


def _call_pieces(text: str, call: ToolCall) -> tuple[str, str, str]:
    before, _, rest = text.partition(call.name)
    middle, found, behind = rest.partition(call.arguments_text)
    if not found:
        raise ValueError("the arguments of a call are written otherwise")
    return before, middle, behind


def _heads(chat: ChatFormat) -> tuple[dict[tuple[bool, bool], _Head], tuple[str, str, str]]:
    heads, tool = {}, ("", "", "")
    for system in (False, True):
        messages = [*([Message("system", _SYSTEM)] if system else []), Message("user", _USER)]
        plain = _prompt(chat, messages, []).split(_USER)[0]
        heads[system, False] = _Head(_cut(plain, system))
        offered = _prompt(chat, messages, _TOOLS).split(_USER)[0]
        functions = [_function(offered, tool) for tool in _TOOLS]
        between = _between(offered, *functions)
        before = offered[: offered.index(functions[0])]
        behind = offered[offered.index(functions[1]) + len(functions[1]) :]
        # What the two have around them in common belongs to each: {"type": "function", "function": … }
        opened = _common_end(before, between)
        closed = _common_start(between[: len(between) - len(opened)], behind)
        tool = (opened, closed, between[len(closed) : len(between) - len(opened)])
        text = before.removesuffix(opened) + _TOOL + behind.removeprefix(closed)
        heads[system, True] = _Head(_cut(text, system))
    return heads, tool


def _function(text: str, tool: ToolSpec) -> str:
    """A tool's function as it stands in a text."""
    function = tool.function_schema["function"]
    for separators in ((", ", ": "), (",", ":")):
        if (found := json.dumps(function, ensure_ascii=False, separators=separators)) in text:
            return found
    raise ValueError("tools are not written as JSON")


def _common_start(first: str, second: str) -> str:
    size = next((at for at, pair in enumerate(zip(first, second, strict=False)) if pair[0] != pair[1]), None)
    return first[: min(len(first), len(second)) if size is None else size]


def _common_end(first: str, second: str) -> str:
    return _common_start(first[::-1], second[::-1])[::-1]


def _cut(text: str, system: bool) -> tuple[str, ...]:
    """A head at the places of the system's text and the tools."""
    if text.count(_SYSTEM) != system:
        raise ValueError("the system's text is not written once")
    parts: list[str] = [text]
    for mark in (_SYSTEM, _TOOL):
        parts = [
            piece
            for part in parts
            for at, between in enumerate(part.split(mark) if part not in (_SYSTEM, _TOOL) else [part])
            for piece in ([mark, between] if at else [between])
        ]
    return tuple(parts)


# --- the pieces put together, here and in Go ------------------------------------------------------------------------

_Conversation = tuple[Sequence[Message], Sequence[ToolSpec]]


def _conversations(most: int) -> list[_Conversation]:
    """Others than those of which the pieces were made; ``most`` is of calls in a turn."""
    call = [ToolCall(f"k{at}", "look_up", f'{{"key": {at}}}', {"key": at}) for at in range(2)]
    tool = ToolSpec("look_up", "Looks up.", {"type": "object", "properties": {"key": {"type": "integer"}}})
    played = [
        Message("user", "How much is it?"),
        Message("assistant", "I look.", tool_calls=(call[0],)),
        Message("tool", "3", name="look_up", tool_call_id="k0"),
        Message("assistant", "", "Both, then.", tool_calls=tuple(call[:most])),
        *(Message("tool", f"{at + 4}", name="look_up", tool_call_id=f"k{at}") for at in range(most)),
        Message("assistant", "It is 5."),
        Message("user", "Thanks. And now?"),
    ]
    system = Message("system", "Be brief.")
    openings: list[list[Message]] = [[], [system]]
    return [
        ([*opening, *messages], tools)
        for opening in openings
        for messages in (played, played[:1])
        for tools in ([], [tool], [tool, *_TOOLS])
    ]


def _expected(chat: ChatFormat, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> str:
    """As the run's ids are: the prompt, the turns, and what follows them."""
    first = next(at for at, message in enumerate(messages) if message.role == "user") + 1
    text, seen = _prompt(chat, messages[:first], tools), list[Message]()
    for message in messages[first:]:
        if message.role == "assistant":
            turn = _turn(chat, message.content, message.tool_calls, message.reasoning)
            text += (_observed(chat, seen) if seen else "") + turn
            seen = []
        else:
            seen.append(message)
    return text + (_observed(chat, seen) if seen else "")


def _written(pieces: _Pieces, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> str:
    """As the Go template writes it, but for the spaces in JSON."""
    system = "".join(message.content for message in messages if message.role == "system")
    opened, closed, between = pieces.tool
    functions = (json.dumps(tool.function_schema["function"], ensure_ascii=False) for tool in tools)
    marks = {_SYSTEM: system, _TOOL: between.join(opened + function + closed for function in functions)}
    text = "".join(marks.get(part, part) for part in pieces.heads[bool(system), bool(tools)].parts)
    last = ""
    for message in messages:
        ended = pieces.after_result if last == "tool" else pieces.after_user
        if message.role == "user":
            text += (pieces.user if last else "") + message.content
        elif message.role == "tool":
            text += pieces.result[last == "tool"] + message.content
        elif message.role == "assistant":
            name, arguments, behind = pieces.call
            calls = (f"{name}{call.name}{arguments}{call.arguments_text}{behind}" for call in message.tool_calls)
            content = message.content
            if content and message.tool_calls:
                content = "" if pieces.beside is None else content + pieces.beside
            thought = pieces.unthinking
            if message.reasoning and pieces.thinking is not None:
                thought = message.reasoning.join(pieces.thinking)
            text += ended + thought + content + (pieces.between_calls or "").join(calls) + pieces.stop
        last = last if message.role == "system" else message.role
    return text + ("" if last == "assistant" else pieces.after_result if last == "tool" else pieces.after_user)


def _go(pieces: _Pieces) -> str:
    """The same as `_written`, in Go's language of templates."""

    def text(literal: str) -> str:
        return f"{{{{ {json.dumps(literal, ensure_ascii=False)} }}}}" if literal else ""

    def each(field: str, between: str, body: str) -> str:
        separator = f"{{{{ if $i }}}}{text(between)}{{{{ end }}}}" if between else ""
        return f"{{{{ range $i, $each := {field} }}}}{separator}{body}{{{{ end }}}}"

    opened, closed, between = pieces.tool
    tools = each("$.Tools", between, f"{text(opened)}{{{{ $each.Function }}}}{text(closed)}")
    marks = {_SYSTEM: "{{ $.System }}", _TOOL: tools}

    both, system, offered, neither = (
        "".join(marks.get(part) or text(part) for part in pieces.heads[key].parts)
        for key in ((True, True), (True, False), (False, True), (False, False))
    )

    name, arguments, behind = pieces.call
    call = f"{text(name)}{{{{ $each.Function.Name }}}}{text(arguments)}{{{{ $each.Function.Arguments }}}}{text(behind)}"
    ended = (
        f'{{{{ if eq $last "tool" }}}}{text(pieces.after_result)}{{{{ else }}}}{text(pieces.after_user)}{{{{ end }}}}'
    )
    content = "{{ if not .ToolCalls }}{{ .Content }}{{ end }}"
    if pieces.beside is not None:
        content = f"{{{{ .Content }}}}{{{{ if and .Content .ToolCalls }}}}{text(pieces.beside)}{{{{ end }}}}"
    thought = text(pieces.unthinking)
    if pieces.thinking is not None:
        opening, closing = map(text, pieces.thinking)
        thought = f"{{{{ if .Thinking }}}}{opening}{{{{ .Thinking }}}}{closing}{{{{ else }}}}{thought}{{{{ end }}}}"
    return "".join(
        (
            f"{{{{ if and .System .Tools }}}}{both}{{{{ else if .System }}}}{system}",
            f"{{{{ else if .Tools }}}}{offered}{{{{ else }}}}{neither}{{{{ end }}}}",
            '{{ $last := "" }}{{ range .Messages }}',
            f'{{{{ if eq .Role "user" }}}}{{{{ if $last }}}}{text(pieces.user)}{{{{ end }}}}{{{{ .Content }}}}',
            f'{{{{ else if eq .Role "tool" }}}}{{{{ if eq $last "tool" }}}}{text(pieces.result[1])}{{{{ else }}}}',
            f"{text(pieces.result[0])}{{{{ end }}}}{{{{ .Content }}}}",
            f'{{{{ else if eq .Role "assistant" }}}}{ended}{thought}{content}',
            f"{each('.ToolCalls', pieces.between_calls or '', call)}{text(pieces.stop)}{{{{ end }}}}",
            '{{ if ne .Role "system" }}{{ $last = .Role }}{{ end }}{{ end }}',
            f'{{{{ if ne $last "assistant" }}}}{ended}{{{{ end }}}}',
        )
    )
