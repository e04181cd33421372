"""OpenAI's chat completions, ``POST /v1/chat/completions`` (platform.openai.com/docs/api-reference/chat)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlfactory_agents.exchange import ModelAnswer, ModelRequest, RequestError
from rlfactory_agents.past import Past
from rlfactory_agents.protocols.base import (
    Reply,
    WireFormat,
    answerable,
    event,
    known_fields,
    read_call,
    read_tools,
    require_messages,
    text_of,
    texts,
    value_of,
    whole_number,
)
from rlfactory_agents.protocols.fields import ALL_OF_IT, COUNTED, IDLE, NO_SERVER_TOOLS, Fields
from rlfactory_core.clients import REASONING_KEYS
from rlfactory_core.types import Message, ToolCall
from rlfactory_core.utils.text import clean

_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}
_FIELDS = Fields(
    taken={"model", "messages", "tools", "max_completion_tokens", "max_tokens", "stop", "n", "logprobs", "stream"}
    | {"stream_options", "continue_final_message", "add_generation_prompt"},
    idle=IDLE,
    counted=COUNTED,
    refused={
        "functions": "it is the older form of tools. Send tools.",
        "web_search_options": NO_SERVER_TOOLS,
        "audio": "this model writes text only.",
        "chat_template": "the run's template is used.",
        "documents": "put them into a message.",
        "previous_response_id": ALL_OF_IT,
    },
    neutral={
        "presence_penalty": [0],
        "frequency_penalty": [0],
        "response_format": [{"type": "text"}],
        "tool_choice": ["auto", "none"],
        "function_call": ["auto"],
        "parallel_tool_calls": [True],
        "modalities": [["text"]],
    },
)
_MESSAGE = {"role", "content", "tool_calls", "tool_call_id", "refusal", "annotations", "id", *REASONING_KEYS}
_MESSAGE |= {"cache_control", "prefix", "partial"}  # the last two say that the answer continues the message


class ChatCompletions(WireFormat):
    """The protocol that most frameworks speak."""

    path = "/chat/completions"

    def read(self, body: Mapping[str, Any], past: Past) -> ModelRequest:
        notes = set(_FIELDS.without_effect(body))
        value_of(body, "stream_options", {})
        messages = [_message(row, notes) for row in require_messages(body, "messages")]
        none = body.get("tool_choice") == "none"
        return ModelRequest(
            answerable(messages),
            () if none else read_tools(body, notes, (None, "function"), within="function"),
            whole_number(body, "max_completion_tokens", "max_tokens"),
            texts(body, "stop"),
            whole_number(body, "n") or 1,
            tuple(sorted(notes)),
        )

    def write(self, reply: Reply) -> dict[str, Any]:
        wanted = bool(reply.body.get("logprobs"))
        choices = [
            {
                "index": index,
                "message": {"role": "assistant", "refusal": None, **_said(answer)},
                "finish_reason": answer.finish,
                "logprobs": {"content": _logprobs(answer), "refusal": None} if wanted else None,
            }
            for index, answer in enumerate(reply.answers)
        ]
        return {**_head(reply, "chat.completion"), "choices": choices, "usage": _usage(reply)}

    def events(self, reply: Reply) -> Iterator[str]:
        """Each part of an answer in a chunk of its own: clients look for one part only in a chunk."""
        head = _head(reply, "chat.completion.chunk")
        for index, answer in enumerate(reply.answers):
            for number, delta in enumerate(_deltas(answer)):
                chunk: dict[str, Any] = {"index": index, "delta": delta, "finish_reason": None}
                if not number and reply.body.get("logprobs"):
                    chunk["logprobs"] = {"content": _logprobs(answer), "refusal": None}
                yield event({**head, "choices": [chunk]})
            yield event({**head, "choices": [{"index": index, "delta": {}, "finish_reason": answer.finish}]})
        if value_of(reply.body, "stream_options", {}).get("include_usage"):
            yield event({**head, "choices": [], "usage": _usage(reply)})
        yield event("[DONE]")


def _message(row: Any, notes: set[str]) -> Message:
    role = _ROLES.get(str(row.get("role"))) if isinstance(row, dict) else None
    if role is None:
        raise RequestError(f"messages has {row!r:.80}; expected a role among {', '.join(_ROLES)}.")
    known_fields(row, "messages", {*_MESSAGE, "name"} if role == "tool" else _MESSAGE, notes)
    content = text_of(row.get("content"), f"the content of a message of the role {role}")
    if role == "assistant":
        calls = tuple(_call(item) for item in value_of(row, "tool_calls", []))
        reasoning = next((str(row[key]) for key in REASONING_KEYS if row.get(key)), "")
        content = content or clean(str(row.get("refusal") or ""))
        return Message("assistant", content, reasoning=reasoning, tool_calls=calls)
    if role == "tool":
        call_id, name = str(row.get("tool_call_id") or ""), str(row.get("name") or "")
        return Message("tool", content, tool_call_id=call_id, name=name or None)
    return Message("system" if role == "system" else "user", content)


def _call(item: Any) -> ToolCall:
    function = item.get("function") if isinstance(item, dict) else None
    if not isinstance(function, dict):
        raise RequestError(f"tool_calls has {item!r:.80}; expected a function with a name and arguments.")
    return read_call(item.get("id"), function.get("name"), function.get("arguments"))


def _said(answer: ModelAnswer) -> dict[str, Any]:
    message = answer.message
    said: dict[str, Any] = {"content": message.content or (None if message.tool_calls else "")}
    if message.reasoning:
        said["reasoning_content"] = message.reasoning
    if message.tool_calls:
        said["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments_text}}
            for call in message.tool_calls
        ]
    return said


def _deltas(answer: ModelAnswer) -> Iterator[dict[str, Any]]:
    said = _said(answer)
    yield {"role": "assistant", "content": "" if said["content"] is not None else None, "refusal": None}
    if "reasoning_content" in said:
        yield {"reasoning_content": said["reasoning_content"]}
    if said["content"]:
        yield {"content": said["content"]}
    for number, call in enumerate(said.get("tool_calls", ())):
        yield {"tool_calls": [{"index": number, **call}]}


def _logprobs(answer: ModelAnswer) -> list[dict[str, Any]]:
    return [
        {"token": text, "logprob": value, "bytes": list(text.encode()), "top_logprobs": []}
        for text, value in answer.tokens
    ]


def _head(reply: Reply, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{reply.id}", "object": kind, "created": reply.created, "model": reply.model}


def _usage(reply: Reply) -> dict[str, int]:
    prompt = max((answer.prompt_tokens for answer in reply.answers), default=0)
    sampled = sum(answer.sampled_tokens for answer in reply.answers)
    return {"prompt_tokens": prompt, "completion_tokens": sampled, "total_tokens": prompt + sampled}
