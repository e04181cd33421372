"""OpenAI's chat completions, ``POST /v1/chat/completions`` (platform.openai.com/docs/api-reference/chat)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlfactory_agents.exchange import ModelAnswer, ModelRequest, RequestError
from rlfactory_agents.protocols.base import (
    Reply,
    event,
    listed,
    named_results,
    overridden,
    read_call,
    read_tool,
    require_messages,
    text_of,
    texts,
    whole_number,
)
from rlfactory_core.clients.wire import REASONING_KEYS
from rlfactory_core.types import Message, ToolCall, ToolSpec

_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}
_RUNS_OWN = (  # set by the run, or not enforced by the sampler
    *("temperature", "top_p", "seed", "logit_bias", "presence_penalty", "frequency_penalty", "top_k", "min_p"),
    *("response_format", "tool_choice", "parallel_tool_calls", "stop"),
)
_NEUTRAL = {
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "response_format": {"type": "text"},
    "tool_choice": "auto",
    "parallel_tool_calls": True,
}


class ChatCompletions:
    """The protocol that most frameworks speak."""

    path = "/chat/completions"

    def read(self, body: Mapping[str, Any]) -> ModelRequest:
        tools = () if body.get("tool_choice") == "none" else tuple(map(_tool, listed(body, "tools")))
        return ModelRequest(
            named_results(map(_message, require_messages(body, "messages"))),
            tools,
            whole_number(body, "max_completion_tokens", "max_tokens"),
            texts(body, "stop"),
            whole_number(body, "n") or 1,
            overridden(body, *_RUNS_OWN, neutral={**_NEUTRAL, **_none(body)}),
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
        """One chunk with all of an answer, and one with why it ended: the text was sampled before it was sent."""
        head = _head(reply, "chat.completion.chunk")
        for index, answer in enumerate(reply.answers):
            said = _said(answer)
            for number, call in enumerate(said.get("tool_calls", ())):
                call["index"] = number
            chunk: dict[str, Any] = {"index": index, "delta": {"role": "assistant", **said}, "finish_reason": None}
            if reply.body.get("logprobs"):
                chunk["logprobs"] = {"content": _logprobs(answer)}
            yield event({**head, "choices": [chunk]})
            yield event({**head, "choices": [{"index": index, "delta": {}, "finish_reason": answer.finish}]})
        if (reply.body.get("stream_options") or {}).get("include_usage"):
            yield event({**head, "choices": [], "usage": _usage(reply)})
        yield event("[DONE]")

    def error(self, error: RequestError) -> dict[str, Any]:
        kind = "server_error" if error.status >= 500 else "invalid_request_error"
        return {"error": {"message": str(error), "type": kind, "param": None, "code": error.code}}


def _none(body: Mapping[str, Any]) -> dict[str, Any]:
    """``tool_choice: none`` is honoured: no tool is offered."""
    return {"tool_choice": "none"} if body.get("tool_choice") == "none" else {}


def _tool(item: Any) -> ToolSpec:
    if isinstance(item, dict) and item.get("type", "function") != "function":
        raise RequestError(f"tools has one of the type {item.get('type')!r}; expected functions.")
    return read_tool(item.get("function") if isinstance(item, dict) else None, "parameters")


def _message(row: Any) -> Message:
    role = _ROLES.get(str(row.get("role"))) if isinstance(row, dict) else None
    if role is None:
        raise RequestError(f"messages has {row!r:.80}; expected a role among {', '.join(_ROLES)}.")
    content = text_of(row.get("content"), f"the content of a message of the role {role}")
    if role == "assistant":
        calls = tuple(_call(item) for item in row.get("tool_calls") or ())
        reasoning = next((str(row[key]) for key in REASONING_KEYS if row.get(key)), "")
        return Message("assistant", content, reasoning=reasoning, tool_calls=calls)
    if role == "tool":
        return Message("tool", content, tool_call_id=str(row.get("tool_call_id") or ""), name=row.get("name"))
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
