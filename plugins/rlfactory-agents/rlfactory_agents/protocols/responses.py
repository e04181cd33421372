"""OpenAI's responses, ``POST /v1/responses`` (platform.openai.com/docs/api-reference/responses)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlfactory_agents.exchange import ModelAnswer, ModelRequest, RequestError
from rlfactory_agents.keys import joined
from rlfactory_agents.past import Past
from rlfactory_agents.protocols.base import (
    Reply,
    WireFormat,
    answerable,
    event,
    known_fields,
    read_call,
    read_tools,
    text_of,
    value_of,
    whole_number,
)
from rlfactory_agents.protocols.fields import ALL_OF_IT, COUNTED, IDLE, Fields
from rlfactory_core.types import Message

_FIELDS = Fields(
    taken={"model", "input", "instructions", "tools", "max_output_tokens", "stream", "stream_options"}
    | {"previous_response_id", "include"},
    idle=IDLE | {"background_options", "access_programs"},
    counted=COUNTED | {"text"},
    refused={
        "conversation": f"{ALL_OF_IT} previous_response_id is understood as well.",
        "background": "an answer comes with its request. Leave it out.",
        "prompt": "there are no stored prompts. Send instructions and input.",
        "image": "this model writes text only.",
    },
    neutral={
        "text": [{"format": {"type": "text"}}],
        "tool_choice": ["auto", "none"],
        "parallel_tool_calls": [True],
        "truncation": ["disabled"],
        "top_logprobs": [0],
    },
)
_KNOWN = {  # fields of items by their type
    "message": {"type", "role", "content", "id", "status", "phase"},
    "function_call": {"type", "call_id", "name", "arguments", "id", "status"},
    "function_call_output": {"type", "call_id", "output", "id", "status"},
    "reasoning": {"type", "summary", "content", "id", "status"},
}
_STREAMED: dict[str, tuple[str, str, str, dict[str, Any]]] = {  # the key of an item's one part, and its events
    "message": ("content", "content_part", "output_text", {"logprobs": []}),
    "reasoning": ("summary", "reasoning_summary_part", "reasoning_summary_text", {}),
}


class Responses(WireFormat):
    """The protocol of OpenAI's Agents SDK. The attempt's own answers can be named instead of sent again."""

    path = "/responses"
    count_path = "/responses/input_tokens"

    def read(self, body: Mapping[str, Any], past: Past) -> ModelRequest:
        notes = set(_FIELDS.without_effect(body))
        if set(map(str, value_of(body, "include", []))) - _INCLUDED:
            notes.add("include")
        value_of(body, "stream_options", {})
        instructions = text_of(body.get("instructions"), "instructions")
        messages = [Message("system", instructions)] if instructions else []
        previous, given = body.get("previous_response_id"), body.get("input")
        if previous is not None:
            messages += past.answered(previous, "previous_response_id", "previous_response_not_found").messages
        if isinstance(given, str):
            messages.append(Message("user", given))
        elif isinstance(given, list) and given:
            _add_items(messages, given, past, notes)
        else:
            raise RequestError(f"input is {given!r:.80}; expected a text or a list of items.")
        return ModelRequest(
            answerable(messages),
            () if body.get("tool_choice") == "none" else read_tools(body, notes, ("function",)),
            whole_number(body, "max_output_tokens"),
            overridden=tuple(sorted(notes)),
            instructions=bool(instructions),
        )

    def write(self, reply: Reply) -> dict[str, Any]:
        answer = reply.answers[0]
        cut = answer.finish == "length"
        return {
            **_head(reply),
            "status": "incomplete" if cut else "completed",
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "output": _output(reply.id, answer),
            "usage": _usage(answer),
        }

    def events(self, reply: Reply) -> Iterator[str]:
        number = iter(range(1_000_000))

        def sent(kind: str, **fields: Any) -> str:
            return event({"type": kind, "sequence_number": next(number), **fields}, kind)

        started = {**_head(reply), "status": "in_progress", "output": []}
        yield sent("response.created", response=started)
        yield sent("response.in_progress", response=started)
        whole = self.write(reply)
        for index, item in enumerate(whole["output"]):
            place = {"item_id": item["id"], "output_index": index}
            yield sent("response.output_item.added", output_index=index, item=_opened(item))
            if item["type"] in _STREAMED:
                key, part_name, text_name, more = _STREAMED[item["type"]]
                part, text = item[key][0], item[key][0]["text"]
                place[f"{key}_index"] = 0
                yield sent(f"response.{part_name}.added", **place, part={**part, "text": ""})
                yield sent(f"response.{text_name}.delta", **place, delta=text, **more)
                yield sent(f"response.{text_name}.done", **place, text=text, **more)
                yield sent(f"response.{part_name}.done", **place, part=part)
            else:
                yield sent("response.function_call_arguments.delta", **place, delta=item["arguments"])
                yield sent(
                    "response.function_call_arguments.done", **place, name=item["name"], arguments=item["arguments"]
                )
            yield sent("response.output_item.done", output_index=index, item=item)
        kind = "response.incomplete" if whole["status"] == "incomplete" else "response.completed"
        yield sent(kind, response=whole)

    def given(self, reply: Reply) -> dict[str, Mapping[str, Any]]:
        whole = self.write(reply)
        return {each["id"]: each for each in (whole, *whole["output"])}

    def counted(self, tokens: int) -> dict[str, Any]:
        return {"object": "response.input_tokens", "input_tokens": tokens}


_INCLUDED = {"reasoning.encrypted_content"}  # of `include`: what is known without it


def _add_items(messages: list[Message], items: list[Any], past: Past, notes: set[str]) -> None:
    """Add the messages of a list of items; items of the assistant that follow each other are one turn."""
    for given in items:
        if not isinstance(given, dict):
            raise RequestError(f"input has {given!r:.80}; expected messages, function calls and their outputs.")
        kind = given.get("type") or ("message" if "role" in given else "item_reference")
        item = past.item(given.get("id")) if kind == "item_reference" else given
        kind = item.get("type") or kind
        if kind not in _KNOWN:
            raise RequestError(
                f"input has an item of the type {kind!r:.80}; expected messages, function calls and their outputs."
            )
        known_fields(item, "input", _KNOWN[kind], notes)
        message, last = _item(kind, item), messages[-1] if messages else None
        if message.role == "assistant" and last is not None and last.role == "assistant":
            messages[-1] = joined(last, message)
        else:
            messages.append(message)
    if messages and messages[-1].role == "assistant" and not (messages[-1].content or messages[-1].tool_calls):
        messages.pop()  # reasoning without anything that it led to


def _item(kind: str, item: Mapping[str, Any]) -> Message:
    if kind == "message":
        return _message(item)
    if kind == "function_call":
        call = read_call(item.get("call_id"), item.get("name"), item.get("arguments"))
        return Message("assistant", "", tool_calls=(call,))
    if kind == "function_call_output":
        output = text_of(item.get("output"), "the output of a function call")
        return Message("tool", output, tool_call_id=str(item.get("call_id")))
    thought = "\n".join(text_of(item.get(key), "the reasoning") for key in ("summary", "content") if item.get(key))
    return Message("assistant", "", reasoning=thought)


def _message(item: Mapping[str, Any]) -> Message:
    role = item.get("role")
    text = text_of(item.get("content"), f"the content of a message of the role {role}")
    if role in ("system", "developer"):
        return Message("system", text)
    if role in ("user", "assistant"):
        return Message("user" if role == "user" else "assistant", text)
    raise RequestError(f"input has a message of the role {role!r:.80}; expected user, assistant, system or developer.")


def _output(reply_id: str, answer: ModelAnswer) -> list[dict[str, Any]]:
    message = answer.message
    items: list[dict[str, Any]] = []
    if message.reasoning:
        summary = [{"type": "summary_text", "text": message.reasoning}]
        items.append({"type": "reasoning", "id": f"rs_{reply_id}", "summary": summary})
    if message.content or not message.tool_calls:
        part = {"type": "output_text", "text": message.content, "annotations": [], "logprobs": []}
        item = {"type": "message", "id": f"msg_{reply_id}", "role": "assistant", "content": [part]}
        items.append({**item, "status": "completed"})
    for index, call in enumerate(message.tool_calls):
        item = {"type": "function_call", "id": f"fc_{reply_id}_{index}", "call_id": call.id, "name": call.name}
        items.append({**item, "arguments": call.arguments_text, "status": "completed"})
    return items


def _opened(item: dict[str, Any]) -> dict[str, Any]:
    """An item before its content has come."""
    if item["type"] == "reasoning":
        return {**item, "summary": []}
    empty: dict[str, Any] = {"content": []} if item["type"] == "message" else {"arguments": ""}
    return {**item, "status": "in_progress", **empty}


def _head(reply: Reply) -> dict[str, Any]:
    body = reply.body
    return {
        "id": f"resp_{reply.id}",
        "object": "response",
        "created_at": reply.created,
        "model": reply.model,
        "error": None,
        "incomplete_details": None,
        "instructions": body.get("instructions"),
        "metadata": body.get("metadata") or {},
        "previous_response_id": body.get("previous_response_id"),
        "parallel_tool_calls": True,
        "temperature": None,
        "top_p": None,
        "tool_choice": body.get("tool_choice") or "auto",
        "tools": body.get("tools") or [],
    }


def _usage(answer: ModelAnswer) -> dict[str, Any]:
    return {
        "input_tokens": answer.prompt_tokens,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": answer.sampled_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": answer.prompt_tokens + answer.sampled_tokens,
    }
