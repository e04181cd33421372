"""Models as tools: a call asks a model of an OpenAI-compatible endpoint one question and returns its answer.

`agent` uses the same source and endpoint.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from string import Formatter
from textwrap import shorten
from typing import Any

from rlfactory_core import ToolContext
from rlfactory_core.cache import digest
from rlfactory_core.clients import OpenAIClient
from rlfactory_core.errors import BackendError, ToolError, UsageError, nearest
from rlfactory_core.protocols import Model, Request, Tool, ToolSource
from rlfactory_core.types import Message, SamplingParams, ToolSpec
from rlfactory_core.utils.seeds import derive_seed

_CONNECTIONS = 1024  # at most; the tool manager limits concurrency and time
_EXPECTED = "expected {name} for each argument, as in 'Summarise {text}', and other braces doubled."
_PROMPT_SHOWN = 200  # characters of the prompt in a tool's description


def prompt_fields(prompt: str) -> tuple[str, ...]:
    """The names of a prompt's ``{name}`` fields, each once, in the order of their first use.

    Unlike in `str.format`, a field is a plain name, without attributes, indices and formats.

    Raises:
        UsageError: the prompt has no field, or a brace that is neither part of a plain ``{name}`` nor doubled.
    """
    try:
        pieces = list(Formatter().parse(prompt))
    except ValueError as error:
        raise UsageError(f"the prompt cannot be read ({error}); {_EXPECTED}") from error
    for _, name, spec, conversion in pieces:
        if name is not None and (spec or conversion or not name.isidentifier()):
            raise UsageError(f"the prompt holds '{{{name}…}}'; {_EXPECTED}")
    fields = tuple(dict.fromkeys(name for _, name, *_ in pieces if name is not None))
    if not fields:
        raise UsageError(f"the prompt has no field, so the tool would have no argument; {_EXPECTED}")
    return fields


def argument_schema(fields: Sequence[str], descriptions: Mapping[str, str]) -> dict[str, Any]:
    """The JSON schema of an object with one required string for each field.

    Raises:
        UsageError: a description belongs to no field.
    """
    properties: dict[str, dict[str, str]] = {name: {"type": "string"} for name in fields}
    for name, text in descriptions.items():
        if name not in properties:
            raise UsageError(f"parameters: the prompt has no {{{name}}}. {nearest(name, fields)}")
        properties[name]["description"] = text
    return {"type": "object", "properties": properties, "required": list(fields), "additionalProperties": False}


def model_tool(  # noqa: PLR0913 - one flat list of options, all but four have a default
    name: str,
    base_url: str,
    model: str,
    prompt: str,
    *,
    description: str | None = None,
    parameters: Mapping[str, str] | None = None,
    system: str | None = None,
    max_tokens: int = 512,
    temperature: float = 0.7,
    api_key: str | None = None,
    deadline_s: float = 60.0,
) -> ToolSource:
    """A tool that asks a model one question, such as for a summary or a translation; for a task's ``tools``.

        model_tool("summarise", "http://127.0.0.1:8000/v1", "Qwen/Qwen3-8B", "Summarise {text} for {audience}.",
                   description="Say a text in fewer words.", parameters={"audience": "who will read it"})

    The endpoint gets one request when the run starts, so that a run whose endpoint is down or lacks the model ends
    there. Later, a lost connection is an infra fault, after the client's own retries; an empty answer is a tool fault.

    Args:
        prompt: its ``{name}`` fields become the tool's arguments, all strings and required; ``{{`` is a brace.
        description: for the policy; by default it says that the tool asks a model, and quotes the prompt's beginning.
        parameters: descriptions of the arguments, by name.
        system: a system message before the prompt.
        max_tokens: of one answer, reasoning included; a longer answer is truncated, with a note.
        temperature: at 0 results may be cached (``tools.cache``); above 0, each call is sampled with a seed derived
            from the trajectory and the call's number.
        api_key: by default as `clients.OpenAIClient` says.
        deadline_s: seconds for one call; an override in the configuration takes precedence.

    Raises:
        UsageError: the prompt has no fields or fields that are not plain names, or a description has no argument.
    """
    text = description or f"Ask a language model: {shorten(prompt, _PROMPT_SHOWN)}"
    spec = ToolSpec(name, text, argument_schema(prompt_fields(prompt), parameters or {}))
    question = Question(model, prompt, system, max_tokens, temperature)

    async def start(opened: AsyncExitStack, _group: str) -> Tool:
        return ModelTool(spec, question, await connected(opened, name, base_url, model, api_key), deadline_s)

    return DelegateSource(name, start)


@dataclass(frozen=True, slots=True)
class Question:
    """The arguments of `model_tool` that decide what the model is asked."""

    model: str
    prompt: str
    system: str | None
    max_tokens: int
    temperature: float

    def messages(self, arguments: Mapping[str, str]) -> tuple[Message, ...]:
        """The conversation with a call's arguments in the prompt; braces in an argument stay as they are."""
        system = () if self.system is None else (Message("system", self.system),)
        return (*system, Message("user", self.prompt.format_map(arguments)))


