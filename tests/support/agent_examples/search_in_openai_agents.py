"""The search task, played by an agent of OpenAI's Agents SDK: only the address is ours."""

from __future__ import annotations

from typing import Any

from agents import Agent, OpenAIResponsesModel, RunConfig, Runner, function_tool
from openai import AsyncOpenAI
from rlfactory_search.task import SearchTask

from rlfactory_core import Sample, ToolContext
from rlfactory_core.gateway import Endpoint
from rlfactory_core.hookspecs import Register, hookimpl


class OpenAIAgentsSearch(SearchTask):
    async def agent(self, sample: Sample, endpoint: Endpoint) -> Any:
        @function_tool
        async def search(query: str) -> str:
            """Search the corpus."""
            return await self.search(query, ToolContext("openai-agents", sample))

        async with AsyncOpenAI(base_url=endpoint.url, api_key=endpoint.key) as client:
            model = OpenAIResponsesModel(endpoint.model, client)
            researcher = Agent("researcher", tools=[search], model=model)
            question = sample.messages[-1].content
            done = await Runner.run(researcher, question, run_config=RunConfig(tracing_disabled=True))
        return done.final_output


@hookimpl
def rlfactory_tasks(register: Register) -> None:
    register("search-openai-agents", OpenAIAgentsSearch)
