"""The base of every chat format: all text comes from the tokenizer's own chat template.

A family's subclass declares what ends its turns, how its calls are parsed, and how its template changes past turns; the
rest follows from the template. The prompt is the template's render. An observation is what the template renders after
an assistant turn that stands in for the sampled one, with calls that match the results, because some templates look for
names and ids there. The canonical text of a turn is what the template writes after its own generation prompt.

If a template does not write system messages, or refuses them, their text begins the user message that follows. If it
does not show tools, the first message describes them; if it does not write whole schemas, it gets them in words that it
knows (`schemas`). If it does not show results, they go into a user turn. If it does not write calls, they become a part
of the content. Text beside a call that it does not accept is left out of prompts, but stays in a sampled turn. The stop
token of a turn is the token that the model sampled, even if the template writes another one.

Libraries that render families on token ids were tried instead (2026). Prime Intellect's ``renderers`` 0.1.12 writes
turns with its own code, chosen by the model's name, and turns an ``<|im_end|>`` in a tool's output into the special
token. For ``openai-harmony`` see `gpt_oss`, for mistral-common `mistral`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING

from rlfactory_core.chat.encoding import TextEncoder
from rlfactory_core.chat.proof import prove_append_equals_render
from rlfactory_core.chat.rendering import ChatTemplate, Entry, remedy, template_of
from rlfactory_core.chat.schemas import inlined
from rlfactory_core.errors import ChatFormatError
from rlfactory_core.types import Message, ToolCall, ToolSpec

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

__all__ = ["TemplateFormat"]

_QUESTION = Message("user", "?")
_SAMPLED = "@@rlfactory-sampled@@"  # marks the turn that stands in for the sampled one


class TemplateFormat:
    """A `ChatFormat`; families are its subclasses.

    Args:
        tokenizer: a fast tokenizer with a chat template.
        thinking: for a template that has a switch for it.

    Raises:
        ChatFormatError: the tokenizer is not a fast one, has no template, or has none of the family's stop tokens.
    """

    name: str
    marks: tuple[str, ...]
    """Texts that every template of the family has."""
    foreign: tuple[str, ...] = ()
    """Texts that no template of the family has."""
    stops: tuple[str, ...]
    """The tokens that may end a sampled turn, beginning with the usual one; the tokenizer need not have them all."""
    past_ends: tuple[str, ...] = ()
    """Further tokens with which the template ends past turns."""
    call_stop = ""
    """The one that ends a turn with calls, if it is another."""
    parser: Callable[..., Message]
    """A `Parser`, or a function with its arguments."""
    block: re.Pattern[str] | None = None
    """What the template drops of past turns, such as a thinking block."""
    think = "<think>"
    """The tag that opens a thinking block in a prompt."""
    thinks: bool | None = None
    """Whether the template writes reasoning apart from the answer; None: if the tag is in it."""
    beside = True
    """Whether the family's turns may hold text beside calls, if the template writes it."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, thinking: bool = True) -> None:
        backend = getattr(tokenizer, "backend_tokenizer", None)
        source = template_of(tokenizer)
        if backend is None or source is None:
            lacks = "a fast (Rust) tokenizer" if source else "a chat template"
            raise ChatFormatError(
                f"Chat format {self.name!r} needs {lacks}, and {type(tokenizer).__name__} has none. {remedy(tokenizer)}"
            )
        self._backend = backend
        self._encoder = TextEncoder(backend)
        self._template = ChatTemplate(tokenizer, source, thinking)
        self.abilities = self._template.abilities
        stops = [token for token in self.find_stops(tokenizer) if backend.token_to_id(token) is not None]
        if not stops:
            raise ChatFormatError(
                f"Chat format {self.name!r} needs one of the tokens {', '.join(self.stops) or 'eos_token'}, and the "
                "tokenizer has none of them."
            )
        self.stop_token_ids: tuple[int, ...] = tuple(backend.token_to_id(token) for token in stops)
        self._end = re.compile("|".join(map(re.escape, (*stops, *self.past_ends))))
        self._stop = stops[0]
        self._thinks = self.think in source if self.thinks is None else self.thinks
        self.thinking = self._thinks and (thinking or not self._template.switches)
        self.opens_thinking = self._opens_thinking([])
        self.thinking_open = self.opens_thinking and self._opens_thinking([Message("tool", "?")])

    # --- what a family declares -------------------------------------------------------------------------------------

    @classmethod
    def matches(cls, chat_template: str) -> bool:
        """Whether a template belongs to this family: it has all ``marks`` and none of ``foreign``."""
        plain = chat_template.replace('\\"', '"')  # quotes within a string of the template
        return all(mark in plain for mark in cls.marks) and not any(mark in plain for mark in cls.foreign)

    def parse_text(self, text: str, tools: Sequence[ToolSpec]) -> Message:
        """Parse a sampled turn without its stop token."""
        message = self.parser(text, tools, thinking_open=self.thinking_open)
        calls: list[ToolCall] = []
        end = 0
        for call in message.tool_calls:
            start = text.find(call.arguments_text, end)
            end = start + len(call.arguments_text)
            own = self._find_id(text, start, end) if call.error is None else None
            taken = {other.id for other in calls}
            calls.append(replace(call, id=own[1]) if own and own[1] not in taken else call)
        return replace(message, tool_calls=tuple(calls))

    def find_stops(self, tokenizer: PreTrainedTokenizerFast) -> Sequence[str]:
        return self.stops

    def _find_id(self, text: str, start: int, end: int) -> re.Match[str] | None:
        """The id that the model wrote for a call with its arguments at these positions, as the first group."""
        return None

    def _own_id(self, call_id: str, name: str) -> str:
        """A call's id in the family's form."""
        return call_id

    def stop_of(self, message: Message) -> str:
        """The stop token of a turn whose end the template does not write."""
        return self.call_stop if self.call_stop and message.tool_calls else self._stop

    def entry(self, message: Message) -> Entry:
        """A message as the family's templates expect it."""
        entry: Entry = {"role": message.role, "content": message.content}
        if message.reasoning:
            entry["reasoning_content"] = message.reasoning
        if message.tool_calls:
            entry["tool_calls"] = [self._call_entry(call) for call in message.tool_calls]
        if message.name and message.role != "tool":
            entry["name"] = message.name
        if message.role == "tool":
            name = message.name or "tool"
            entry |= {"name": name, "tool_call_id": self._own_id(message.tool_call_id or "call_0", name)}
        return entry

    def calls_text(self, calls: Sequence[ToolCall]) -> str:
        """Calls as the family's models write them, for a template that does not write calls."""
        raise ChatFormatError(
            f"Chat format {self.name!r} needs a chat template that writes tool calls, and the model's does not. "
            "chat.format=hermes works with any template."
        )

    def keeps(self, messages: Sequence[Message]) -> bool:
        """Whether the template changes no past turn of this conversation; if False, texts need `forgetful`.

        If the template drops thinking, that is a conversation with one user message in which all turns think.
        """
        if self.block is None or not self._thinks:
            return True
        one_user = sum(message.role == "user" for message in messages) == 1
        turns = [message for message in messages if message.role == "assistant"]
        return self.thinking and one_user and all(turn.reasoning for turn in turns)

    def forgetful(self, text: str, messages: Sequence[Message]) -> str:
        """A conversation's text without the parts of past turns that the template drops or changes."""
        return self.block.sub("", text) if self.block else text

    def shown(self, content: str) -> str:
        """A content as the model sees it. Special tokens that this puts in stay special."""
        return content

    def past_prompt(self, prompt: str) -> str:
        """A generation prompt as the template writes it in past turns."""
        return prompt

    # --- ChatFormat -------------------------------------------------------------------------------------------------

    def initial_ids(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> tuple[int, ...]:
        """The prompt as the tokenizer's template writes it; contents and tool descriptions are plain text.

        Assistant turns within a prompt count as the model's own text, so their special tokens stay special. If the
        template takes arguments as objects only, a call that could not be read is written without its arguments.

        Raises:
            ChatFormatError: the template does not accept such a conversation.
        """
        return self._encoder.ids(*self._initial(messages, tools), start=True)

    def observation_ids(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """The ids after the sampled stop token, up to the end of the next generation prompt.

        Raises:
            ValueError: there is no message, or one of the assistant: the environment breaks its contract.
            ChatFormatError: the template does not accept such messages.
        """
        return self._encoder.ids(*self._observation(messages), start=False)

    def parse(self, sampled_ids: Sequence[int], tools: Sequence[ToolSpec] = ()) -> Message:
        """The sampled turn as an assistant message."""
        ids = list(sampled_ids)
        while ids and ids[-1] in self.stop_token_ids:
            ids.pop()
        return self.parse_text(self.decode(ids), tools)

    def decode(self, ids: Sequence[int]) -> str:
        text: str = self._backend.decode(list(ids), skip_special_tokens=False)
        return text

    def encode(self, text: str) -> tuple[int, ...]:
        """The ids of a whole text, special tokens included, for demonstrations and proofs."""
        return tuple(self._backend.encode(text, add_special_tokens=False).ids)

    def prove(self) -> None:
        """See `prove_append_equals_render`."""
        prove_append_equals_render(self)

    # --- texts ------------------------------------------------------------------------------------------------------

    def initial_text(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> str:
        """The text of `initial_ids`."""
        return self._encoder.unmark(*self._initial(messages, tools))

    def observation_text(self, messages: Sequence[Message]) -> str:
        """The text of `observation_ids`."""
        return self._encoder.unmark(*self._observation(messages))

    def render(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), *, generation_prompt: bool = True
    ) -> str:
        """The template's text of a whole conversation."""
        entries, offered = self._with_tools(self._entries(messages), self._offered(tools))
        return self._template.render(entries, offered, generation_prompt=generation_prompt, whole=True)

    def written(self, message: Message) -> str:
        """The canonical text of an assistant message as a model of this family samples it, stop token included."""
        prompt = self._asked
        whole = self._template.render(self._entries([_QUESTION, message]), [], generation_prompt=False)
        head, opened = prompt, ""
        if not whole.startswith(prompt) and self.opens_thinking:  # opened in the prompt, not shown in the past
            head = prompt.rstrip().removesuffix("<think>")
            closed = whole.startswith(f"{head}</think>")  # only the closing tag is left of the block
            head += "</think>" * closed
            if message.reasoning or (self.thinking_open and not closed):  # what follows would be read as thinking
                opened = message.reasoning + ("</think>" if closed else "\n</think>\n\n")
        if not whole.startswith(head):
            raise ChatFormatError(
                f"Chat format {self.name!r} does not fit the model's chat template: what it writes for an assistant "
                f"turn, {whole[-80:]!r}, does not begin with its own generation prompt, {prompt[-80:]!r}."
            )
        text = opened + whole[len(head) :]
        return self.up_to_end(text) or text + self.stop_of(message)

    def up_to_end(self, text: str) -> str | None:
        """The text up to the end of its last turn; None if the template writes no end.

        Some templates close a conversation with several tokens; the first of them is the one that is sampled.
        """
        cut = None
        rest = len(text)
        for end in reversed(list(self._end.finditer(text))):
            if text[end.end() : rest].strip():
                break
            cut, rest = end.end(), end.start()
        return None if cut is None else text[:cut]

    # --- rendering --------------------------------------------------------------------------------------------------

    def _initial(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> tuple[str, str]:
        """A prompt's text, and the mark in it that keeps its contents plain (see `TextEncoder`)."""
        offered = self._offered(tools)
        mark = self._encoder.mark([self._entries(messages), offered])
        entries = self._entries(self._guarded(messages, mark))
        entries, offered = self._with_tools(entries, self._encoder.guard(offered, mark))
        return self._template.render(entries, offered, generation_prompt=True, whole=True), mark

    def _observation(self, messages: Sequence[Message]) -> tuple[str, str]:
        """The text that follows a sampled turn, and its mark."""
        roles = tuple(message.role for message in messages)
        if not roles or "assistant" in roles:
            raise ValueError(f"An observation is one or more messages of the user or of tools; got roles {roles}.")
        mark = self._encoder.mark(self._entries(messages))
        messages = self._guarded(messages, mark)
        entries = self._entries([_QUESTION, self._stand_in(messages), *messages])
        text = self._template.render(entries, [], generation_prompt=True)
        end = self._end.search(text, text.find(_SAMPLED))
        if end is None or _SAMPLED not in text:
            raise ChatFormatError(
                f"Chat format {self.name!r} cannot find where the model's chat template ends an assistant turn before "
                f"messages of the roles {', '.join(roles)}. A turn has to end with {self._stop}: give the "
                "tokenizer a template that writes it, or name another format with chat.format=NAME."
            )
        return text[end.end() :], mark

    def _guarded(self, messages: Sequence[Message], mark: str) -> list[Message]:
        """The messages, guarded except for the assistant's; a tool's name is guarded, because a model may invent it."""
        guarded = list(messages)
        for index, message in enumerate(messages):
            if message.role != "assistant":
                texts = [message.content, message.name, message.tool_call_id]
                content, name, call_id = self._encoder.guard(texts, mark)
                guarded[index] = replace(message, content=self.shown(content), name=name, tool_call_id=call_id)
            elif self.abilities.calls and self.abilities.only_mappings:
                guarded[index] = replace(message, tool_calls=tuple(map(_readable, message.tool_calls)))
        return guarded

    def _stand_in(self, messages: Sequence[Message]) -> Message:
        """An assistant turn that the messages can follow; `_SAMPLED` is at its end."""
        results = [message for message in messages if message.role == "tool"]
        if not results:
            return Message("assistant", _SAMPLED)
        fits = results if self.abilities.calls != 1 else results[:1]
        calls = [ToolCall(result.tool_call_id or "call_0", result.name or "tool", "{}", {}) for result in fits]
        arguments = {"q": _SAMPLED}
        calls[-1] = replace(calls[-1], arguments_text=json.dumps(arguments), arguments=arguments)
        return Message("assistant", "", tool_calls=tuple(calls))

    def _call_entry(self, call: ToolCall) -> Entry:
        mapping = self.abilities.mapping_arguments and call.arguments is not None
        arguments = dict(call.arguments or {}) if mapping else call.arguments_text
        function = {"name": call.name, "arguments": arguments}
        return {"id": self._own_id(call.id, call.name), "type": "function", "function": function}

    def _entries(self, messages: Sequence[Message]) -> list[Entry]:
        entries: list[Entry] = []
        previous = None
        for message in messages if self.abilities.system else _without_system(messages):
            if message.role == "tool" and not self.abilities.results:
                content = f"<tool_response>\n{message.content}\n</tool_response>"
                if previous == "tool":
                    entries[-1]["content"] += f"\n{content}"
                else:
                    entries.append({"role": "user", "content": content})
            elif message.tool_calls and not self.abilities.calls:
                beside = f"{message.content}\n" if message.content and self.beside else ""
                content = beside + self.calls_text(message.tool_calls)
                entries.append(self.entry(replace(message, content=content, tool_calls=())))
            else:
                left_out = message.tool_calls and not (self.beside and self.abilities.beside)
                entries.append(self.entry(replace(message, content="") if left_out else message))
            previous = message.role
        return entries

    def _offered(self, tools: Sequence[ToolSpec]) -> list[Entry]:
        """The tools for the template, in words that it knows if it does not write whole schemas."""
        whole = self.abilities.schemas or not self.abilities.tools
        shown = tools if whole else [replace(tool, parameters=inlined(tool.parameters)) for tool in tools]
        return [tool.function_schema for tool in shown]

    def _with_tools(self, entries: list[Entry], tools: list[Entry]) -> tuple[list[Entry], list[Entry]]:
        """The conversation and the tools for the template; if it shows no tools, the first message describes them."""
        if self.abilities.tools or not tools:
            return entries, tools
        example = self.calls_text([ToolCall("call_0", "<function-name>", "<args-json-object>")])
        description = "\n".join(
            ["# Tools\n\nYou may call these functions to assist with the user query:\n"]
            + [json.dumps(tool["function"], ensure_ascii=False) for tool in tools]
            + [f"\nFor each function call, write:\n{example}"]
        )
        first, *rest = entries
        return [{**first, "content": f"{description}\n\n{first['content']}"}, *rest], []

    @cached_property
    def _asked(self) -> str:
        """The prompt before a turn that is `written`."""
        return self.past_prompt(self._template.render(self._entries([_QUESTION]), [], generation_prompt=True))

    def _opens_thinking(self, messages: Sequence[Message]) -> bool:
        try:
            prompt = self._template.render(self._entries([_QUESTION]), [], generation_prompt=True)
            text = self.observation_text(messages) if messages else prompt
        except ChatFormatError:
            return False  # the proof will report why
        return text.rstrip().endswith(self.think)


def _without_system(messages: Sequence[Message]) -> list[Message]:
    """The same texts: those of system messages are in a user message, with what the user says before and after."""
    kept: list[Message] = []
    for inputs, run in groupby(messages, key=lambda message: message.role in ("system", "user")):
        group = list(run)
        if inputs and any(message.role == "system" for message in group):
            group = [Message("user", "\n\n".join(message.content for message in group))]
        kept += group
    return kept


def _readable(call: ToolCall) -> ToolCall:
    """The call; without its arguments if they could not be read."""
    return call if call.arguments is not None else replace(call, arguments_text="{}", arguments={})
