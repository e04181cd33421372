"""Agents of frameworks that have no page in the documentation, each as its own documentation writes it."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Any

from rlfactory_core.gateway import Endpoint
from rlfactory_core.types import Sample

FACTS = {"Tedre Labs": "Tedre Labs is based in Tinmivor.", "Tinmivor": "Tinmivor lies in Ransta."}
SYSTEM = "Answer with a place."
# Before their first import: they would report each run to their makers.
SILENT = {"HAYSTACK_TELEMETRY_ENABLED": "False", "ANONYMIZED_TELEMETRY": "False"}


def search(query: str) -> str:
    """Search the corpus.

    Args:
        query: what to look for.
    """
    return FACTS.get(query, "Nothing was found.")


async def openai_responses_by_id(sample: Sample, endpoint: Endpoint) -> str:
    """A loop that names the answer before instead of sending the history."""
    import json

    from openai import AsyncOpenAI

    schema = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
    tool: Any = {"type": "function", "name": "search", "description": "Search.", "parameters": schema}
    async with AsyncOpenAI(base_url=endpoint.url, api_key=endpoint.key) as client:
        given: Any = sample.prompt
        previous = None
        while True:
            said = await client.responses.create(
                model=endpoint.model, input=given, tools=[tool], previous_response_id=previous
            )
            calls = [item for item in said.output if item.type == "function_call"]
            if not calls:
                return said.output_text
            previous = said.id
            given = [
                {
                    "type": "function_call_output",
                    "call_id": call.call_id,
                    "output": search(**json.loads(call.arguments)),
                }
                for call in calls
            ]


def anthropic_tool_runner(streamed: bool) -> Callable[[Sample, Endpoint], Awaitable[str]]:
    async def agent(sample: Sample, endpoint: Endpoint) -> str:
        from anthropic import AsyncAnthropic, beta_async_tool

        async def look(query: str) -> str:
            return search(query)

        tool: Any = beta_async_tool(look, name="search", description="Search the corpus.")
        async with AsyncAnthropic(base_url=endpoint.anthropic_url, api_key=endpoint.key) as client:
            runner: Any = client.beta.messages.tool_runner(
                model=endpoint.model,
                max_tokens=400,
                tools=[tool],
                messages=[{"role": "user", "content": sample.prompt}],
                stream=streamed,
            )
            async for each in runner:
                said = await each.get_final_message() if streamed else each
        return str(next(block.text for block in said.content if block.type == "text"))

    return agent


def autogen(streamed: bool) -> Callable[[Sample, Endpoint], Awaitable[str]]:
    async def agent(sample: Sample, endpoint: Endpoint) -> str:
        from autogen_agentchat.agents import AssistantAgent
        from autogen_ext.models.openai import OpenAIChatCompletionClient

        abilities: Any = dict.fromkeys(("vision", "json_output", "structured_output"), False)
        abilities |= {"function_calling": True, "family": "unknown"}
        client = OpenAIChatCompletionClient(
            model=endpoint.model, base_url=endpoint.url, api_key=endpoint.key, model_info=abilities
        )
        guide = AssistantAgent(
            "guide",
            client,
            tools=[search],
            system_message=SYSTEM,
            model_client_stream=streamed,
            max_tool_iterations=4,
        )
        answer: Any = (await guide.run(task=sample.prompt)).messages[-1]
        return str(answer.content)

    return agent


def haystack(streamed: bool) -> Callable[[Sample, Endpoint], str]:
    def agent(sample: Sample, endpoint: Endpoint) -> str:
        os.environ |= SILENT
        from haystack.components.agents import Agent
        from haystack.components.generators.chat import OpenAIChatGenerator
        from haystack.dataclasses import ChatMessage
        from haystack.tools import create_tool_from_function
        from haystack.utils import Secret

        generator = OpenAIChatGenerator(
            model=endpoint.model, api_base_url=endpoint.url, api_key=Secret.from_token(endpoint.key)
        )
        extra: Any = {"streaming_callback": lambda chunk: None} if streamed else {}
        tools = [create_tool_from_function(search)]
        guide = Agent(chat_generator=generator, tools=tools, system_prompt=SYSTEM, **extra)
        return str(guide.run(messages=[ChatMessage.from_user(sample.prompt)])["last_message"].text)

    return agent


def pydantic_ai(protocol: str) -> Callable[[Sample, Endpoint], Awaitable[str]]:
    async def agent(sample: Sample, endpoint: Endpoint) -> str:
        from pydantic_ai import Agent
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
        from pydantic_ai.providers.anthropic import AnthropicProvider
        from pydantic_ai.providers.openai import OpenAIProvider

        model: Any
        if protocol == "messages":
            served = AnthropicProvider(api_key=endpoint.key, base_url=endpoint.anthropic_url)
            model = AnthropicModel(endpoint.model, provider=served)
        else:
            kind: Any = OpenAIResponsesModel if protocol == "responses" else OpenAIChatModel
            model = kind(endpoint.model, provider=OpenAIProvider(base_url=endpoint.url, api_key=endpoint.key))
        guide = Agent(model, tools=[search], instructions=SYSTEM)
        return (await guide.run(sample.prompt)).output

    return agent


def agent_framework(protocol: str) -> Callable[[Sample, Endpoint], Awaitable[str]]:
    async def agent(sample: Sample, endpoint: Endpoint) -> str:
        import agent_framework.openai as microsoft

        kind = microsoft.OpenAIChatClient if protocol == "responses" else microsoft.OpenAIChatCompletionClient
        client: Any = kind(model=endpoint.model, base_url=endpoint.url, api_key=endpoint.key)
        guide = client.as_agent(name="guide", instructions=SYSTEM, tools=[search])
        said = await guide.run(sample.prompt, session=guide.create_session())
        return str(said.messages[-1].text)

    return agent


FRAMEWORKS: dict[str, Callable[[Sample, Endpoint], Any]] = {
    "openai, responses by id": openai_responses_by_id,
    "anthropic, tool runner": anthropic_tool_runner(False),
    "anthropic, tool runner, streamed": anthropic_tool_runner(True),
    "autogen": autogen(False),
    "autogen, streamed": autogen(True),
    "haystack": haystack(False),
    "haystack, streamed": haystack(True),
    "pydantic-ai, chat": pydantic_ai("chat"),
    "pydantic-ai, responses": pydantic_ai("responses"),
    "pydantic-ai, messages": pydantic_ai("messages"),
    "agent-framework, responses": agent_framework("responses"),
    "agent-framework, chat": agent_framework("chat"),
}
AI_SDK = """
import { readFileSync } from "node:fs";
import { generateText, streamText, tool, stepCountIs } from "ai";
import { createOpenAI } from "@ai-sdk/openai";
import { z } from "zod";

const sample = JSON.parse(readFileSync(0, "utf8"));
const facts = { "Tedre Labs": "Tedre Labs is based in Tinmivor.", Tinmivor: "Tinmivor lies in Ransta." };
const openai = createOpenAI({ baseURL: process.env.OPENAI_BASE_URL, apiKey: process.env.OPENAI_API_KEY });
const search = tool({
  description: "Search the corpus.",
  inputSchema: z.object({ query: z.string() }),
  execute: async ({ query }) => facts[query] ?? "Nothing was found.",
});
const [, , protocol, way] = process.argv;
const model = openai[protocol](process.env.OPENAI_MODEL);
const asked = { model, tools: { search }, stopWhen: stepCountIs(4), prompt: sample.prompt };
console.log(way === "streamed" ? await streamText(asked).text : (await generateText(asked)).text);
"""
"""The AI SDK by Vercel, for Node."""
