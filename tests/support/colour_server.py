"""An MCP server over stdio that knows what colour things have: the tiny task's tool, without that task and any SDK.

    python colour_server.py FOLDER

Each process leaves a file ``started-PID`` in the folder, and each call a line in its ``calls``. About "a wait" it never
answers.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

COLOURS = {"Bale": "red", "Doru": "blue", "Fimo": "green", "Gatu": "pink", "Hepi": "gold", "Jalo": "black"}
TOOL = {
    "name": "search",
    "description": "Search the corpus.",
    "inputSchema": {
        "additionalProperties": False,
        "properties": {"query": {"description": "what to look for.", "type": "string"}},
        "required": ["query"],
        "type": "object",
    },
}  # as the tiny task has it, so that a model warm-started there can use it


def main(folder: Path) -> None:
    if not folder.is_dir():
        sys.exit(f"There is no folder {folder}.")
    (folder / f"started-{os.getpid()}").touch()
    with (folder / "calls").open("a", encoding="utf-8") as calls:
        for line in sys.stdin:
            request = json.loads(line)
            if "id" in request:
                if request["method"] == "tools/call":
                    calls.write(line)
                    calls.flush()
                result = answer(request["method"], request.get("params") or {})
                print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        version = params["protocolVersion"]
        info = {"name": "colours", "version": "1"}
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "tools/call":
        query = str(params["arguments"]["query"]).strip()
        if query == "a wait":
            threading.Event().wait()
        colour = COLOURS.get(query)
        return {"content": [{"type": "text", "text": f"1: {colour}" if colour else "No results."}]}
    return {}  # ping


if __name__ == "__main__":
    main(Path(sys.argv[1]))
