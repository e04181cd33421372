"""Anthropic's messages, ``POST /v1/messages`` (docs.anthropic.com/en/api/messages)."""

from __future__ import annotations

import json
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
from rlfactory_core.types import Message

_RUNS_OWN = ("temperature", "top_p", "top_k", "thinking", "tool_choice", "stop_sequences")
_STOPS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
_TYPES = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error"}


class AnthropicMessages:
    """The protocol of Anthropic's SDKs."""

    path = "/messages"

    def read(self, body: Mapping[str, Any]) -> ModelRequest:
        system = text_of(body.get("system"), "system")
        messages = [Message("system", system)] if system else []
        for row in require_messages(body, "messages"):
            messages += _messages(row)
        choice = (body.get("tool_choice") or {}).get("type", "auto")
        tools = () if choice == "none" else tuple(read_tool(tool, "input_schema") for tool in listed(body, "tools"))
        neutral = {"tool_choice": body.get("tool_choice") if choice in ("auto", "none") else None}
        return ModelRequest(
            named_results(messages),
            tools,
            whole_number(body, "max_tokens"),
            texts(body, "stop_sequences"),
            overridden=overridden(body, *_RUNS_OWN, neutral=neutral),
        )

    def write(self, reply: Reply) -> dict[str, Any]:
        answer = reply.answers[0]
        return {
            **_head(reply),
            "content": _blocks(answer),
            "stop_reason": _STOPS[answer.finish],
            "usage": {"input_tokens": answer.prompt_tokens, "output_tokens": answer.sampled_tokens},
        }

    def events(self, reply: Reply) -> Iterator[str]:
        answer = reply.answers[0]
        usage = {"input_tokens": answer.prompt_tokens, "output_tokens": 0}
        start = {"type": "message_start", "message": {**_head(reply), "content": [], "usage": usage}}
        yield event(start, "message_start")
        for index, block in enumerate(_blocks(answer)):
            empty, deltas = _streamed(block)
            opened = {"type": "content_block_start", "index": index, "content_block": empty}
            yield event(opened, "content_block_start")
            for delta in deltas:
                yield event({"type": "content_block_delta", "index": index, "delta": delta}, "content_block_delta")
            yield event({"type": "content_block_stop", "index": index}, "content_block_stop")
        end = {"stop_reason": _STOPS[answer.finish], "stop_sequence": None}
        done = {"type": "message_delta", "delta": end, "usage": {"output_tokens": answer.sampled_tokens}}
        yield event(done, "message_delta")
        yield event({"type": "message_stop"}, "message_stop")

    def error(self, error: RequestError) -> dict[str, Any]:
        kind = _TYPES.get(error.status, "api_error" if error.status >= 500 else "invalid_request_error")
        return {"type": "error", "error": {"type": kind, "message": str(error)}}


def _messages(row: Any) -> list[Message]:
    """A message; one of the user with tools' results is one message for each of them, and one with its text."""
    role = row.get("role") if isinstance(row, dict) else None
    if role not in ("user", "assistant", "system"):
        raise RequestError(f"messages has {row!r:.80}; expected the role user or assistant.")
    content = row.get("content")
    blocks = content if isinstance(content, list) else [{"type": "text", "text": text_of(content, "a content")}]
    plain = [each for each in blocks if _type(each) not in ("tool_use", "tool_result", "thinking", "redacted_thinking")]
    text = text_of(plain, f"the content of a message of the role {role}")
    if role == "assistant":
        calls = tuple(
            read_call(each.get("id"), each.get("name"), each.get("input"))
            for each in blocks
            if _type(each) == "tool_use"
        )
        thought = "\n".join(str(each.get("thinking") or "") for each in blocks if _type(each) == "thinking")
        return [Message("assistant", text, reasoning=thought, tool_calls=calls)]
    if role == "system":
        return [Message("system", text)]
    results = [
        Message("tool", text_of(each.get("content"), "a tool's result"), tool_call_id=str(each.get("tool_use_id")))
        for each in blocks
        if _type(each) == "tool_result"
    ]
    return [*results, Message("user", text)] if plain else results


def _type(block: Any) -> str:
    return str(block.get("type")) if isinstance(block, dict) else ""


def _blocks(answer: ModelAnswer) -> list[dict[str, Any]]:
    message = answer.message
    blocks: list[dict[str, Any]] = []
    if message.reasoning:
        blocks.append({"type": "thinking", "thinking": message.reasoning, "signature": "rlfactory"})
    if message.content or not message.tool_calls:
        blocks.append({"type": "text", "text": message.content, "citations": None})
    blocks += [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": dict(call.arguments or {})}
        for call in message.tool_calls
    ]
    return blocks


def _streamed(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A block without its content, and the deltas that bring it."""
    if block["type"] == "text":
        return {**block, "text": ""}, [{"type": "text_delta", "text": block["text"]}]
    if block["type"] == "thinking":
        deltas = [{"type": "thinking_delta", "thinking": block["thinking"]}]
        return {**block, "thinking": "", "signature": ""}, [
            *deltas,
            {"type": "signature_delta", "signature": block["signature"]},
        ]
    text = json.dumps(block["input"], ensure_ascii=False)
    return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": text}]


def _head(reply: Reply) -> dict[str, Any]:
    return {
        "id": f"msg_{reply.id}",
        "type": "message",
        "role": "assistant",
        "model": reply.model,
        "stop_reason": None,
        "stop_sequence": None,
    }
