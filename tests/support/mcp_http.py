"""An MCP server behind HTTP that needs no SDK: streamable HTTP at ``/mcp``, the older SSE transport at ``/sse``."""

from __future__ import annotations

import json
import queue
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_TOOLS = ("echo", "status", "sleep", "header", "page")


class _PageError(Exception):
    """What answers is not the server, but something before it."""


class McpHttp(ThreadingHTTPServer):
    """What it got is in ``requests`` (method, path, headers) and ``deleted``; its behaviour is in the other fields."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.deleted: list[str] = []
        self.sessions: set[str] = set()
        self.streams: dict[str, queue.Queue[str | None]] = {}
        self.answers_as_events = False
        self.refuse_with = 0  # a status for every POST to /mcp
        self.only_sse = False
        self.connections: list[socket.socket] = []

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        self.connections.append(connection)
        return connection, address

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that leave in the middle of an answer are a part of the tests."""

    def drop_streams(self) -> None:
        for stream in tuple(self.streams.values()):
            stream.put(None)


@contextmanager
def serving(server: McpHttp | None = None) -> Iterator[McpHttp]:
    server = server or McpHttp()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.drop_streams()
        server.shutdown()
        for connection in server.connections:  # those that are kept alive, too
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: McpHttp

    def log_message(self, format: str, *args: Any) -> None: ...  # noqa: A002 the base class names it so

    def do_GET(self) -> None:
        self._note()
        if self.path != "/sse":
            self._reply(405)
            return
        name = uuid.uuid4().hex
        stream = self.server.streams[name] = queue.Queue()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self._event("endpoint", f"/messages?session_id={name}")
        while (message := stream.get()) is not None:
            self._event("message", message)
        del self.server.streams[name]
        self.close_connection = True

    def do_POST(self) -> None:
        self._note()
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        path, _, query = self.path.partition("?session_id=")
        if path == "/messages":
            self._reply(202)
            if "id" in message:
                self.server.streams[query].put(json.dumps(self._answer(message)[1]))
        elif path.partition("?")[0] != "/mcp" or self.server.only_sse:
            self._reply(405)
        elif self.server.refuse_with:
            self._reply(self.server.refuse_with)
        else:
            self._streamable(message)

    def do_DELETE(self) -> None:
        self.server.deleted.append(self.headers["mcp-session-id"])
        self._reply(200)

    def _streamable(self, message: dict[str, Any]) -> None:
        if message["method"] == "initialize":
            self.session = uuid.uuid4().hex
            self.server.sessions.add(self.session)
            self._send_answer(*self._answer(message), headers={"mcp-session-id": self.session})
        elif self.headers["mcp-session-id"] not in self.server.sessions:
            self._reply(404)
        elif "id" not in message:
            self._reply(202)
        else:
            try:
                self._send_answer(*self._answer(message))
            except _PageError:
                text = message["params"]["arguments"]["text"]
                self._reply(200, text, message["params"]["arguments"]["kind"])

    def _send_answer(self, status: int, answer: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        body = json.dumps(answer)
        if self.server.answers_as_events and status == 200:
            self._reply(status, f"event: message\ndata: {body}\n\n", "text/event-stream", headers)
        else:
            self._reply(status, body, "application/json", headers)

    def _answer(self, message: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        params = message.get("params") or {}
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        if message["method"] == "initialize":
            info = {"name": "http", "version": "1"}
            version = params["protocolVersion"]
            return 200, {
                **reply,
                "result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info},
            }
        if message["method"] == "tools/list":
            return 200, {**reply, "result": {"tools": [{"name": n, "inputSchema": {"type": "object"}} for n in _TOOLS]}}
        if message["method"] != "tools/call":
            return 200, {**reply, "result": {}}
        arguments = params["arguments"]
        if params["name"] == "status":
            error = {"code": arguments.get("error", -32001), "message": "as told"}
            return arguments["code"], {**reply, "error": error}
        if params["name"] == "page":
            raise _PageError
        if params["name"] == "sleep":
            time.sleep(arguments["seconds"])
        text = self.headers[arguments["name"]] if params["name"] == "header" else arguments.get("text", "")
        return 200, {**reply, "result": {"content": [{"type": "text", "text": text}]}}

    def _note(self) -> None:
        headers = {key.lower(): value for key, value in self.headers.items()}
        self.server.requests.append((self.command, self.path, headers))

    def _event(self, name: str, data: str) -> None:
        self.wfile.write(f"event: {name}\ndata: {data}\n\n".encode())
        self.wfile.flush()

    def _reply(
        self, status: int, body: str = "", kind: str = "text/plain", headers: dict[str, str] | None = None
    ) -> None:
        data = body.encode()
        self.send_response(status)
        for key, value in {"content-type": kind, "content-length": str(len(data)), **(headers or {})}.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(data)
