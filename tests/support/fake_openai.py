"""An OpenAI-compatible server on the loopback that says what a test tells it to, faults included."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Reply:
    """An HTTP answer; status 0 closes the connection without one."""

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)


Answer = Callable[[Mapping[str, Any]], Reply]
"""From a request's body to its answer."""


class FakeServer:
    """What it was asked, in order; ``url`` ends with /v1."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.requests: list[dict[str, Any]] = []
        self.authorizations: list[str | None] = []
        self.most_at_once = 0

    @property
    def chats(self) -> list[dict[str, Any]]:
        """Without the client's own first question."""
        return [body for body in self.requests if body["messages"][0]["content"] != "Hello"]


def said(content: str | None = None, *calls: tuple[str, Any], finish: str | None = None, **message: Any) -> Reply:
    """A chat completion; calls are (name, arguments text)."""
    rows = [
        {"id": f"id{i}", "type": "function", "function": {"name": n, "arguments": a}} for i, (n, a) in enumerate(calls)
    ]
    whole = {"role": "assistant", "content": content, **({"tool_calls": rows} if rows else {}), **message}
    reason = finish or ("tool_calls" if rows else "stop")
    usage = {"prompt_tokens": 100, "completion_tokens": 10}
    return Reply(body={"choices": [{"index": 0, "message": whole, "finish_reason": reason}], "usage": usage})


def error(status: int, message: str, **headers: str) -> Reply:
    return Reply(status, {"error": {"message": message}}, headers)


class PatientServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256  # connections that wait to be accepted; beyond 5, the default, they may be refused

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that closed its connection."""


@contextmanager
def serve(
    answer: Answer, models: Sequence[str] | Reply | Callable[[], Sequence[str] | Reply] = ("toy",)
) -> Iterator[FakeServer]:
    """A server in a thread; the client's own first question is answered without asking the test."""
    lock = threading.Lock()
    now = 0

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            now_served = models() if callable(models) else models
            if not isinstance(now_served, Reply):
                rows = {"object": "list", "data": [{"id": model} for model in now_served]}
                now_served = Reply(body=rows)
            self._send(now_served)

        def do_POST(self) -> None:
            nonlocal now
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                server.requests.append(body)
                server.authorizations.append(self.headers.get("Authorization"))
                now += 1
                server.most_at_once = max(server.most_at_once, now)
            try:
                self._send(answer(body))
            finally:
                with lock:
                    now -= 1

        def _send(self, reply: Reply) -> None:
            if reply.status == 0:
                self.close_connection = True
                return
            data = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
            self.send_response(reply.status)
            for name, value in {**reply.headers, "Content-Length": str(len(data))}.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: Any) -> None: ...

    http = PatientServer(("127.0.0.1", 0), Handler)
    server = FakeServer(f"http://127.0.0.1:{http.server_address[1]}/v1")
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        thread.join()
        http.server_close()


def scripted(*replies: Reply) -> Answer:
    """These answers one after the other, whoever asks; the first question of a client gets a plain one."""
    left = list(replies)

    def answer(body: Mapping[str, Any]) -> Reply:
        return said("Hi") if body["messages"][0]["content"] == "Hello" else left.pop(0)

    return answer
