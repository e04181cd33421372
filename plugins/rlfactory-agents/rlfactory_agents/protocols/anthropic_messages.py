"""Anthropic's messages, ``POST /v1/messages`` (docs.anthropic.com/en/api/messages)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from rlfactory_agents.exchange import ModelAnswer, ModelRequest, RequestError
from rlfactory_agents.past import Answered, Past
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
from rlfactory_core.types import Message

_FIELDS = Fields(
    taken={"model", "messages", "system", "tools", "max_tokens", "stop_sequences", "stream", "thread"},
    idle=IDLE
    | {"betas", "billing_policy", "diagnostics", "fallbacks", "fallback_credit_token", "inference_geo"}
    | {"user_profile_id", "workspace_id"},
    counted=COUNTED | {"output_config", "output_format", "compaction"},
    refused={
        "container": f"nothing is kept in containers. Leave it out; {NO_SERVER_TOOLS}",
        "mcp_servers": NO_SERVER_TOOLS,
        "previous_response_id": ALL_OF_IT,
    },
    neutral={"tool_choice": [{"type": "auto"}, {"type": "none"}], "thinking": [{"type": "disabled"}]},
)
_KNOWN = {  # fields of blocks by their type
    "text": {"text", "citations"},
    "tool_use": {"id", "name", "input", "caller"},
    "tool_result": {"tool_use_id", "content"},
    "thinking": {"thinking", "signature"},
    "redacted_thinking": {"data"},
}
_STOPS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
_TYPES = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error"}


class AnthropicMessages(WireFormat):
    """The protocol of Anthropic's SDKs. A thread is continued by the id of one of the attempt's own answers."""

    path = "/messages"
    count_path = "/messages/count_tokens"

    def read(self, body: Mapping[str, Any], past: Past) -> ModelRequest:
        notes = set(_FIELDS.without_effect(body))
        thread = _continued(value_of(body, "thread", {}), past)
        system = text_of(body.get("system"), "system")
        if system:
            messages = [Message("system", system)]
        else:
            messages = [] if thread is None else list(thread.request.messages[: thread.request.instructions])
        instructions = len(messages)
        if thread is not None:
            messages += thread.messages
        for row in require_messages(body, "messages"):
            messages += _messages(row, notes)
        offered = read_tools(body, notes, (None, "custom"), "input_schema")
        if thread is not None and body.get("tools") is None:
            offered = thread.request.offered
        none = value_of(body, "tool_choice", {}).get("type") == "none"
        return ModelRequest(
            answerable(messages),
            () if none else offered,
            whole_number(body, "max_tokens"),
            texts(body, "stop_sequences"),
            overridden=tuple(sorted(notes)),
            instructions=instructions,
            offered=offered,
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

    def given(self, reply: Reply) -> dict[str, Mapping[str, Any]]:
        return {f"msg_{reply.id}": {}}

    def counted(self, tokens: int) -> dict[str, Any]:
        return {"input_tokens": tokens}

    def error(self, error: RequestError) -> dict[str, Any]:
        kind = _TYPES.get(error.status, "api_error" if error.status >= 500 else "invalid_request_error")
        said = {"type": kind, "message": str(error), "details": {"error_code": error.code}}
        return {"type": "error", "error": said}


def _continued(thread: Mapping[str, Any], past: Past) -> Answered | None:
    """The answer after which a thread goes on; SDKs send the whole conversation again where it is not known."""
    if thread and thread.get("type") not in ("create", "continue"):
        raise RequestError(f"thread is {dict(thread)!r:.80}; expected the type create or continue.")
    if thread.get("type") != "continue":
        return None
    return past.answered(thread.get("previous_message_id"), "thread.previous_message_id", "thread_not_found")


def _messages(row: Any, notes: set[str]) -> list[Message]:
    """A message; one of the user with tools' results is one message for each of them, and one with its text."""
    role = row.get("role") if isinstance(row, dict) else None
    if role not in ("user", "assistant", "system"):
        raise RequestError(f"messages has {row!r:.80}; expected the role user or assistant.")
    known_fields(row, "messages", ("role", "content", "id"), notes)
    content = row.get("content")
    blocks = content if isinstance(content, list) else [{"type": "text", "text": text_of(content, "a content")}]
    own = {"assistant": ("tool_use", "thinking", "redacted_thinking"), "user": ("tool_result",)}.get(role, ())
    for each in blocks:
        if _type(each) in _KNOWN:
            known_fields(each, "content", {"type", "cache_control", *_KNOWN[_type(each)]}, notes)
    plain = [each for each in blocks if _type(each) not in own]
    text = text_of(plain, f"the content of a message of the role {role}")
    if role == "assistant":
        used = (each for each in blocks if _type(each) == "tool_use")
        calls = tuple(read_call(each.get("id"), each.get("name"), each.get("input")) for each in used)
        thought = "\n".join(str(each.get("thinking") or "") for each in blocks if _type(each) == "thinking")
        return [Message("assistant", text, reasoning=thought, tool_calls=calls)]
    if role == "system":
        return [Message("system", text)]
    given = (each for each in blocks if _type(each) == "tool_result")
    results = [
        Message("tool", text_of(each.get("content"), "a tool's result"), tool_call_id=str(each.get("tool_use_id")))
        for each in given
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
        blocks.append({"type": "text", "text": message.content})
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
        signed = {"type": "signature_delta", "signature": block["signature"]}
        deltas = [{"type": "thinking_delta", "thinking": block["thinking"]}, signed]
        return {**block, "thinking": "", "signature": ""}, deltas
    text = json.dumps(block["input"], ensure_ascii=False)
    return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": text}]


def _head(reply: Reply) -> dict[str, Any]:
    head = {"id": f"msg_{reply.id}", "type": "message", "role": "assistant", "model": reply.model}
    return {**head, "stop_reason": None, "stop_sequence": None}
