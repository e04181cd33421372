"""A model as a tool: one question, one answer, from any OpenAI-compatible endpoint."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from textwrap import shorten
from typing import Any

from rlfactory_core.cache import digest
from rlfactory_core.clients.base import ChatClient
from rlfactory_core.delegates.source import DelegateSource, Endpoint, name_call
from rlfactory_core.delegates.template import PromptTemplate, read_template
from rlfactory_core.errors import ToolError
from rlfactory_core.protocols import Tool, ToolSource
from rlfactory_core.rollout import derive_seed
from rlfactory_core.tool_context import ToolContext
from rlfactory_core.types import Message, SamplingParams, ToolSpec

_TOLD = 200  # characters of the prompt in a tool's description


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
    """A model that the policy can ask, for a task's ``tools``: summarise, translate, judge.

        model_tool("summarise", "http://127.0.0.1:8000/v1", "Qwen/Qwen3-8B", "Summarise {text} for {audience}.",
                   description="Say a text in fewer words.", parameters={"audience": "who will read it"})

    The endpoint is asked once when the run starts, so that one which is down or lacks the model ends it there. In
    mid-run a lost connection is an infra fault, after the client's own retries; no text in the answer is a tool fault.

    Args:
        prompt: its ``{name}`` fields become the tool's arguments, all strings and required; ``{{`` is a brace.
        description: what the policy is told of the tool; by default that it asks a model, and the prompt's beginning.
        parameters: descriptions of the arguments, by name.
        system: a system message before the prompt.
        max_tokens: of one answer, reasoning included; a longer one is cut, visibly.
        temperature: at 0 results may be cached (``tools.cache``); above, each call is sampled with a seed of its own,
            which the trajectory and the call's number determine.
        api_key: by default the first of `clients.openai.KEY_VARIABLES` that is set.
        deadline_s: seconds for one call, where the configuration gives none for this tool by name.

    Raises:
        UsageError: a prompt without fields or with others than plain ones, or a description of no argument.
    """
    template = read_template(prompt)
    told = description or f"Ask a language model: {shorten(prompt, _TOLD)}"
    spec = ToolSpec(name, told, template.parameters(parameters or {}))
    endpoint = Endpoint(name, base_url, model, api_key)

    async def start(opened: AsyncExitStack, _group: str) -> Tool:
        client = await endpoint.connect(opened)
        return ModelTool(spec, template, client, system, SamplingParams(max_tokens, temperature), model, deadline_s)

    return DelegateSource(name, start)


class ModelTool:
    """What `model_tool` opens to."""

    idempotent = False  # asking twice does no harm, but the client has its own retries

    def __init__(
        self,
        spec: ToolSpec,
        template: PromptTemplate,
        client: ChatClient,
        system: str | None,
        params: SamplingParams,
        model: str,
        deadline_s: float,
    ) -> None:
        self.spec = spec
        self.stateful = params.temperature > 0
        self.version = digest([model, system or "", repr(template.pieces), str(params.max_tokens)])
        self.deadline_s: float | None = deadline_s
        self._template, self._client, self._params = template, client, params
        self._system = () if system is None else (Message("system", system),)

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        """The model's answer; see `protocols.Tool`."""
        name, limit = self.spec.name, self._params.max_tokens
        messages = (*self._system, Message("user", self._template.fill(arguments)))
        seed = derive_seed(name_call(context, name))
        params = SamplingParams(limit, self._params.temperature, seed=seed)
        completion = await self._client.complete(messages, (), params)
        if completion is None:
            raise ToolError(f"that is more text than {name} can read at once; give it less.")
        text = completion.message.content
        cut = completion.finish == "length"
        if not text:
            raise ToolError(f"{name} came to no answer within {limit} tokens." if cut else f"{name} gave no answer.")
        return f"{text}\n[cut after {limit} tokens]" if cut else text

    async def close(self) -> None:
        """The client is closed with its source."""
