"""A stdio MCP server that needs no SDK and can misbehave in every way that real ones do.

    python mcp_server.py [--name NAME] [--page N] [--serial] [--exit-at-start CODE] [--hang-at-start] [--chatty] …

Line-delimited JSON-RPC on stdin and stdout; one thread a call, unless ``--serial``.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PARSER = argparse.ArgumentParser()
PARSER.add_argument("--name", default="fake")
PARSER.add_argument("--version", default="1.0")
PARSER.add_argument("--tools", default="", help="names, comma-separated; none: all")
PARSER.add_argument("--page", type=int, default=0, help="tools on a page of the list")
PARSER.add_argument("--serial", action="store_true", help="one call at a time; nothing else is answered meanwhile")
PARSER.add_argument("--exit-at-start", type=int)
PARSER.add_argument("--hang-at-start", action="store_true")
PARSER.add_argument("--chatty", action="store_true", help="text that is no message on stdout, much on stderr")
PARSER.add_argument("--stubborn", action="store_true", help="ignore the end of stdin, and SIGTERM")
PARSER.add_argument("--fail-after", type=Path, help="a file: once it exists, starting fails")
PARSER.add_argument("--child", action="store_true", help="start a child that ignores everything; its pid is on stderr")
PARSER.add_argument("--say", default="", help="on stderr, at the start")
OPTIONS = PARSER.parse_args()

LOCK = threading.Lock()
COUNTER = itertools.count(1)
CANCELLED: list[Any] = []
NOTES: dict[str, str] = {}
FORGOTTEN: dict[str, bool] = {}  # tools, and whether their calls get a JSON-RPC error


def send(message: dict[str, Any]) -> None:
    line = json.dumps({"jsonrpc": "2.0", **message}) + "\n"
    with LOCK:
        sys.stdout.write(line)
        sys.stdout.flush()


def text(value: object) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": str(value)}]}


class RefusalError(Exception):
    """A JSON-RPC error."""


def refuse(code: int, message: str) -> dict[str, Any]:
    raise RefusalError(code, message)


def sleep(seconds: float) -> dict[str, Any]:
    time.sleep(seconds)
    return text("slept")


def hold(folder: str, name: str) -> dict[str, Any]:
    """Note in the folder that the call has begun, and answer once the folder has a file with the call's name."""
    noted, until = Path(folder, f"{name}.begun"), time.monotonic() + 60
    noted.with_suffix(".part").write_text(str(os.getpid()))
    noted.with_suffix(".part").rename(noted)
    while not Path(folder, name).exists():
        if time.monotonic() > until:
            refuse(1, f"nobody released {name}")
        time.sleep(0.01)
    return text(os.getpid())


def freeze() -> dict[str, Any]:
    os.kill(os.getpid(), signal.SIGSTOP)
    return sleep(600)  # the signal may reach another thread first


def forget(tool: str, with_error: bool) -> dict[str, Any]:
    """Offer a tool no more."""
    FORGOTTEN[tool] = with_error
    return text("forgotten")


def die(code: int = 7) -> dict[str, Any]:
    sys.stderr.write("dying as told\n")
    sys.stderr.flush()
    os._exit(code)


def remember(key: str, value: str) -> dict[str, Any]:
    NOTES[key] = value
    return text("ok")


