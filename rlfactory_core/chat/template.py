"""The base of every chat format: all text comes from the tokenizer's own chat template, never from ours.

A family says what ends its turns, how its calls are read, and what its template does to the past; the rest follows from
the template. The prompt is what it renders. An observation is what it renders behind an assistant turn that stands for
the sampled one, with calls that fit the results, since some templates look there for names and ids. The canonical text
of a turn is what it writes behind its own generation prompt.

What a template lacks is made up for: tools that it does not show are described in the first message, results that it
does not show go into a user's turn, calls that it does not write are a part of the content. Text that it does not take
beside a call is left out of prompts; in a sampled turn it stays.

The stop token of a turn is what the model sampled, be it the one that the template writes or another.

Libraries that render families on token ids were tried in its place (2026). Prime Intellect's ``renderers`` 0.1.12 needs
Python 3.11, has the turns in its own code, chosen by the model's name and not by its template, and turns an
``<|im_end|>`` in a tool's output into the special token. For ``openai-harmony`` see `gpt_oss`, for mistral-common
`mistral`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rlfactory_core.chat.encoding import TextEncoder
from rlfactory_core.chat.proof import prove_append_equals_render
from rlfactory_core.chat.rendering import ChatTemplate, Entry, remedy, template_of, template_tool
from rlfactory_core.errors import ChatFormatError
from rlfactory_core.types import Message, ToolCall, ToolSpec

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

__all__ = ["TemplateFormat"]

_ASKED = Message("user", "?")
_SAMPLED = "@@rlfactory-sampled@@"  # stands in the turn that stands for the sampled one


@dataclass(frozen=True, slots=True)
class Rendered:
    """A text with the mark (see `TextEncoder`) that keeps its contents plain."""

    text: str
    mark: str


class TemplateFormat:
    """A `ChatFormat`; families are its subclasses.

    Args:
        tokenizer: a fast tokenizer with a chat template.
        thinking: given to the template where it has a switch for it.

    Raises:
        ChatFormatError: the tokenizer is not a fast one, or has no template, or none of the family's stop tokens.
    """

    name: str
    stops: tuple[str, ...]
    """The tokens that end a sampled turn, the usual one first; the tokenizer need not have all."""
    past_ends: tuple[str, ...] = ()
    """Further tokens that end a turn where the template writes it, because others are kept for the last turn."""

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
        self.thinking = self.knows_thinking() and (thinking or not self._template.switches)
        self.opens_thinking = self._opens_thinking([])
        self.thinking_open = self.opens_thinking and self._opens_thinking([Message("tool", "?")])

    # --- what a family says -----------------------------------------------------------------------------------------

    @staticmethod
    def matches(chat_template: str) -> bool:
        """Whether a template is of this family."""
        raise NotImplementedError

    def parse_text(self, text: str, tools: Sequence[ToolSpec]) -> Message:
        """Read a sampled turn, given without its stop token."""
        raise NotImplementedError

    def find_stops(self, tokenizer: PreTrainedTokenizerFast) -> Sequence[str]:
        return self.stops

    def knows_thinking(self) -> bool:
        """Whether the template knows reasoning apart from the answer."""
        return "<think>" in self._template.source

    def stop_of(self, message: Message) -> str:
        """The stop token of a turn, where the template leaves it to the model."""
        return self._stop

    def entry(self, message: Message) -> Entry:
        """A message as the family's templates expect it."""
        entry: Entry = {"role": message.role, "content": message.content}
        if message.reasoning:
            entry["reasoning_content"] = message.reasoning
        if message.tool_calls:
            entry["tool_calls"] = [self._call_entry(call) for call in message.tool_calls]
        if message.role == "tool":
            entry |= {"name": message.name or "tool", "tool_call_id": message.tool_call_id or "call_0"}
        return entry

    def calls_text(self, calls: Sequence[ToolCall]) -> str:
        """Calls as the family's models write them, for templates that do not write them themselves."""
        raise ChatFormatError(
            f"Chat format {self.name!r} needs a chat template that writes tool calls, and the model's does not. "
            "chat.format=hermes works with any template."
        )

    def keeps(self, messages: Sequence[Message]) -> bool:
        """Whether the template rewrites nothing in this conversation; False where `forgetful` is needed."""
        return True

    def forgetful(self, text: str, messages: Sequence[Message]) -> str:
        """A conversation's text without that which the template drops or changes once a turn is past."""
        return text

    # --- ChatFormat -------------------------------------------------------------------------------------------------

    def initial_ids(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> tuple[int, ...]:
        """The prompt as the tokenizer's template writes it; contents and tool descriptions as plain text.

        Assistant turns within a prompt are taken as the model's own text: their special tokens stay special.

        Raises:
            ChatFormatError: the template does not take such a conversation.
        """
        prompt = self._initial(messages, tools)
        return self._encoder.ids(prompt.text, prompt.mark, start=True)

    def observation_ids(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """From behind the sampled stop token to the end of the next generation prompt.

        Raises:
            ValueError: a message of the assistant, or none at all: the environment's contract is broken.
            ChatFormatError: the template does not take such messages.
        """
        observation = self._observation(messages)
        return self._encoder.ids(observation.text, observation.mark, start=False)

    def parse(self, sampled_ids: Sequence[int], tools: Sequence[ToolSpec] = ()) -> Message:
        """One assistant message; the family's parser says what becomes of text that is not quite a call."""
        ids = list(sampled_ids)
        while ids and ids[-1] in self.stop_token_ids:
            ids.pop()
        return self.parse_text(self.decode(ids), tools)

    def decode(self, ids: Sequence[int]) -> str:
        text: str = self._backend.decode(list(ids), skip_special_tokens=False)
        return text

    def encode(self, text: str) -> tuple[int, ...]:
        """The ids of a whole text in which special tokens are meant as such, for demonstrations and proofs."""
        return tuple(self._backend.encode(text, add_special_tokens=False).ids)

    def prove(self) -> None:
        """See `prove_append_equals_render`."""
        prove_append_equals_render(self)

    # --- texts ------------------------------------------------------------------------------------------------------

    def initial_text(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> str:
        """What `initial_ids` are the ids of."""
        prompt = self._initial(messages, tools)
        return self._encoder.unmark(prompt.text, prompt.mark)

    def observation_text(self, messages: Sequence[Message]) -> str:
        """What `observation_ids` are the ids of."""
        observation = self._observation(messages)
        return self._encoder.unmark(observation.text, observation.mark)

    def render(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), *, generation_prompt: bool = True
    ) -> str:
        """What the tokenizer's own template writes of a whole conversation."""
        entries, offered = self._told(self._entries(messages), [template_tool(tool) for tool in tools])
        return self._template.render(entries, offered, generation_prompt=generation_prompt)

    def written(self, message: Message) -> str:
        """The canonical text of an assistant message, as a model of this family samples it, stop token included."""
        prompt = self.render([_ASKED])
        whole = self.render([_ASKED, message], generation_prompt=False)
        head, opened = prompt, ""
        if not whole.startswith(prompt) and self.opens_thinking:  # opened in the prompt, not shown in the past
            head = prompt.rstrip().removesuffix("<think>")
            closed = whole.startswith(f"{head}</think>")  # all that is left of the block
            head += "</think>" * closed
            opened = message.reasoning + ("</think>" if closed else "\n</think>\n\n") if message.reasoning else ""
        if not whole.startswith(head):
            raise ChatFormatError(
                f"Chat format {self.name!r} does not fit the model's chat template: what it writes for an assistant "
                f"turn, {whole[-80:]!r}, does not begin with its own generation prompt, {prompt[-80:]!r}."
            )
        text = opened + whole[len(head) :]
        return self.up_to_end(text) or text + self.stop_of(message)

    def up_to_end(self, text: str) -> str | None:
        """A text without what its template puts behind the last turn's end; None where it writes no end.

        Some close a conversation with several tokens; of these the first is the one that is sampled.
        """
        cut = None
        rest = len(text)
        for end in reversed(list(self._end.finditer(text))):
            if text[end.end() : rest].strip():
                break
            cut, rest = end.end(), end.start()
        return None if cut is None else text[:cut]

    # --- rendering --------------------------------------------------------------------------------------------------

    def _initial(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Rendered:
        offered = [template_tool(tool) for tool in tools]
        mark = self._encoder.mark([self._entries(messages), offered])
        entries = self._entries(self._guarded(messages, mark))
        entries, offered = self._told(entries, self._encoder.guard(offered, mark))
        return Rendered(self._template.render(entries, offered, generation_prompt=True), mark)

    def _observation(self, messages: Sequence[Message]) -> Rendered:
        roles = tuple(message.role for message in messages)
        if not roles or "assistant" in roles:
            raise ValueError(f"An observation is one or more messages of the user or of tools; got roles {roles}.")
        mark = self._encoder.mark(self._entries(messages))
        messages = self._guarded(messages, mark)
        entries = self._entries([_ASKED, self._stand_in(messages), *messages])
        text = self._template.render(entries, [], generation_prompt=True)
        end = self._end.search(text, text.find(_SAMPLED))
        if end is None or _SAMPLED not in text:
            raise ChatFormatError(
                f"Chat format {self.name!r} cannot find where the model's chat template ends an assistant turn before "
                f"messages of the roles {', '.join(roles)}. A turn has to end with {self._stop}: give the "
                "tokenizer a template that writes it, or name another format with chat.format=NAME."
            )
        return Rendered(text[end.end() :], mark)

    def _guarded(self, messages: Sequence[Message], mark: str) -> list[Message]:
        """The messages in which what others wrote is guarded; a tool's name may be the model's invention."""

        def guarded(message: Message) -> Message:
            texts = [message.content, message.name, message.tool_call_id]
            content, name, call_id = self._encoder.guard(texts, mark)
            return replace(message, content=content, name=name, tool_call_id=call_id)

        return [message if message.role == "assistant" else guarded(message) for message in messages]

    def _stand_in(self, messages: Sequence[Message]) -> Message:
        """An assistant turn which the messages can follow; `_SAMPLED` is the last of it but for its end."""
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
        return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}

    def _entries(self, messages: Sequence[Message]) -> list[Entry]:
        entries: list[Entry] = []
        previous = None
        for message in messages:
            if message.role == "tool" and not self.abilities.results:
                content = f"<tool_response>\n{message.content}\n</tool_response>"
                if previous == "tool":
                    entries[-1]["content"] += f"\n{content}"
                else:
                    entries.append({"role": "user", "content": content})
            elif message.tool_calls and not self.abilities.calls:
                texts = [message.content] * bool(message.content) + [self.calls_text(message.tool_calls)]
                entries.append(self.entry(replace(message, content="\n".join(texts), tool_calls=())))
            else:
                left_out = message.tool_calls and not self.abilities.beside
                entries.append(self.entry(replace(message, content="") if left_out else message))
            previous = message.role
        return entries

    def _told(self, entries: list[Entry], tools: list[Entry]) -> tuple[list[Entry], list[Entry]]:
        """The conversation and the tools for the template; both are in the conversation if it shows no tools."""
        if self.abilities.tools or not tools:
            return entries, tools
        example = self.calls_text([ToolCall("call_0", "<function-name>", "<args-json-object>")])
        told = "\n".join(
            ["# Tools\n\nYou may call these functions to assist with the user query:\n"]
            + [json.dumps(tool["function"], ensure_ascii=False) for tool in tools]
            + [f"\nFor each function call, write:\n{example}"]
        )
        first, *rest = entries
        return [{**first, "content": f"{told}\n\n{first['content']}"}, *rest], []

    def _opens_thinking(self, messages: Sequence[Message]) -> bool:
        try:
            text = self.observation_text(messages) if messages else self.initial_text([_ASKED], [])
        except ChatFormatError:
            return False  # the proof tells why
        return text.rstrip().endswith("<think>")
