"""The search tool's answers over built-in worlds: one small BM25 index each, in memory."""

from __future__ import annotations

from rlfactory_search.corpus import Document, MemoryCorpus
from rlfactory_search.retrievers.bm25 import Bm25Retriever
from rlfactory_search.worlds import World


class WorldSearch:
    """Indexes a world when it is first asked about."""

    def __init__(self, top_k: int) -> None:
        self._top_k = top_k
        self._indexes: dict[str, Bm25Retriever] = {}

    def answer(self, world: World, query: str) -> str:
        if world.name not in self._indexes:
            documents = [Document(str(number), text) for number, text in enumerate(world.documents)]
            index = Bm25Retriever(MemoryCorpus(documents))
            index.load()
            self._indexes[world.name] = index
        hits = self._indexes[world.name].lookup(query, self._top_k)
        return "\n".join(f"{number}: {hit.contents}" for number, hit in enumerate(hits, 1)) or "No results."