def show(kind: str) -> dict[str, Any]:
    """One content of each kind."""
    blob = {"uri": "file:///b", "mimeType": "application/zip", "blob": "AAAAAAAA"}
    shown: dict[str, dict[str, Any]] = {
        "image": {"content": [{"type": "image", "data": "AAAAAAAA", "mimeType": "image/png"}]},
        "audio": {"content": [{"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}]},
        "resource": {"content": [{"type": "resource", "resource": {"uri": "file:///a", "text": "inside"}}]},
        "blob": {"content": [{"type": "resource", "resource": blob}]},
        "link": {"content": [{"type": "resource_link", "uri": "file:///c", "name": "c", "description": "third"}]},
        "structured": {"content": [], "structuredContent": {"answer": 42}},
        "both": {"content": [{"type": "text", "text": "42"}], "structuredContent": {"answer": 42}},
        "several": {"content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]},
        "half": {"content": [{"type": "text", "text": "half \ud83d"}]},
        "nothing": {"content": []},
        "error": {"content": [{"type": "text", "text": "no such city"}], "isError": True},
        "invalid": {"content": [{"type": "image"}]},
    }
    return shown[kind]


def schema(**properties: str) -> dict[str, Any]:
    return {"type": "object", "properties": {key: {"type": kind} for key, kind in properties.items()}}


TOOLS: dict[str, tuple[Callable[..., dict[str, Any]], dict[str, Any], dict[str, Any]]] = {
    "echo": (lambda text_="", **more: text(more.get("text", text_)), schema(text="string"), {"readOnlyHint": True}),
    "count": (lambda: text(next(COUNTER)), schema(), {}),
    "pid": (lambda: text(os.getpid()), schema(), {"idempotentHint": True}),
    "hold": (hold, schema(folder="string", name="string"), {}),
    "sleep": (sleep, schema(seconds="number"), {}),
    "remember": (remember, schema(key="string", value="string"), {}),
    "recall": (lambda key: text(NOTES.get(key, "unknown")), schema(key="string"), {}),
    "show": (show, schema(kind="string"), {}),
    "refuse": (refuse, schema(code="integer", message="string"), {}),
    "forget": (forget, schema(tool="string", with_error="boolean"), {}),
    "die": (die, schema(code="integer"), {}),
    "freeze": (freeze, schema(), {}),
    "cancelled": (lambda: text(json.dumps(CANCELLED)), schema(), {}),
    "environment": (lambda name: text(os.environ.get(name, "")), schema(name="string"), {}),
    "folder": (lambda: text(os.getcwd()), schema(), {}),
    "dotted.näme": (lambda: text("dotted"), schema(), {}),
}


def listed(name: str) -> dict[str, Any]:
    _, parameters, hints = TOOLS[name]
    return {"name": name, "description": f"Does {name}.", "inputSchema": parameters, "annotations": hints}


def tools_list(params: dict[str, Any]) -> dict[str, Any]:
    names = OPTIONS.tools.split(",") if OPTIONS.tools else [name for name in TOOLS if name not in FORGOTTEN]
    start = int(params.get("cursor", 0))
    end = start + OPTIONS.page if OPTIONS.page else len(names)
    page: dict[str, Any] = {"tools": [listed(name) for name in names[start:end]]}
    if end < len(names):
        page["nextCursor"] = str(end)
    return page


def initialize(params: dict[str, Any]) -> dict[str, Any]:
    return {
        "protocolVersion": params["protocolVersion"],
        "capabilities": {"tools": {}},
        "serverInfo": {"name": OPTIONS.name, "version": OPTIONS.version},
    }


def tools_call(params: dict[str, Any]) -> dict[str, Any]:
    name = params["name"]
    if name in FORGOTTEN:
        if FORGOTTEN[name]:
            refuse(-32602, f"Tool {name} not found")
        return text(f"Unknown tool: {name}") | {"isError": True}
    return TOOLS[name][0](**params.get("arguments") or {})


METHODS = {"initialize": initialize, "tools/list": tools_list, "tools/call": tools_call, "ping": lambda _: {}}


def answer(request: dict[str, Any]) -> None:
    try:
        send({"id": request["id"], "result": METHODS[request["method"]](request.get("params") or {})})
    except RefusalError as error:
        send({"id": request["id"], "error": {"code": error.args[0], "message": error.args[1]}})
    except Exception as error:
        send({"id": request["id"], "error": {"code": -32603, "message": repr(error)}})


def misbehave_at_start() -> None:
    if OPTIONS.say:
        print(OPTIONS.say, file=sys.stderr, flush=True)
    if OPTIONS.stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if OPTIONS.child:
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(600)
            os._exit(0)
        print(f"child {child}", file=sys.stderr, flush=True)
    if OPTIONS.exit_at_start is not None or (OPTIONS.fail_after and OPTIONS.fail_after.exists()):
        print("cannot start: no licence", file=sys.stderr, flush=True)
        sys.exit(OPTIONS.exit_at_start or 1)
    if OPTIONS.hang_at_start:
        time.sleep(600)
    if OPTIONS.chatty:
        print("Welcome!\n\n{not json}", flush=True)
        sys.stderr.write("noise\n" * 100_000)


def main() -> None:
    misbehave_at_start()
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("method") == "notifications/cancelled":
            CANCELLED.append(message["params"]["requestId"])
        if "id" not in message or "method" not in message:
            continue
        if OPTIONS.chatty:
            print(f"handling {message['method']}", flush=True)
            sys.stderr.write("noise\n" * 1000)
        if OPTIONS.serial or message["method"] != "tools/call":
            answer(message)
        else:
            threading.Thread(target=answer, args=(message,), daemon=True).start()
    if OPTIONS.stubborn:
        time.sleep(600)


if __name__ == "__main__":
    main()
