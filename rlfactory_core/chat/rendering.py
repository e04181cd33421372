"""Renders with a tokenizer's own chat template, and finds out what the template supports.

What it supports is seen from what it renders and not from its source, so that changed templates are treated correctly.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rlfactory_core.errors import ChatFormatError
from rlfactory_core.types import ToolSpec

Entry = dict[str, Any]
"""A message as chat templates expect it: OpenAI's chat completion messages."""

_DATE = re.compile(r"""strftime_now\(\s*(['"])([^'"]*)\1\s*\)""")
_THINKING = re.compile(r"(?<![\w.])thinking is (?:not )?defined")


def template_of(tokenizer: Any) -> str | None:
    """The source of a tokenizer's chat template; if there are several, the one for tools, else the default one."""
    template = getattr(tokenizer, "chat_template", None)
    if isinstance(template, Mapping):
        template = template.get("tool_use") or template.get("default")
    return template if isinstance(template, str) and template else None


def remedy(tokenizer: Any) -> str:
    """What the user can do about a tokenizer without a usable template."""
    if type(tokenizer).__name__ == "MistralCommonBackend":
        return (
            "With tekken.json in the folder, transformers uses mistral-common's own tokenizer: give a model folder "
            "without it, with tokenizer.json and a chat template (chat_template.jinja)."
        )
    return "Give a model folder with tokenizer.json and a chat template (chat_template.jinja)."


_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "a": {"$ref": "#/$defs/Probe"},
        "b": {"anyOf": [{"type": "string", "enum": ["probe_optional"]}, {"type": "null"}]},
        "c": {"const": "probe_const"},
        "d": {"oneOf": [{"type": "string", "enum": ["probe_one"]}, {"type": "integer"}]},
        "e": {"enum": ["probe_enum"]},
    },
    "$defs": {"Probe": {"type": "object", "properties": {"probe_field": {"type": "string"}}}},
}
_IN_SCHEMA = ("probe_field", "probe_optional", "probe_const", "probe_one", "probe_enum")


@dataclass(frozen=True, slots=True)
class Abilities:
    """Which parts of its input a template writes."""

    system: bool  # messages of the role "system", with tools and without
    tools: bool  # the offered tools
    schemas: bool  # all of their schemas, references and alternatives included
    calls: int  # tool calls in one turn: 0, 1, or 2 for any number
    beside: bool  # text beside a call
    results: bool  # messages of the role "tool"
    mapping_arguments: bool  # whether it takes a call's arguments as a mapping, else as JSON text
    only_mappings: bool  # whether it takes them as nothing else


