"""A small server of OpenEnv's protocol on the loopback: a game in which a digit is guessed. It can fail in many ways.

It runs in a thread with an event loop of its own. It follows openenv 0.10: a session for each WebSocket, the codes of
its errors, and the refusal of sessions above the limit.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from rlfactory_core.serving import listener

Kind = Literal["text", "fields", "mcp", "mixed"]
_TEXT = {"guess": {"type": "string", "description": "one digit"}}
_FIELDS = {"digit": {"type": "integer"}, "sure": {"type": "boolean"}}
_CALL = {"type": {"const": "call_tool"}, "tool_name": {"type": "string"}, "arguments": {"type": "object"}}
_ACTIONS = {"text": _TEXT, "fields": _FIELDS, "mcp": _CALL, "mixed": _TEXT}
_TOOL = {
    "name": "guess",
    "description": "Guess the digit.",
    "input_schema": {"type": "object", "properties": {"digit": {"type": "integer"}}, "required": ["digit"]},
}
_TURNS = 5


@dataclass
class Counts:
    """What the server has seen."""

    opened: int = 0
    open_now: int = 0
    most_at_once: int = 0
    seeds: list[Any] = field(default_factory=list)


class OpenEnvServer:
    """The server; `start` and `stop` may be called again and again, on the same port.

    Args:
        kind: of its actions.
        most: sessions at once.
        port: 0 takes a free one.
    """

    def __init__(self, kind: Kind = "text", most: int = 64, port: int = 0) -> None:
        self.kind, self.most, self.port = kind, most, port
        self.counts = Counts()
        self.began, self.refused = threading.Event(), threading.Event()  # set by the first such session
        self.slow, self.released = threading.Event(), threading.Event()  # a step is slow until it is released
        self._thread: threading.Thread | None = None
        self._server: uvicorn.Server | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        sock = listener("127.0.0.1", self.port)
        self.port = sock.getsockname()[1]
        routes = [
            Route("/schema", self._schema),
            Route("/metadata", self._metadata),
            Route("/mcp", self._mcp, methods=["POST"]),
            WebSocketRoute("/ws", self._session),
        ]
        config = uvicorn.Config(
            Starlette(routes=routes), log_level="critical", lifespan="off", timeout_graceful_shutdown=0
        )
        self._server = server = uvicorn.Server(config)
        self._thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[sock])), daemon=True)
        self._thread.start()
        while not server.started and self._thread.is_alive():
            self._thread.join(0.01)

    def stop(self) -> None:
        """End it, with all connections."""
        if self._server is not None and self._thread is not None:
            self._server.should_exit = self._server.force_exit = True
            self._thread.join(20)
            assert not self._thread.is_alive()
        self._server = self._thread = None

    async def _schema(self, request: Request) -> JSONResponse:
        properties = {**_ACTIONS[self.kind], "metadata": {"type": "object"}}
        required = [name for name in ("guess", "digit") if name in properties]
        action = {"type": "object", "properties": properties, "required": required, "description": "Guess the digit."}
        return JSONResponse({"action": action, "observation": {}, "state": {}})

    async def _metadata(self, request: Request) -> JSONResponse:
        return JSONResponse({"name": "Digits", "description": "A digit is hidden. Guess it."})

    async def _mcp(self, request: Request) -> JSONResponse:
        return JSONResponse(self._rpc(await request.json()))

    def _rpc(self, request: Mapping[str, Any]) -> dict[str, Any]:
        answer = {"jsonrpc": "2.0", "id": request.get("id")}
        if self.kind not in ("mcp", "mixed"):
            return answer | {"error": {"code": -32603, "message": "Environment does not support MCP"}}
        if request["method"] == "tools/list":
            return answer | {"result": {"tools": [_TOOL]}}
        return answer | {"result": {"content": [{"type": "text", "text": "a hint: it is a digit"}], "is_error": False}}

    async def _session(self, socket: WebSocket) -> None:
        await socket.accept()
        counts = self.counts
        if counts.open_now >= self.most:
            self.refused.set()
            message = f"Server at capacity: {counts.open_now}/{self.most} sessions active."
            data = {"message": message, "code": "CAPACITY_REACHED", "max_sessions": self.most}
            await socket.send_text(json.dumps({"type": "error", "data": data}))
            await socket.close()
            return
        counts.opened += 1
        counts.open_now += 1
        self.began.set()
        counts.most_at_once = max(counts.most_at_once, counts.open_now)
        try:
            await self._play(socket)
        except WebSocketDisconnect:
            pass
        finally:
            counts.open_now -= 1
        with suppress(RuntimeError):
            await socket.close()

    async def _play(self, socket: WebSocket) -> None:
        game = _Game(0)
        while True:
            message = json.loads(await socket.receive_text())
            kind, data = message["type"], message.get("data", {})
            if kind == "close":
                return
            if kind == "reset":
                self.counts.seeds.append(data.get("seed"))
                if data.get("broken"):
                    answer = _error("EXECUTION_ERROR", "no such level")
                else:
                    game = _Game(int(data.get("seed") or 0))
                    answer = _observed(
                        {"text": "A digit from 0 to 9.", "metadata": {"secret": game.secret}}, 0.0, False
                    )
            elif kind == "mcp":
                answer = {"type": "mcp", "data": self._rpc(data)}
            else:
                guess = data.get("guess", data.get("digit", data.get("arguments", {}).get("digit")))
                if guess == "die":
                    raise WebSocketDisconnect
                if guess == "slow":
                    self.slow.set()
                    await asyncio.to_thread(self.released.wait, 30)
                    guess = str(game.secret)
                if guess == "hang":
                    await socket.receive_text()  # no answer, until the client gives the session up
                    return
                answer = game.step(guess, call=data.get("tool_name"))
            await socket.send_text(json.dumps(answer))


class _Game:
    def __init__(self, seed: int) -> None:
        self.secret, self.turns = seed % 10, 0

    def step(self, guess: Any, call: str | None) -> dict[str, Any]:
        if guess is None:
            errors = [{"loc": ["digit"], "msg": "Field required"}]
            return _error("VALIDATION_ERROR", "Invalid message") | {
                "data": {"message": "Invalid message", "code": "VALIDATION_ERROR", "errors": errors}
            }
        if guess == "nan":
            return _observed({"text": "?"}, float("nan"), False)
        if not str(guess).isdigit():
            return _error("EXECUTION_ERROR", f"invalid literal: {guess!r}")
        self.turns += 1
        found = int(guess) == self.secret
        text = "right" if found else "higher" if int(guess) < self.secret else "lower"
        observation: dict[str, Any] = {"text": text, "metadata": {"secret": self.secret}}
        if call is not None:
            observation = {"tool_name": call, "result": {"content": [{"type": "text", "text": text}]}, "error": None}
        return _observed(observation, float(found), found or self.turns >= _TURNS)


def _observed(observation: Mapping[str, Any], reward: float, done: bool) -> dict[str, Any]:
    return {"type": "observation", "data": {"observation": observation, "reward": reward, "done": done}}


def _error(code: str, message: str) -> dict[str, Any]:
    return {"type": "error", "data": {"message": message, "code": code}}


@contextmanager
def openenv_server(kind: Kind = "text", most: int = 64, port: int = 0) -> Iterator[OpenEnvServer]:
    """A running server."""
    server = OpenEnvServer(kind, most, port)
    server.start()
    try:
        yield server
    finally:
        server.stop()
