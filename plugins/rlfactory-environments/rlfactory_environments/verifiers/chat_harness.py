"""A harness of verifiers' second interface: a chat with the task's tools, in this process.

It does what verifiers' own harness ``null`` does, which starts a program of its own for each turn of a conversation.
Every call of the model goes through verifiers' interception, as for any harness.
"""

from __future__ import annotations

import importlib
import json
from contextlib import AsyncExitStack
from typing import Any

from openai import APIStatusError, AsyncOpenAI
from verifiers.v1.clients import ModelContext
from verifiers.v1.configs.harness import HarnessConfig
from verifiers.v1.dialects.chat import message_to_wire
from verifiers.v1.harness import Harness
from verifiers.v1.runtimes import ProgramResult, Runtime
from verifiers.v1.task import TaskData
from verifiers.v1.trace import Trace

__all__ = ["ChatHarness"]


class ChatHarnessConfig(HarnessConfig):
    """It has no options of its own."""


class ChatHarness(Harness[ChatHarnessConfig]):
    """Asks the model until it answers without a call."""

    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_MCP = True
    SUPPORTS_RESUME = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: ModelContext,
        trace: Trace,
        runtime: Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: TaskData,
        **_: Any,
    ) -> ProgramResult:
        system, prompt = self.resolve_prompt(data)
        messages = [{"role": "system", "content": system}] if system else []
        if isinstance(prompt, str):
            messages.append({"role": "user", "content": prompt})
        elif prompt is not None:
            messages += [message_to_wire(each) for each in prompt]
        try:
            async with (
                AsyncExitStack() as stack,
                AsyncOpenAI(base_url=endpoint, api_key=secret, max_retries=0) as client,
            ):
                tools = await _Tools.connected(mcp_urls, self.config.tool_timeout, stack)
                await _converse(client, ctx.model, messages, tools)
        except APIStatusError as error:  # a limit, or a failure that verifiers knows already
            return ProgramResult(exit_code=1, stdout="", stderr=str(error))
        return ProgramResult(exit_code=0, stdout="", stderr="")


async def _converse(client: AsyncOpenAI, model: str, messages: list[Any], tools: _Tools) -> None:
    while True:
        offered = {"tools": tools.schemas} if tools.schemas else {}
        completion = await client.chat.completions.create(model=model, messages=messages, **offered)
        reply = completion.choices[0].message
        messages.append(reply.model_dump(exclude_none=True))
        if not reply.tool_calls:
            return
        for call in reply.tool_calls:
            content = await tools.call(call.function.name, call.function.arguments)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": content})


class _Tools:
    """The tools of the task's servers, by verifiers' own client of MCP, whose place differs between releases."""

    def __init__(self, found: tuple[Any, Any, Any], client: Any) -> None:
        self.schemas, self._dispatch, self._servers = found
        self._client = client

    @classmethod
    async def connected(cls, urls: dict[str, str], timeout_s: float, stack: AsyncExitStack) -> _Tools:
        if not urls:
            return cls(([], {}, {}), None)
        config = {"mcpServers": {name: {"url": url, "timeout": timeout_s} for name, url in urls.items()}}
        try:
            client = importlib.import_module("verifiers.v1.harnesses.utils.mcp")
        except ModuleNotFoundError:  # verifiers 0.3
            client = importlib.import_module("verifiers.v1.harnesses.null.program")
            return cls(await client.connect_mcp(config), client)
        return cls(await client.connect_mcp(config, stack), client)

    async def call(self, name: str, arguments: str) -> Any:
        """The result for the model; a wrong call is answered in words."""
        if name not in self._dispatch:
            return f"error: there is no tool {name!r}"
        try:
            given = json.loads(arguments or "{}")
        except json.JSONDecodeError as error:
            return f"error: the arguments are no JSON: {error}"
        try:
            return await self._client.call_mcp(self._servers, self._dispatch, name, given)
        except Exception as error:  # noqa: BLE001 the boundary to the task's tool, as in verifiers' own harness
            return f"error: {error}"