class ChatTemplate:
    """Renders messages. If the template asks for the date, it gets that of the start, so that prompts do not change.

    Of two named templates (``default`` and ``tool_use``), whole conversations without tools get the first.

    Args:
        tokenizer: has ``apply_chat_template``.
        source: the template.
        thinking: for a template with such a switch (``enable_thinking``, DeepSeek's ``thinking``, or Hunyuan's
            ``reasoning_effort``, which is then ``high`` or ``no_think``).
    """

    def __init__(self, tokenizer: Any, source: str, thinking: bool) -> None:
        now = datetime.now().astimezone()
        self.source = _DATE.sub(lambda match: repr(now.strftime(match[2])), source)
        named = getattr(tokenizer, "chat_template", None)
        toolless = named.get("default") if isinstance(named, Mapping) and named.get("tool_use") else None
        self._toolless = toolless and _DATE.sub(lambda match: repr(now.strftime(match[2])), toolless)
        known: dict[str, tuple[bool, Any]] = {
            "enable_thinking": ("enable_thinking" in source, thinking),
            "thinking": (bool(_THINKING.search(source)), thinking),
            "reasoning_effort": ("'no_think'" in source, "high" if thinking else "no_think"),
        }
        self._options = {name: value for name, (found, value) in known.items() if found}
        self.switches = tuple(self._options)
        self._tokenizer = tokenizer
        self.abilities = self._find_abilities()

    def render(
        self, messages: Sequence[Entry], tools: Sequence[Entry], *, generation_prompt: bool, whole: bool = False
    ) -> str:
        """The template's text.

        Args:
            whole: it is no part of a conversation that may have tools.

        Raises:
            ChatFormatError: the template refuses the conversation, or fails.
        """
        used = bool(tools) or any("tool_calls" in entry or entry["role"] == "tool" for entry in messages)
        toolless = self._toolless if whole and not used else None
        try:
            text = self._tokenizer.apply_chat_template(
                list(messages),
                # A template that is for tools alone need not know the case without them.
                tools=list(tools) or ([] if self._toolless and not toolless else None),
                chat_template=toolless or self.source,
                add_generation_prompt=generation_prompt,
                tokenize=False,
                **self._options,
            )
        except Exception as error:  # a template is a program that came with the model
            reason = f"{type(error).__name__}: {error}"
            named = next((tool for tool in tools if not self._takes(tool)), None)
            if named is not None:
                raise ChatFormatError(
                    f"The model's chat template does not take the tool '{named['function']['name']}': {reason}. Give "
                    "it what the template asks for (a description, or a type for each argument), or leave it out."
                ) from error
            roles = ", ".join(entry["role"] for entry in messages)
            raise ChatFormatError(
                f"The model's chat template does not take this conversation (roles: {roles}): {reason}"
            ) from error
        return str(text)

    def _takes(self, tool: Entry) -> bool:
        try:
            asked = [{"role": "user", "content": "?"}]
            self._tokenizer.apply_chat_template(
                asked, tools=[tool], chat_template=self.source, tokenize=False, **self._options
            )
        except Exception:  # noqa: BLE001 - a template is a program that came with the model
            return False
        return True

    def _find_abilities(self) -> Abilities:
        asked: Entry = {"role": "user", "content": "?"}
        result: Entry = {"role": "tool", "name": "probe_first", "tool_call_id": "probe0000", "content": "probe_result"}
        mapping = self._writes([asked, _calling(["probe_first"], {"q": 1})], "probe_first")
        arguments: Any = {"q": 1} if mapping else '{"q": 1}'
        one, two = (_calling(["probe_first", "probe_second"][:count], arguments) for count in (1, 2))
        calls = int(self._writes([asked, one], "probe_first"))
        calls += calls and int(self._writes([asked, two], "probe_second"))
        turn: Entry = one if calls else {"role": "assistant", "content": "?"}
        tool = ToolSpec("probe_tool", "?", {"type": "object", "properties": {}}).function_schema
        schema = ToolSpec("probe_tool", "?", _SCHEMA).function_schema
        return Abilities(
            system=all(
                self._writes([{"role": "system", "content": "probe_system"}, asked], "probe_system", offered)
                for offered in ([], [tool])
            ),
            tools=self._writes([asked], "probe_tool", [tool]),
            schemas=self._writes([asked], _IN_SCHEMA, [schema]),
            calls=calls,
            beside=self._writes([asked, {**one, "content": "probe_beside"}], "probe_beside"),
            results=self._writes([asked, turn, result], "probe_result"),
            mapping_arguments=mapping,
            only_mappings=mapping and not self._writes([asked, _calling(["probe_first"], '{"q": ')], "probe_first"),
        )

    def _writes(self, messages: list[Entry], texts: str | Sequence[str], tools: Sequence[Entry] = ()) -> bool:
        try:
            written = self.render(messages, tools, generation_prompt=False)
            return all(text in written for text in ([texts] if isinstance(texts, str) else texts))
        except ChatFormatError:
            return False


def _calling(names: Sequence[str], arguments: Any) -> Entry:
    functions = ({"name": name, "arguments": arguments} for name in names)
    calls = [{"id": f"probe000{n}", "type": "function", "function": each} for n, each in enumerate(functions)]
    return {"role": "assistant", "content": "", "tool_calls": calls}
