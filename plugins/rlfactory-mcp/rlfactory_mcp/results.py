"""The results of calls as text."""

from __future__ import annotations

import logging
from base64 import b64decode
from collections.abc import Mapping, Sequence
from typing import Any

from rlfactory_core.errors import MissingExtraError, ToolError, ToolFailedError
from rlfactory_core.images import Image
from rlfactory_core.utils.text import to_text

_log = logging.getLogger(__name__)
_FIELDS = {"content", "structuredContent", "isError", "_meta"}  # of a result


def render(result: Mapping[str, Any]) -> str:
    """The text of a ``tools/call`` result in its wire form.

    Text blocks are joined by line breaks. Images become their names, sound a short note. Structured content
    is used only if there is no text, because servers send both for clients that know only one of them. A result of
    another form, such as a bare text, is read as it is meant; what is in no known field is shown as JSON.

    Raises:
        ToolError: the result reports a failure, whose text the error holds.
        ToolFailedError: it does not follow the protocol.
    """
    try:
        blocks = [_block(block) for block in _blocks(result) if block is not None]
    except (AttributeError, KeyError, TypeError) as error:
        raise ToolFailedError("the server's answer is not valid") from error
    structured = result.get("structuredContent")
    text = "\n".join(blocks) if blocks or structured is None else to_text(structured)
    if str(result.get("isError", result.get("is_error"))).lower() in ("true", "1"):
        raise ToolError(text or "the tool failed and gave no reason")
    return text


def _blocks(result: Mapping[str, Any]) -> Sequence[Any]:
    content = result.get("content")
    if content is None:
        rest = {key: value for key, value in result.items() if key not in _FIELDS and value is not None}
        return () if not rest or "structuredContent" in result else (rest["text"] if rest.keys() == {"text"} else rest,)
    return content if isinstance(content, list) else (content,)


def has_images(result: Mapping[str, Any]) -> bool:
    """Whether `render` has images to read, which takes long."""
    blocks = result.get("content")
    return isinstance(blocks, list) and any(isinstance(each, dict) and each.get("type") == "image" for each in blocks)


def _block(block: Any) -> str:
    if not isinstance(block, Mapping):
        return to_text(block)
    kind = block.get("type")
    if kind == "text":
        return "" if block["text"] is None else to_text(block["text"])
    if kind == "image":
        return _image(block)
    if kind == "audio":
        return f"[{kind}, {block['mimeType']}, {_size(block['data'])}: not shown]"
    if kind == "resource_link":
        about = ": ".join(str(block[key]) for key in ("name", "description") if block.get(key))
        return f"[{about}]({block['uri']})"
    resource = block.get("resource", {})
    if "text" in resource:
        return to_text(resource["text"])
    if "blob" in resource:
        mime = resource.get("mimeType", "unknown type")
        return f"[resource {resource.get('uri')}, {mime}, {_size(resource['blob'])}: not shown]"
    return to_text(block)


def _image(block: Mapping[str, Any]) -> str:
    """Its name, or a note if it cannot be read."""
    try:
        return str(Image.of(b64decode(block["data"])))
    except (ValueError, MissingExtraError) as error:  # `DataError` is a ValueError, as that of the base64
        _log.warning("an MCP server's image is not shown: %s", error)
        return f"[image, {block['mimeType']}, {_size(block['data'])}: not shown]"


def _size(base64: str) -> str:
    return f"{len(base64) * 3 // 4:,} bytes"
