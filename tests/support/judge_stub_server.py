"""A stand-in for a judge's server, as a program: ``python judge_stub_server.py HOST PORT MODEL FOLDER``.

It starts a child of its own, writes both process ids to FOLDER, and does what files in FOLDER ask for:
``die_at_start`` (with these last words), ``die`` (once), ``ill`` (not healthy), ``stubborn`` (deaf to SIGTERM).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

_LOOK_S = 0.02


class Handler(BaseHTTPRequestHandler):
    """Answers like a server of OpenAI's API whose model says ``7`` to everything."""

    protocol_version = "HTTP/1.1"
    model = ""
    folder = Path()

    def do_GET(self) -> None:
        self._answer(503 if (self.folder / "ill").exists() else 200, {"data": [{"id": self.model}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if body["model"] != self.model:
            self._answer(404, {"error": f"there is no model {body['model']}"})
            return
        message = {"role": "assistant", "content": "7"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
        self._answer(200, {"model": self.model, "choices": [choice], "usage": usage})

    def log_message(self, format: str, *args: Any) -> None: ...  # noqa: A002

    def _answer(self, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def serve(host: str, port: int, model: str, folder: Path) -> None:
    """Until killed, or asked to die."""
    words = folder / "die_at_start"
    if words.exists():
        raise SystemExit(words.read_text())
    Handler.model, Handler.folder = model, folder
    server = ThreadingHTTPServer((host, port), Handler)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    for name, pid in (("server", os.getpid()), ("child", child.pid)):
        (folder / f"{name}-{pid}.pid").touch()

    def end(number: int, _: object) -> None:  # as vLLM does
        child.kill()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, signal.SIG_IGN if (folder / "stubborn").exists() else end)
    sys.stderr.write(f"listening on {port}\n")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    while True:
        try:
            (folder / "die").unlink()  # so that only one of several servers dies, and not again
        except FileNotFoundError:
            time.sleep(_LOOK_S)
        else:
            sys.stderr.write("asked to die\n")
            sys.stderr.flush()
            os._exit(3)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), sys.argv[3], Path(sys.argv[4]))
