"""The interface of retrievers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

Progress = Callable[[int, int], None]
"""``progress(done, total)``, in documents, called while an index is built."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A found document. A higher score is better; scores of different retrievers are not comparable."""

    id: str
    contents: str  # "title\ntext"
    score: float


def format_hits(hits: Sequence[Hit]) -> str:
    """The search tool's result: the passages, numbered from 1."""
    return "\n".join(f"{number}: {hit.contents}" for number, hit in enumerate(hits, 1)) or "No results."


class Retriever(Protocol):
    """Finds documents. Equal scores are in the order of the corpus, so a query always has the same result."""

    async def open(self) -> None:
        """Build or load the index, or connect to the server. To be awaited once, before the first search.

        Raises:
            BackendError: the server does not answer.
            DataError: the corpus cannot be read, or the index cannot be written.
        """
        ...

    async def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """At most ``k`` hits for each query, best first. Any text is a valid query.

        Raises:
            ToolUnavailableError: the server does not answer.
        """
        ...

    async def close(self) -> None: ...


def encodable(query: str) -> str:
    """The query without lone surrogates. Models write them as JSON escapes, and UTF-8 cannot encode them."""
    return query if query.isascii() else query.encode("utf-8", "replace").decode("utf-8")
