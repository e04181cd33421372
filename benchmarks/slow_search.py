"""For `staleness.py`: the search task with a tool that takes 0.2 s."""

from __future__ import annotations

import asyncio

from rlfactory_search.task import SearchTask

from rlfactory_core import ToolContext, hookimpl
from rlfactory_core.hookspecs import Register

LATENCY_S = 0.2


class SlowSearch(SearchTask):
    """`SearchTask` otherwise."""

    async def search(self, query: str, context: ToolContext) -> str:
        """Search the corpus.

        Args:
            query: what to look for.
        """
        await asyncio.sleep(LATENCY_S)
        return await super().search(query, context)


@hookimpl
def rlfactory_tasks(register: Register) -> None:
    register("slow_search", SlowSearch)
