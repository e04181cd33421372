"""The search task, played by a LangGraph agent in the style of its documentation: only the address is ours."""

from __future__ import annotations

from typing import Any

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent
from rlfactory_search.task import SearchTask

from rlfactory_core import Sample, ToolContext
from rlfactory_core.gateway import Endpoint
from rlfactory_core.hookspecs import Register, hookimpl


class LangGraphSearch(SearchTask):
    async def agent(self, sample: Sample, endpoint: Endpoint) -> Any:
        @tool
        async def search(query: str) -> str:
            """Search the corpus."""
            return await self.search(query, ToolContext("langgraph", sample))

        llm = ChatOpenAI(base_url=endpoint.url, api_key=endpoint.key, model=endpoint.model)
        graph = create_react_agent(llm, [search])
        state = await graph.ainvoke({"messages": [("user", sample.messages[-1].content)]})
        return state["messages"][-1].content


@hookimpl
def rlfactory_tasks(register: Register) -> None:
    register("search-langgraph", LangGraphSearch)
