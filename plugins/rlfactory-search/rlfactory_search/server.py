"""A retrieval server with Search-R1's API, for any retriever.

``POST /retrieve {"queries": [...], "topk": 3, "return_scores": true}`` returns
``{"result": [[{"document": {"id", "contents"}, "score"}, ...], ...]}``, a list for each query. Without
``return_scores`` the lists hold the documents only. A bad request gets status 422 with the reason, a body that is too
long 413, and 503 means that the retriever's own server does not answer. ``GET /health`` returns ``{"status": "ok"}``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from rlfactory_core.errors import ToolUnavailableError, UsageError
from rlfactory_core.serving import BodyError, listener, make_server, read_body
from rlfactory_search.retrievers.base import Hit, Retriever

_DEFAULT_TOPK = 3
_MAX_TOPK = 1000
_MAX_QUERIES = 4096
_MAX_DOCUMENTS = 1 << 16  # that the answer to one request may have
_MAX_BYTES = 16 << 20  # of a request's body
_BODY_S = 30.0  # in which a client has to send it


@dataclass(frozen=True, slots=True)
class _Question:
    queries: list[str]
    topk: int
    return_scores: bool


def create_app(retriever: Retriever) -> Starlette:
    """The ASGI application. The caller opens and closes the retriever."""

    async def retrieve(request: Request) -> Response:
        try:
            question = _question(json.loads(await read_body(request, _MAX_BYTES, _BODY_S)))
        except BodyError as error:
            return _refused(str(error), error.status)
        except RecursionError:
            return _refused("The body is nested too deeply; expected an object with a list of texts.")
        except UsageError as error:
            return _refused(str(error))
        except ValueError as error:  # of the bytes, of JSON, or of a number with too many digits
            return _refused(f"The body is not JSON: {error}.")
        try:
            results = await retriever.search(question.queries, question.topk)
        except ToolUnavailableError as error:
            return JSONResponse({"detail": str(error)}, status_code=503)
        return JSONResponse({"result": [[_row(hit, question.return_scores) for hit in hits] for hits in results]})

    async def health(_: Request) -> Response:
        return JSONResponse({"status": "ok"})

    return Starlette(routes=[Route("/retrieve", retrieve, methods=["POST"]), Route("/health", health, methods=["GET"])])


def _question(body: Any) -> _Question:
    if not isinstance(body, dict):
        raise UsageError(f"The body is {type(body).__name__}, expected an object with the key 'queries'.")
    queries = body.get("queries")
    if not isinstance(queries, list) or not queries or not all(map(_is_text, queries)):
        raise UsageError(f"'queries' must be a list of at least one text. Got {queries!r:.100}.")
    if len(queries) > _MAX_QUERIES:
        raise UsageError(f"'queries' has {len(queries)} texts, expected at most {_MAX_QUERIES}. Send several requests.")
    topk = body.get("topk")
    topk = _DEFAULT_TOPK if topk is None else topk
    if not isinstance(topk, int) or isinstance(topk, bool) or not 1 <= topk <= _MAX_TOPK:
        raise UsageError(f"'topk' is {topk!r}, expected a whole number from 1 to {_MAX_TOPK}.")
    if len(queries) * topk > _MAX_DOCUMENTS:
        raise UsageError(
            f"{len(queries)} queries with 'topk' {topk} ask for more than {_MAX_DOCUMENTS:,} documents. "
            "Send several requests."
        )
    return_scores = body.get("return_scores", False)
    if not isinstance(return_scores, bool):
        raise UsageError(f"'return_scores' is {return_scores!r}, expected true or false.")
    return _Question(queries, topk, return_scores)


def _is_text(query: Any) -> bool:
    """Half of a surrogate pair is none: it cannot be sent on, or in an answer."""
    return isinstance(query, str) and not any("\ud800" <= character <= "\udfff" for character in query)


def _refused(detail: str, status: int = 422) -> Response:
    """A refusal, after which the connection is closed where the rest of the body was not read."""
    return JSONResponse({"detail": detail}, status, {"Connection": "close"} if status != 422 else None)


def _row(hit: Hit, return_scores: bool) -> dict[str, Any]:
    document = {"id": hit.id, "contents": hit.contents}
    return {"document": document, "score": hit.score} if return_scores else document


async def serve(retriever: Retriever, host: str, port: int, started: Callable[[str], None]) -> None:
    """Serve until interrupted. Open requests are still answered.

    Args:
        retriever: already open; the caller closes it.
        port: 0 takes a free one.
        started: called with the address when the server accepts requests.

    Raises:
        UsageError: the address cannot be bound.
    """
    server = make_server(create_app(retriever), log_level="warning", timeout_graceful_shutdown=10)
    with listener(host, port) as listening:
        shown = f"[{host}]" if ":" in host else host
        started(f"http://{shown}:{listening.getsockname()[1]}/retrieve")
        await server.serve(sockets=[listening])
