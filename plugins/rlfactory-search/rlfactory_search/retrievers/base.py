"""What a retriever is: texts in, the best documents out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

Progress = Callable[[int, int], None]
"""``progress(done, total)`` in documents, called now and then while an index is built."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A document found. Scores of different retrievers are not comparable; higher is better."""

    id: str
    contents: str  # "title\ntext"
    score: float


class Retriever(Protocol):
    """Finds documents. Equal scores are in the order of the corpus, so the same query has the same answer."""

    async def open(self) -> None:
        """Build or load the index, or reach the server; to be awaited once, before the first search.

        Raises:
            BackendError: the server does not answer.
            DataError: the corpus cannot be read, or the index not be written.
        """
        ...

    async def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """At most ``k`` hits a query, best first; fewer, also none, where no more match.

        Any text is a query, whatever a model wrote. Raises `ToolUnavailableError` where a server fails to answer.
        """
        ...

    async def close(self) -> None: ...


def encodable(query: str) -> str:
    """The query without lone surrogates, which models write as JSON escapes and no encoder takes."""
    return query if query.isascii() else query.encode("utf-8", "replace").decode("utf-8")
