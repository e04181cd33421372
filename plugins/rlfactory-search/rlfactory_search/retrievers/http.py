"""A client of a server with Search-R1's ``/retrieve`` API."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import httpx

from rlfactory_core.clients import bounded_request
from rlfactory_core.errors import BackendError, ToolUnavailableError, UsageError
from rlfactory_search.retrievers.base import Hit, encodable

_CONNECTIONS = 64


class HttpRetriever:
    """Sends one request for each search, over pooled connections.

    Args:
        url: such as ``http://127.0.0.1:8000/retrieve``; an address without a path gets ``/retrieve``.
        deadline_s: seconds for a request, including connecting and reading.
    """

    def __init__(self, url: str, *, deadline_s: float = 10.0) -> None:
        try:
            self._url = httpx.URL(url)
        except httpx.InvalidURL as error:
            raise UsageError(f"{url!r} is not an address ({error}). Expected http://HOST:PORT/retrieve.") from error
        if self._url.scheme not in ("http", "https") or not self._url.host:
            raise UsageError(f"{url!r} is not an http address. Expected http://HOST:PORT/retrieve.")
        if self._url.path in ("", "/"):
            self._url = self._url.copy_with(path="/retrieve")
        self._deadline_s = deadline_s
        self._client: httpx.AsyncClient | None = None

    async def open(self) -> None:
        self._client = httpx.AsyncClient(
            timeout=self._deadline_s,
            limits=httpx.Limits(max_connections=_CONNECTIONS, max_keepalive_connections=_CONNECTIONS),
        )
        try:
            await self.search(["hello"], 1)
        except ToolUnavailableError as error:
            await self.close()
            raise BackendError(
                f"{error} Start a server there (rlfactory search serve --corpus docs.jsonl), or correct the address."
            ) from error

    async def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        if self._client is None:
            raise RuntimeError("The retriever is not open: await open() before search().")
        body = {"queries": [encodable(query) for query in queries], "topk": k, "return_scores": True}
        try:
            # httpx has a limit for each phase, but none for the whole request
            request = bounded_request(self._client, "POST", self._url, json=body)
            response = await asyncio.wait_for(request, self._deadline_s)
            response.raise_for_status()
            result = response.json()["result"]
            hits = [[_hit(item) for item in found] for found in result]
        except (TimeoutError, httpx.TimeoutException):
            raise self._unavailable(f"gave no answer within {self._deadline_s:g} s") from None
        except httpx.HTTPStatusError as error:
            raise self._unavailable(f"answered with HTTP status {error.response.status_code}") from error
        except httpx.DecodingError as error:
            raise self._unavailable(f"gave an answer that cannot be read ({error})") from error
        except httpx.HTTPError as error:
            raise self._unavailable(f"cannot be reached ({str(error) or type(error).__name__})") from error
        except (ValueError, KeyError, TypeError) as error:
            raise self._unavailable(
                'did not use Search-R1\'s format {"result": [[{"document": {"id", "contents"}, "score"}]]} '
                f"({type(error).__name__}: {error})"
            ) from error
        if len(hits) != len(queries):
            raise self._unavailable(f"answered {len(hits)} of {len(queries)} queries")
        return hits

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    def _unavailable(self, what: str) -> ToolUnavailableError:
        return ToolUnavailableError(f"The retriever at {self._url} {what}.")


def _hit(item: Any) -> Hit:
    document = item["document"]
    return Hit(str(document["id"]), str(document["contents"]), float(item["score"]))