class ModelTool:
    """The tool that `model_tool` opens."""

    idempotent = False  # so that the tool manager does not retry: the client has its own retries

    def __init__(self, spec: ToolSpec, question: Question, model: Model, deadline_s: float) -> None:
        self.spec = spec
        self.stateful = question.temperature > 0
        self.version = digest([question.model, question.system or "", question.prompt, str(question.max_tokens)])
        self.deadline_s: float | None = deadline_s
        self._question, self._model = question, model

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        """The model's answer; see `protocols.Tool`."""
        name, limit = self.spec.name, self._question.max_tokens
        params = SamplingParams(limit, self._question.temperature, seed=derive_seed(name_call(context, name)))
        sampled = await self._model.answer(Request(self._question.messages(arguments), (), params))
        if sampled is None:
            raise ToolError(f"that is more text than {name} can read at once; give it less.")
        text = sampled.message.content
        cut = sampled.finish == "length"
        if not text:
            raise ToolError(f"{name} came to no answer within {limit} tokens." if cut else f"{name} gave no answer.")
        return f"{text}\n[cut after {limit} tokens]" if cut else text

    async def close(self) -> None:
        """The client is closed with its source."""


class DelegateSource:
    """A `protocols.ToolSource` of one tool.

    Args:
        name: of the tool.
        start: makes the tool for a group, and puts what has to be closed with it onto the stack.
    """

    def __init__(self, name: str, start: Callable[[AsyncExitStack, str], Awaitable[Tool]]) -> None:
        self._name, self._start = name, start
        self._opened = AsyncExitStack()

    def __repr__(self) -> str:
        return f"<tool {self._name}>"

    async def open(self, taken: Collection[str], group: str = "") -> Sequence[Tool]:
        """Open the tool; the tool manager refuses a name that is ``taken``."""
        return (await self._start(self._opened, group),)

    async def close(self) -> None:
        await self._opened.aclose()


async def connected(
    opened: AsyncExitStack, tool: str, base_url: str, model: str, api_key: str | None, tools: Sequence[ToolSpec] = ()
) -> OpenAIClient:
    """A client that the stack closes; the model has answered one request with these ``tools``.

    Args:
        tool: which asks the model, for error messages.

    Raises:
        BackendError: nothing answers, the key is refused, or the model cannot be used with tools.
        UsageError: ``base_url`` is not an address.
    """
    try:
        client = OpenAIClient(base_url, model, api_key=api_key, concurrency=_CONNECTIONS)
        await client.open(tools)
    except (BackendError, UsageError) as error:
        raise type(error)(f"tool '{tool}': {error}") from error
    opened.push_async_callback(client.close)
    return client


def name_call(context: ToolContext, tool: str) -> str:
    """A name for this call, as unique as the trajectory's id: ``<trajectory>/<tool>/<number>``."""
    key = f"delegates.calls.{tool}"
    number = context.state.get(key, 0)
    context.state[key] = number + 1
    return f"{context.trajectory_id}/{tool}/{number}"
