"""The gateway: the address at which agents reach the model, one server for each process, on the loopback only."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import secrets
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from rlfactory_agents.conversation import Conversation
from rlfactory_agents.exchange import ModelAnswer, ModelRequest, RequestError
from rlfactory_agents.protocols.anthropic_messages import AnthropicMessages
from rlfactory_agents.protocols.base import Reply, WireFormat
from rlfactory_agents.protocols.chat_completions import ChatCompletions
from rlfactory_agents.protocols.responses import Responses
from rlfactory_core.gateway import MODEL, Endpoint
from rlfactory_core.serving import BodyError, listener, make_server, read_body

FORMATS: Sequence[WireFormat] = (ChatCompletions(), Responses(), AnthropicMessages())
MAX_BODY = 32 * 2**20  # bytes
MAX_CONNECTIONS = 8192
BODY_DEADLINE_S = 60.0
_START_DEADLINE_S = 30.0


class Gateway:
    """``await open()``, then ``with gateway.serving(conversation) as endpoint``; ``await close()`` at the end."""

    def __init__(self) -> None:
        self._attempts: dict[str, Conversation] = {}  # by their keys
        self._ids = count(1)
        self._address = ""
        self._server: Any = None
        self._serving: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Listen on a free port of the loopback; a second call does nothing."""
        if self._serving is not None:
            return
        application = Starlette(routes=[Route("/{path:path}", self._handle, methods=["GET", "POST"])])
        listening = listener("127.0.0.1")
        self._server = make_server(
            application,
            access_log=False,
            ws="none",
            backlog=MAX_CONNECTIONS,
            limit_concurrency=MAX_CONNECTIONS,
            timeout_keep_alive=60,
        )
        # Not `serve`, which takes over the process's signals.
        self._serving = asyncio.create_task(self._server._serve(sockets=[listening]))
        async with asyncio.timeout(_START_DEADLINE_S):
            while not self._server.started:
                if self._serving.done():
                    await self._serving
                    raise RuntimeError("the gateway ended at its start")
                await asyncio.sleep(0.001)
        self._address = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"

    async def close(self) -> None:
        """Stop listening; it may be called repeatedly."""
        serving, self._serving = self._serving, None
        if serving is not None:
            self._server.should_exit = True
            with contextlib.suppress(asyncio.CancelledError):
                await serving

    @contextmanager
    def serving(self, conversation: Conversation) -> Iterator[Endpoint]:
        """The conversation's address, valid within the block."""
        key = f"rlf-{secrets.token_urlsafe(24)}"
        self._attempts[key] = conversation
        try:
            yield Endpoint(self._address, key)
        finally:
            del self._attempts[key]

    async def _handle(self, request: Request) -> Response:
        path = request.url.path.rstrip("/")
        form = next((each for each in FORMATS if path.endswith((each.path, each.count_path or each.path))), None)
        try:
            if request.method == "GET" and _MODELS.search(path):
                self._attempt(request.headers)
                return JSONResponse(_models(path))
            if form is None or request.method != "POST":
                known = ", ".join(f"POST /v1{each.path}" for each in FORMATS)
                socket = " over HTTP, without WebSockets" if "upgrade" in request.headers else ""
                raise RequestError(
                    f"{request.method} {request.url.path} is not served; {known} are{socket}.", 404, "not_found"
                )
            conversation = self._attempt(request.headers)
            body = await _body(request)
            asked = form.read(body, conversation.past)
            if not path.endswith(form.path):
                return JSONResponse(form.counted(conversation.count(asked)))
            answers = await _unless_gone(request, conversation, asked)
        except RequestError as error:
            shape = form or FORMATS[0]
            headers = {"x-should-retry": "false"}  # of OpenAI's and Anthropic's SDKs
            return JSONResponse(shape.error(error), error.status, headers)
        except asyncio.CancelledError:
            if self._serving is not None:
                raise
            return Response(status_code=503)  # nobody reads it: closing, uvicorn cancels, and would log a traceback
        reply = Reply(f"{next(self._ids):08d}", MODEL, int(time.time()), body, answers)
        conversation.past.keep(form.given(reply), asked, answers[0].message)
        if body.get("stream"):
            return StreamingResponse(form.events(reply), media_type="text/event-stream")
        return JSONResponse(form.write(reply))

    def _attempt(self, headers: Mapping[str, str]) -> Conversation:
        bearer = headers.get("authorization", "")
        others = headers.get("x-api-key", "") or headers.get("api-key", "")  # of Anthropic's and Azure's clients
        key = bearer[7:] if bearer[:7].lower() == "bearer " else others
        found = self._attempts.get(key.strip())
        if found is None:
            raise RequestError(
                "The API key is not one of a running attempt; expected the key of this attempt's endpoint.",
                401,
                "invalid_api_key",
            )
        return found


_MODELS = re.compile(r"/models(/.+)?$")


def _models(path: str) -> dict[str, Any]:
    """The list of models, or one of them: each name is the model under training."""
    name = path.rpartition("/models")[2].strip("/")
    model = {"id": name or MODEL, "object": "model", "created": 0, "owned_by": "rlfactory"}
    model |= {"type": "model", "display_name": name or MODEL, "created_at": "1970-01-01T00:00:00Z"}  # Anthropic's
    if name:
        return model
    return {"object": "list", "data": [model], "has_more": False, "first_id": MODEL, "last_id": MODEL}


async def _body(request: Request) -> dict[str, Any]:
    """The request's JSON object.

    Raises:
        RequestError: it is none, too large, or does not come.
    """
    try:
        data = await read_body(request, MAX_BODY, BODY_DEADLINE_S)
        body = json.loads(_unpacked(data, request.headers.get("content-encoding", "").strip().lower()))
    except BodyError as error:
        raise RequestError(str(error), error.status, "body_not_read") from None
    except (ValueError, RecursionError) as error:
        raise RequestError(f"The request is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise RequestError(f"The request is a {type(body).__name__}; expected a JSON object.")
    return body


def _unpacked(data: bytes, encoding: str) -> bytes:
    """A body without its ``content-encoding``; a `BodyError` if it is too long or not written in it."""
    if encoding in ("", "identity"):
        return data
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise BodyError(415, f"The content-encoding is {encoding!r:.80}; expected gzip, deflate or none.")
    unpacking = zlib.decompressobj(zlib.MAX_WBITS | 32)  # reads the headers of both
    try:
        found = unpacking.decompress(data, MAX_BODY + 1)
    except zlib.error as error:
        raise BodyError(400, f"The body is not {encoding}: {error}.") from None
    if len(found) > MAX_BODY:
        raise BodyError(413, f"The body is longer than {MAX_BODY:,} bytes. Send several requests.")
    if not unpacking.eof:
        raise BodyError(400, f"The body's {encoding} has no end.")
    return found


async def _unless_gone(request: Request, conversation: Conversation, asked: ModelRequest) -> tuple[ModelAnswer, ...]:
    """The answers. Sampling ends if the agent hangs up, so that nothing is recorded that the agent never saw."""
    answering = asyncio.ensure_future(conversation.answer(asked))
    gone = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait((answering, gone), return_when=asyncio.FIRST_COMPLETED)
        if not answering.done():
            raise RequestError("The client has closed the connection.", 499, "client_closed_request")
        return answering.result()
    finally:
        for task in (answering, gone):
            task.cancel()
        await asyncio.gather(answering, gone, return_exceptions=True)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
