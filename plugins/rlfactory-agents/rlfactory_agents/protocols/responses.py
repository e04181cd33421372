"""OpenAI's responses, ``POST /v1/responses`` (platform.openai.com/docs/api-reference/responses)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
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
    text_of,
    whole_number,
)
from rlfactory_agents.protocols.chat_completions import ChatCompletions
from rlfactory_core.types import Message, ToolSpec

_RUNS_OWN = ("temperature", "top_p", "text", "tool_choice", "parallel_tool_calls", "reasoning", "truncation")
_NEUTRAL = {
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "truncation": "disabled",
}


class Responses:
    """The protocol of OpenAI's Agents SDK. Nothing is stored, so that ``previous_response_id`` is refused."""

    path = "/responses"

    def read(self, body: Mapping[str, Any]) -> ModelRequest:
        for key in ("previous_response_id", "conversation", "background"):
            if body.get(key):
                raise RequestError(f"{key} is not supported: nothing is stored here. Send the whole input.")
        instructions = text_of(body.get("instructions"), "instructions")
        messages = [Message("system", instructions)] if instructions else []
        given = body.get("input")
        if isinstance(given, str):
            messages.append(Message("user", given))
        elif isinstance(given, list) and given:
            messages += _items(given)
        else:
            raise RequestError(f"input is {given!r:.80}; expected a text or a list of items.")
        none = body.get("tool_choice") == "none"
        return ModelRequest(
            named_results(messages),
            () if none else tuple(map(_tool, listed(body, "tools"))),
            whole_number(body, "max_output_tokens"),
            overridden=overridden(body, *_RUNS_OWN, neutral={**_NEUTRAL, **({"tool_choice": "none"} if none else {})}),
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
            if item["type"] == "message":
                part, text = item["content"][0], item["content"][0]["text"]
                place["content_index"] = 0
                yield sent("response.content_part.added", **place, part={**part, "text": ""})
                yield sent("response.output_text.delta", **place, delta=text, logprobs=[])
                yield sent("response.output_text.done", **place, text=text, logprobs=[])
                yield sent("response.content_part.done", **place, part=part)
            elif item["type"] == "function_call":
                yield sent("response.function_call_arguments.delta", **place, delta=item["arguments"])
                yield sent(
                    "response.function_call_arguments.done", **place, name=item["name"], arguments=item["arguments"]
                )
            yield sent("response.output_item.done", output_index=index, item=item)
        kind = "response.incomplete" if whole["status"] == "incomplete" else "response.completed"
        yield sent(kind, response=whole)

    error = ChatCompletions.error


def _items(items: list[Any]) -> list[Message]:
    """The messages of a list of items; an assistant's text and calls that follow each other are one turn."""
    messages: list[Message] = []
    for item in items:
        kind = item.get("type", "message") if isinstance(item, dict) else ""
        if kind == "message":
            message = _message(item)
        elif kind == "function_call":
            call = read_call(item.get("call_id"), item.get("name"), item.get("arguments"))
            message = Message("assistant", "", tool_calls=(call,))
        elif kind == "function_call_output":
            output = text_of(item.get("output"), "the output of a function call")
            message = Message("tool", output, tool_call_id=str(item.get("call_id")))
        elif kind in ("reasoning", "item_reference"):
            continue
        else:
            raise RequestError(f"input has an item of the type {kind!r}; expected messages and function calls.")
        last = messages[-1] if messages else None
        if message.role == "assistant" and last is not None and last.role == "assistant":
            calls = (*last.tool_calls, *message.tool_calls)
            messages[-1] = replace(last, content=last.content + message.content, tool_calls=calls)
        else:
            messages.append(message)
    return messages


def _message(item: Mapping[str, Any]) -> Message:
    role = item.get("role")
    text = text_of(item.get("content"), f"the content of a message of the role {role}")
    if role in ("system", "developer"):
        return Message("system", text)
    if role in ("user", "assistant"):
        return Message("user" if role == "user" else "assistant", text)
    raise RequestError(f"input has a message of the role {role!r}; expected user, assistant, system or developer.")


def _tool(item: Any) -> ToolSpec:
    if isinstance(item, dict) and item.get("type") != "function":
        raise RequestError(f"tools has one of the type {item.get('type')!r}; this model has functions only.")
    return read_tool(item, "parameters")


def _output(reply_id: str, answer: ModelAnswer) -> list[dict[str, Any]]:
    message = answer.message
    items: list[dict[str, Any]] = []
    if message.reasoning:
        summary = [{"type": "summary_text", "text": message.reasoning}]
        items.append({"type": "reasoning", "id": f"rs_{reply_id}", "summary": summary})
    if message.content or not message.tool_calls:
        part = {"type": "output_text", "text": message.content, "annotations": [], "logprobs": []}
        items.append(
            {
                "type": "message",
                "id": f"msg_{reply_id}",
                "role": "assistant",
                "status": "completed",
                "content": [part],
            }
        )
    items += [
        {
            "type": "function_call",
            "id": f"fc_{reply_id}_{index}",
            "call_id": call.id,
            "name": call.name,
            "arguments": call.arguments_text,
            "status": "completed",
        }
        for index, call in enumerate(message.tool_calls)
    ]
    return items


def _opened(item: dict[str, Any]) -> dict[str, Any]:
    """An item before its content has come."""
    contents: dict[str, dict[str, Any]] = {"message": {"content": []}, "function_call": {"arguments": ""}}
    empty = contents.get(item["type"], {})
    return {**item, **empty} | ({} if item["type"] == "reasoning" else {"status": "in_progress"})


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
