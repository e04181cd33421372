"""Mistral: ``[INST]…[/INST]`` and ``[TOOL_CALLS]…``, for tokenizers that come as ``tokenizer.json`` with a template.

What the templates do to history, and we do not: those up to v7 show the tools before the *last* user message, and those
of v3 the system message within it, some only while nothing follows. So both move when the user speaks again, and the
system message may be gone behind a call; here they stay where they were. Call ids have nine letters or digits: those
that the model wrote come back with the results, others are made to fit.

mistral-common is Mistral's own renderer: it works on whole requests, not on what follows a sampled turn, and only with
tokenizer files of its own. On these, and with the templates that it writes for them, the ids here are its ids (tests
compare them for v3, v7 and Tekken). Where a model's own template differs from it (that of Mistral-7B-Instruct-v0.3 puts
a result in as it is, not as a JSON string), the model's template is followed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from rlfactory_core.chat.parsers.mistral import parse_mistral
from rlfactory_core.chat.rendering import Entry
from rlfactory_core.chat.template import TemplateFormat
from rlfactory_core.types import Message, ToolCall, ToolSpec

_ID = re.compile(r"[A-Za-z0-9]{9}")
_ID_BEFORE = re.compile(r"\[CALL_ID\]([A-Za-z0-9]{9})(?:\[ARGS\])?\s*\Z")
_ID_BEHIND = re.compile(r'\s*,\s*"id"\s*:\s*"([A-Za-z0-9]{9})"\s*}')
_MOVING = re.compile(r"\[AVAILABLE_TOOLS\].*?\[/AVAILABLE_TOOLS\]", re.DOTALL)


class MistralFormat(TemplateFormat):
    """A `ChatFormat`; see `TemplateFormat` for arguments and errors."""

    name = "mistral"
    stops = ("</s>",)

    @staticmethod
    def matches(chat_template: str) -> bool:
        return "[INST]" in chat_template and "[TOOL_CALLS]" in chat_template

    def knows_thinking(self) -> bool:
        return False

    def parse_text(self, text: str, tools: Sequence[ToolSpec]) -> Message:
        """Calls keep the ids that the model wrote."""
        message = parse_mistral(text, tools)
        calls: list[ToolCall] = []
        position = 0
        for call in message.tool_calls:
            start = text.find(call.arguments_text, position)
            position = start + len(call.arguments_text)
            written = _ID_BEFORE.search(text, max(0, start - 40), start) or _ID_BEHIND.match(text, position)
            taken = {other.id for other in calls}
            calls.append(replace(call, id=written[1]) if written and written[1] not in taken else call)
        return replace(message, tool_calls=tuple(calls))

    def entry(self, message: Message) -> Entry:
        entry = super().entry(message)
        if message.role == "tool":
            entry["tool_call_id"] = _nine(entry["tool_call_id"])
        for call in entry.get("tool_calls", ()):
            call["id"] = _nine(call["id"])
        return entry

    def keeps(self, messages: Sequence[Message]) -> bool:
        """Always where the template moves nothing, else with one user message and no system message."""
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
        said = [Message("system", "?"), Message("user", "?"), Message("assistant", "!"), Message("user", "!")]
        return not self.render(said, tools).startswith(self.render(said[:2], tools))


def _nine(call_id: str) -> str:
    return call_id if _ID.fullmatch(call_id) else re.sub("[^A-Za-z0-9]", "", call_id).rjust(9, "0")[-9:]
