"""The search tool over built-in worlds, with a small BM25 index in memory for each."""

from __future__ import annotations

from rlfactory_search.corpus import Document, MemoryCorpus
from rlfactory_search.retrievers.base import format_hits
from rlfactory_search.retrievers.bm25 import Bm25Retriever
from rlfactory_search.worlds import World


class WorldSearch:
    """Indexes a world at the first search in it."""

    def __init__(self, top_k: int) -> None:
        self._top_k = top_k
        self._indexes: dict[str, Bm25Retriever] = {}

    def answer(self, world: World, query: str) -> str:
        if world.name not in self._indexes:
            documents = [Document(str(number), text) for number, text in enumerate(world.documents)]
            index = Bm25Retriever(MemoryCorpus(documents))
            index.load()
            self._indexes[world.name] = index
        return format_hits(self._indexes[world.name].lookup(query, self._top_k))
