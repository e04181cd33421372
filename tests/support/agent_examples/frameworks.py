"""An agent for each framework, in the style of its documentation: own tools and memory; only the address is ours."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from rlfactory_core.gateway import Endpoint
from rlfactory_core.types import Sample

FACTS = {"Tedre Labs": "Tedre Labs is based in Tinmivor.", "Tinmivor": "Tinmivor lies in Ransta."}


def look_up(query: str) -> str:
    return FACTS.get(query, "Nothing was found.")


async def openai_sdk(sample: Sample, endpoint: Endpoint) -> str | None:
    from openai import AsyncOpenAI

    parameters = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
    function = {"name": "search", "description": "Search the corpus.", "parameters": parameters}
    messages: list[Any] = [{"role": "user", "content": sample.prompt}]
    async with AsyncOpenAI(base_url=endpoint.url, api_key=endpoint.key) as client:
        while True:
            completion = await client.chat.completions.create(
                model=endpoint.model, messages=messages, tools=[{"type": "function", "function": function}]
            )
            message = completion.choices[0].message
            messages.append(message)
            if not message.tool_calls:
                return message.content
            for call in message.tool_calls:
                found = look_up(json.loads(call.function.arguments)["query"])
                messages.append({"role": "tool", "tool_call_id": call.id, "content": found})


def openai_agents(model_class: str) -> Callable[[Sample, Endpoint], Any]:
    async def play(sample: Sample, endpoint: Endpoint) -> Any:
        import agents
        from openai import AsyncOpenAI

        @agents.function_tool
        def search(query: str) -> str:
            """Search the corpus.

            Args:
                query: what to look for.
            """
            return look_up(query)

        async with AsyncOpenAI(base_url=endpoint.url, api_key=endpoint.key) as client:
            model = getattr(agents, model_class)(endpoint.model, client)
            agent = agents.Agent("guide", instructions="Answer with a place.", tools=[search], model=model)
            config = agents.RunConfig(tracing_disabled=True)
            return (await agents.Runner.run(agent, sample.prompt, run_config=config)).final_output

    return play


def langgraph(*, streaming: bool) -> Callable[[Sample, Endpoint], Any]:
    async def play(sample: Sample, endpoint: Endpoint) -> Any:
        from langchain_core.tools import tool
        from langchain_openai import ChatOpenAI
        from langgraph.prebuilt import create_react_agent

        @tool
        def search(query: str) -> str:
            """Search the corpus."""
            return look_up(query)

        llm = ChatOpenAI(base_url=endpoint.url, api_key=endpoint.key, model=endpoint.model, streaming=streaming)
        graph = create_react_agent(llm, [search], prompt="Answer with a place.")
        state = await graph.ainvoke({"messages": [("user", sample.prompt)]})
        return state["messages"][-1].content

    return play


def smolagents(agent_class: str) -> Callable[[Sample, Endpoint], Any]:
    def play(sample: Sample, endpoint: Endpoint) -> Any:
        import smolagents

        @smolagents.tool
        def search(query: str) -> str:
            """Search the corpus.

            Args:
                query: what to look for.
            """
            return look_up(query)

        model = smolagents.OpenAIServerModel(endpoint.model, api_base=endpoint.url, api_key=endpoint.key)
        agent = getattr(smolagents, agent_class)(tools=[search], model=model, max_steps=4, verbosity_level=0)
        return agent.run(sample.prompt)

    return play


def qwen_agent(sample: Sample, endpoint: Endpoint) -> Any:
    from qwen_agent.agents import Assistant
    from qwen_agent.tools.base import BaseTool

    class Search(BaseTool):
        name = "search"
        description = "Search the corpus."
        parameters = [{"name": "query", "type": "string", "description": "what to look for", "required": True}]

        def call(self, params: str, **_: Any) -> str:
            return look_up(json.loads(params)["query"])

    served = {"model": endpoint.model, "model_server": endpoint.url, "api_key": endpoint.key}
    assistant = Assistant(llm=served, function_list=[Search()], system_message="Answer with a place.")
    *_, last = assistant.run([{"role": "user", "content": sample.prompt}])
    return last[-1]["content"]


async def anthropic_sdk(sample: Sample, endpoint: Endpoint) -> str:
    import anthropic

    schema = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
    tools: list[Any] = [{"name": "search", "description": "Search the corpus.", "input_schema": schema}]
    messages: list[Any] = [{"role": "user", "content": sample.prompt}]
    async with anthropic.AsyncAnthropic(base_url=endpoint.anthropic_url, api_key=endpoint.key) as client:
        while True:
            said = await client.messages.create(
                model=endpoint.model, max_tokens=400, system="Answer with a place.", messages=messages, tools=tools
            )
            messages.append({"role": "assistant", "content": said.content})
            calls = [block for block in said.content if block.type == "tool_use"]
            if not calls:
                return str(next(block.text for block in said.content if block.type == "text"))
            results = [
                {"type": "tool_result", "tool_use_id": call.id, "content": look_up(call.input["query"])}
                for call in calls
            ]
            messages.append({"role": "user", "content": results})


AGENTS: dict[str, Callable[[Sample, Endpoint], Any]] = {
    "openai": openai_sdk,
    "openai-agents, responses": openai_agents("OpenAIResponsesModel"),
    "openai-agents, chat": openai_agents("OpenAIChatCompletionsModel"),
    "langgraph": langgraph(streaming=False),
    "langgraph, streamed": langgraph(streaming=True),
    "smolagents, tools": smolagents("ToolCallingAgent"),
    "smolagents, code": smolagents("CodeAgent"),
    "qwen-agent": qwen_agent,
    "anthropic": anthropic_sdk,
}
