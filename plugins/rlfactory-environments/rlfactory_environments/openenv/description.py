"""What a server says of itself over HTTP: its action schema, its description, its tools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from rlfactory_core.errors import BackendError
from rlfactory_core.types import ToolSpec
from rlfactory_environments.openenv.session import read_tools


@dataclass(frozen=True, slots=True)
class ServerDescription:
    """What a server says of itself."""

    name: str
    text: str  # for the model; may be empty
    action: Mapping[str, Any]  # JSON schema
    tools: tuple[ToolSpec, ...]  # by MCP; empty if there are none


async def describe(url: str, *, deadline_s: float, headers: Mapping[str, str] | None = None) -> ServerDescription:
    """Ask a server.

    Raises:
        BackendError: it does not answer, or is no OpenEnv server.
    """
    async with httpx.AsyncClient(timeout=deadline_s, headers=dict(headers or {}), follow_redirects=True) as client:
        base = url.rstrip("/")
        schemas = await _json(client, "GET", f"{base}/schema")
        action = schemas.get("action")
        if not isinstance(action, Mapping):
            raise BackendError(f"{base}/schema has no action schema. Is {url} the address of an OpenEnv server?")
        metadata = await _json(client, "GET", f"{base}/metadata", optional=True)
        request = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
        listed = await _json(client, "POST", f"{base}/mcp", optional=True, body=request)
    name, text = str(metadata.get("name") or url), str(metadata.get("description") or "").strip()
    return ServerDescription(
        name=name,
        text="" if text == f"{name} environment" else text,  # what a server says if its author has written nothing
        action=action,
        tools=read_tools(listed.get("result")),
    )


async def _json(
    client: httpx.AsyncClient, method: str, url: str, *, optional: bool = False, body: Any = None
) -> Mapping[str, Any]:
    """The JSON object at an address; of an optional one that is missing or fails, an empty one."""
    try:
        response = await client.request(method, url, json=body)
        if response.is_error and optional:
            return {}
        response.raise_for_status()
        found = response.json()
    except (httpx.HTTPError, ValueError) as error:
        raise BackendError(
            f"{url} does not answer as an OpenEnv server does: {error or type(error).__name__}. Start the server, and "
            "give its address, such as --url http://127.0.0.1:8000."
        ) from error
    return found if isinstance(found, Mapping) else {}
