"""A server that answers like a judge, with scores drawn from what it reads; a part of `equal_results`."""

from __future__ import annotations

import json
import re
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_RANKED = re.compile(r"Rank all ([0-9]+) candidates")


class Handler(BaseHTTPRequestHandler):
    """Answers with a score, or with a ranking where it is asked for one."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer({"object": "list", "data": [{"id": "scores", "object": "model"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        asked = str(body["messages"][-1]["content"])
        drawn = zlib.crc32(asked.encode())
        reply: dict[str, Any] = {"score": drawn % 11}
        if ranked := _RANKED.search(asked):
            count = int(ranked[1])
            reply = {"ranking": [1 + (place + drawn) % count for place in range(count)]}
        message = {"role": "assistant", "content": json.dumps(reply)}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        self._answer({"choices": [choice], "usage": {"prompt_tokens": len(asked) // 4, "completion_tokens": 8}})

    def log_message(self, format: str, *args: Any) -> None: ...  # noqa: A002

    def _answer(self, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@contextmanager
def scoring_server() -> Iterator[str]:
    """Its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
