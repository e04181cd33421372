"""What an MCP tool answered, as the text that the model sees."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlfactory_core.errors import ToolError
from rlfactory_core.tools.results import to_text


def render(result: Mapping[str, Any]) -> str:
    """The text of a ``tools/call`` result in its wire form.

    Text blocks are joined by line breaks. Images and sound become a short note. Structured content stands for itself
    only where there is no text: servers give the same twice for clients that know only one of them.

    Raises:
        ToolError: the result says that the call failed; holds its text. Or it is not what the protocol says.
    """
    try:
        blocks = [_block(block) for block in result.get("content", ())]
    except (AttributeError, KeyError, TypeError) as error:
        raise ToolError("the server's answer is not valid") from error
    structured = result.get("structuredContent")
    text = "\n".join(blocks) if blocks or structured is None else to_text(structured)
    if result.get("isError"):
        raise ToolError(text or "the tool failed and gave no reason")
    return text


def _block(block: Mapping[str, Any]) -> str:
    kind = block.get("type")
    if kind == "text":
        return str(block["text"])
    if kind in ("image", "audio"):
        return f"[{kind}, {block['mimeType']}, {_size(block['data'])}: not shown]"
    if kind == "resource_link":
        about = ": ".join(str(block[key]) for key in ("name", "description") if block.get(key))
        return f"[{about}]({block['uri']})"
    resource = block.get("resource", {})
    if "text" in resource:
        return str(resource["text"])
    if "blob" in resource:
        mime = resource.get("mimeType", "unknown type")
        return f"[resource {resource.get('uri')}, {mime}, {_size(resource['blob'])}: not shown]"
    return to_text(block)


def _size(base64: str) -> str:
    return f"{len(base64) * 3 // 4:,} bytes"
