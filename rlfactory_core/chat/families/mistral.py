"""Mistral: ``[INST]…[/INST]`` and ``[TOOL_CALLS]…``, for tokenizers that come as ``tokenizer.json`` with a template.

Models with tokenizers up to v7 write ``[TOOL_CALLS]`` before a JSON list (``[{"name": …, "arguments": {…}}, …]``),
later ones before each ``NAME[ARGS]{…}``, with ``[CALL_ID]…`` in between in some versions. Magistral thinks between
``[THINK]`` and ``[/THINK]``.

Templates up to v7 show the tools before the *last* user message, and those of v3 also write the system message there,
some only if nothing follows. Both therefore move when the user writes again, and the system message may disappear after
a call. Here they stay where they were. A call's id has nine letters or digits: an id that the model wrote is repeated
in the result, any other id is changed to that form.

mistral-common, Mistral's own renderer, works on whole requests, not on text that follows a sampled turn, and only with
its own tokenizer files. With these files and the templates that it writes for them, the ids here equal its ids (tests
compare v3, v7 and Tekken). If a model's template differs, as that of Mistral-7B-Instruct-v0.3 does, which writes a
result as it is and not as a JSON string, the model's template is followed.

A ``NAME[ARGS]{…}`` call is complete if its JSON is, also at the end of the text; ``[ARGS]`` may be missing. A list that
is not JSON up to its ``]`` holds no calls and is one error.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlfactory_core.chat.parsers.json_calls import read_arguments, read_call_list
from rlfactory_core.chat.parsers.turn import Parser, Syntax, TurnReader, named, skip_space
from rlfactory_core.chat.template import TemplateFormat
from rlfactory_core.types import Message, ToolSpec

_ID = re.compile(r"[A-Za-z0-9]{9}")
_ID_BEFORE = re.compile(r"\[CALL_ID\]([A-Za-z0-9]{9})(?:\[ARGS\])?\s*\Z")
_ID_BEHIND = re.compile(r'\s*,\s*"id"\s*:\s*"([A-Za-z0-9]{9})"\s*}')
_MOVING = re.compile(r"\[AVAILABLE_TOOLS\].*?\[/AVAILABLE_TOOLS\]", re.DOTALL)
_OPEN = "[TOOL_CALLS]"
_HEAD = re.compile(r"\s*([^\s\[{]*)\s*(?:\[CALL_ID\][^\[{]*)?(?:\[ARGS\])?\s*")


def _read(turn: TurnReader, start: int) -> int:
    begin = skip_space(turn.text, start)
    if turn.text.startswith("[", begin) and not turn.text.startswith("[ARGS]", begin):
        return read_call_list(turn, begin)
    head = named(_HEAD, turn.text, start, f"neither a list nor a function name follows {_OPEN}")
    return turn.add(read_arguments(turn.text, head.end(), head[1]))


_FORM = f'{_OPEN}[{{"name": "NAME", "arguments": {{…}}}}] or {_OPEN}NAME[ARGS]{{…}}'
parse_mistral = Parser((Syntax(_OPEN, _read, _FORM, re.compile(re.escape(_OPEN))),), thinking=("[THINK]", "[/THINK]"))


class MistralFormat(TemplateFormat):
    """Mistral with a ``tokenizer.json``: calls after ``[TOOL_CALLS]``."""

    name = "mistral"
    marks = ("[INST]", _OPEN)
    stops = ("</s>",)
    parser = parse_mistral
    thinks = False

    def _find_id(self, text: str, start: int, end: int) -> re.Match[str] | None:
        return _ID_BEFORE.search(text, max(0, start - 40), start) or _ID_BEHIND.match(text, end)

    def _own_id(self, call_id: str, name: str) -> str:
        return call_id if _ID.fullmatch(call_id) else re.sub("[^A-Za-z0-9]", "", call_id).rjust(9, "0")[-9:]

    def keeps(self, messages: Sequence[Message]) -> bool:
        """True if the template moves nothing, or if there is one user message and no system message."""
        roles = [message.role for message in messages]
        return (roles.count("user") <= 1 and "system" not in roles) or not self._moves()

    def forgetful(self, text: str, messages: Sequence[Message]) -> str:
        text = _MOVING.sub("", text)
        for message in messages:
            if message.role == "system":
                text = re.sub(rf"(?<=\[INST\])( ?){re.escape(message.content)}\n\n", r"\1", text, count=1)
        return text

    def _moves(self) -> bool:
        tools = [ToolSpec("search", "?", {"type": "object", "properties": {}})]
        messages = [Message("system", "?"), Message("user", "?"), Message("assistant", "!"), Message("user", "!")]
        return not self.render(messages, tools).startswith(self.render(messages[:2], tools))
