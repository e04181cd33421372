"""Results of MCP tools, as an OpenEnv server passes them on, as text for the model."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from rlfactory_core.errors import MissingExtraError
from rlfactory_core.images import Image
from rlfactory_core.types import FaultKind

_FAULTS = {
    "invalid_args": FaultKind.POLICY,
    "tool_not_found": FaultKind.POLICY,
    "transport_error": FaultKind.INFRA,  # between the server and its own tools
}  # by OpenEnv's ToolErrorType; all others are the tool's own


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """What the model reads, and why it is an error, if it is one."""

    text: str
    fault: FaultKind | None = None


def read_tool_observation(observation: Mapping[str, Any]) -> ToolAnswer:
    """OpenEnv's ``CallToolObservation``: a result, or an error of its framework."""
    error = observation.get("error")
    if isinstance(error, Mapping):
        fault = _FAULTS.get(str(error.get("error_type")), FaultKind.TOOL)
        return ToolAnswer(f"Error: {error.get('message')}", fault)
    if "result" in observation:
        return read_mcp_result(observation["result"])
    shown = {key: value for key, value in observation.items() if key not in ("metadata", "tool_name", "error")}
    return ToolAnswer(_as_text(shown))


def read_mcp_result(result: Any) -> ToolAnswer:
    """A result of MCP's ``tools/call``: its texts, its structured content without them, or the plain value."""
    if not isinstance(result, Mapping) or not isinstance(result.get("content"), list):
        return ToolAnswer(_as_text(result))
    texts = [_part(each) for each in result["content"] if isinstance(each, Mapping)]
    structured = result.get("structured_content", result.get("structuredContent"))
    text = "\n".join(texts) if texts or structured is None else _as_text(structured)
    failed = result.get("is_error", result.get("isError", False))
    return ToolAnswer(text, FaultKind.TOOL if failed else None)


def _part(content: Mapping[str, Any]) -> str:
    if content.get("type") == "image":
        with suppress(ValueError, MissingExtraError):  # `DataError` is a ValueError, as that of the base64
            return str(Image.of(b64decode(str(content.get("data")))))
    return str(content["text"]) if "text" in content else f"[{content.get('type', 'content')} left out]"


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
