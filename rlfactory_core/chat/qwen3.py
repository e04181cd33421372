"""Qwen3 and its kin: ChatML turns, Hermes-style JSON tool calls, tool results in a shared user turn.

Covers every tokenizer whose own template writes these (Qwen3, Qwen3-2507 instruct and thinking, Qwen2.5, Hermes): the
frames are taken from the tokenizer's template, nothing is assumed about its text.

What the thinking template does to history, and we do not: it drops the thinking blocks of assistant turns that lie
before the last user message, and the empty block (``thinking=False``) of every turn but the last. Sampled ids are never
rewritten here, so later turns are conditioned on what was really sampled; `proof` checks that nothing else differs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from rlfactory_core.chat.frames import Frame, FrameEncoder, slot
from rlfactory_core.chat.parsers.hermes import parse_hermes
from rlfactory_core.chat.proof import prove_append_equals_render
from rlfactory_core.errors import ChatFormatError
from rlfactory_core.types import Message, ToolSpec

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_STOP = "<|im_end|>"


class Qwen3Format:
    """A `ChatFormat`.

    Args:
        tokenizer: a fast tokenizer with a chat template that `matches`.
        thinking: False asks the template for an empty thinking block, where it knows how (``enable_thinking``).

    Raises:
        ChatFormatError: the tokenizer is not a fast one, or has no template, or no ``<|im_end|>`` token.
    """

    name = "qwen3"

    def __init__(self, tokenizer: PreTrainedTokenizerFast, thinking: bool = True) -> None:
        backend = getattr(tokenizer, "backend_tokenizer", None)
        template = getattr(tokenizer, "chat_template", None)
        if backend is None or not isinstance(template, str):
            lacks = "a chat template" if backend is not None else "a fast (Rust) tokenizer"
            raise ChatFormatError(f"Chat format 'qwen3' needs {lacks}, and {type(tokenizer).__name__} has none.")
        stop = backend.token_to_id(_STOP)
        if stop is None:
            raise ChatFormatError(f"Chat format 'qwen3' needs the token {_STOP}, and the tokenizer does not have it.")
        end = backend.token_to_id("<|endoftext|>")
        self.stop_token_ids: tuple[int, ...] = (stop,) if end is None else (stop, end)
        self.template_thinks = "<think>" in template
        self.thinking = self.template_thinks and (thinking or "enable_thinking" not in template)
        self._tokenizer = tokenizer
        self._backend = backend
        self._encoder = FrameEncoder(backend)
        self._options: dict[str, Any] = {"enable_thinking": thinking} if "enable_thinking" in template else {}
        self._initial_frame = lru_cache(maxsize=256)(self._make_initial_frame)
        self._observation_frame = lru_cache(maxsize=256)(self._make_observation_frame)
        self.thinking_open = self.render([Message("user", "?")]).rstrip().endswith("<think>")

    @staticmethod
    def matches(chat_template: str) -> bool:
        """Whether a template writes ChatML turns with Hermes-style JSON calls (and not Qwen3-Coder's XML)."""
        needed = ("<|im_start|>", "<tool_call>", "<tool_response>", '"arguments"')
        plain = chat_template.replace('\\"', '"')
        return all(text in plain for text in needed) and "<function=" not in plain

    def initial_ids(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> tuple[int, ...]:
        """The prompt as the tokenizer's template writes it; contents and tool descriptions as plain text.

        Assistant turns within a prompt are taken as the model's own text: their special tokens stay special.
        """
        contents: list[str] = []
        shape: list[dict[str, Any]] = []
        for message in messages:
            entry = template_message(message)
            if message.role != "assistant" and message.content:
                entry["content"] = slot(len(contents))
                contents.append(message.content)
            shape.append(entry)
        first_tool = len(contents)
        contents += [json.dumps(template_tool(tool), ensure_ascii=False) for tool in tools]
        key = json.dumps([shape, first_tool, len(tools)], ensure_ascii=False)
        return self._encoder.fill(self._initial_frame(key), contents)

    def observation_ids(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """From behind the sampled ``<|im_end|>`` to the end of the next generation prompt.

        Raises:
            ValueError: a message of the assistant, or none at all: the environment's contract is broken.
        """
        frame = self._observation_frame(tuple(message.role for message in messages))
        return self._encoder.fill(frame, [message.content for message in messages])

    def parse(self, sampled_ids: Sequence[int], tools: Sequence[ToolSpec] = ()) -> Message:
        """One assistant message; see `parse_hermes` for what becomes of text that is not quite a call."""
        ids = list(sampled_ids)
        while ids and ids[-1] in self.stop_token_ids:
            ids.pop()
        return parse_hermes(self.decode(ids), tools, thinking_open=self.thinking_open)

    def decode(self, ids: Sequence[int]) -> str:
        text: str = self._backend.decode(list(ids), skip_special_tokens=False)
        return text

    def prove(self) -> None:
        """See `prove_append_equals_render`."""
        prove_append_equals_render(self)

    def encode(self, text: str) -> tuple[int, ...]:
        """The ids of a whole text in which special tokens are meant as such, for demonstrations and proofs."""
        return tuple(self._backend.encode(text, add_special_tokens=False).ids)

    def render(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), *, generation_prompt: bool = True
    ) -> str:
        """What the tokenizer's own template writes."""
        entries = [template_message(message) for message in messages]
        return self._render(entries, [template_tool(tool) for tool in tools], generation_prompt=generation_prompt)

    def _render(
        self, messages: list[dict[str, Any]], tools: list[dict[str, Any]], *, generation_prompt: bool = True
    ) -> str:
        offered: Any = tools or None
        text = self._tokenizer.apply_chat_template(
            messages, tools=offered, add_generation_prompt=generation_prompt, tokenize=False, **self._options
        )
        return str(text)

    def _make_initial_frame(self, key: str) -> Frame:
        messages, first_tool, num_tools = json.loads(key)
        stand_ins = [{"slot": slot(first_tool + index)} for index in range(num_tools)]
        text = self._render(messages, stand_ins)
        for index, stand_in in enumerate(stand_ins):
            text = text.replace(json.dumps(stand_in), slot(first_tool + index))
        return self._encoder.frame(text)

    def _make_observation_frame(self, roles: tuple[str, ...]) -> Frame:
        if not roles or "assistant" in roles:
            raise ValueError(f"An observation is one or more messages of the user or of tools; got roles {roles}.")
        marker = "@@rlfactory-sampled@@"
        messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": marker}]
        messages += [{"role": role, "content": slot(index)} for index, role in enumerate(roles)]
        return self._encoder.frame(self._render(messages, []).split(marker + _STOP, 1)[-1])


def template_message(message: Message) -> dict[str, Any]:
    """A message as chat templates expect it."""
    entry: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.reasoning:
        entry["reasoning_content"] = message.reasoning
    if message.tool_calls:
        calls = [(c.name, c.arguments_text if c.arguments is None else dict(c.arguments)) for c in message.tool_calls]
        entry["tool_calls"] = [{"type": "function", "function": {"name": n, "arguments": a}} for n, a in calls]
    return entry


def template_tool(tool: ToolSpec) -> dict[str, Any]:
    """A tool as chat templates expect it: OpenAI's function schema."""
    function: Mapping[str, Any] = {
        "name": tool.name,
        "description": tool.description,
        "parameters": dict(tool.parameters),
    }
    return {"type": "function", "function": function}
