"""A corpus in memory and one search in it: shared by the tests of the retrievers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from rlfactory_search.corpus import Document, MemoryCorpus
from rlfactory_search.retrievers import Hit, make_retriever


def memory(*contents: str) -> MemoryCorpus:
    """Ids count from d0."""
    return MemoryCorpus([Document(f"d{number}", text) for number, text in enumerate(contents)])


def search(retriever: str, queries: Sequence[str], k: int, **options: Any) -> list[list[Hit]]:
    """With a retriever that is made, opened and closed for it."""

    async def go() -> list[list[Hit]]:
        made = make_retriever(retriever, **options)
        await made.open()
        try:
            return await made.search(queries, k)
        finally:
            await made.close()

    return asyncio.run(go())
