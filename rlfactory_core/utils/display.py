"""Text for people: harmless for a terminal, short, without passwords. Imports little, since every command does."""

from __future__ import annotations

import re
from contextvars import ContextVar

__all__ = ["printable", "said", "shortened", "without_credentials"]

RUNNING_TOOL: ContextVar[str] = ContextVar("running_tool", default="")
"""The name of the tool whose code runs; what it prints goes to the log and not to the display."""

CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that change what a terminal shows besides their place, but for tabs and line breaks."""


def printable(text: str) -> str:
    """The text with control characters, which could change or hide what a terminal shows, written as ``\\x1b``."""
    if text.isprintable():
        return text
    return CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text.replace("\r\n", "\n"))


def said(error: BaseException, most: int = 2000) -> str:
    """The text of an exception of somebody else's code, which may be huge, or fail to be made."""
    try:
        return shortened(str(error), most)
    except BaseException:  # noqa: BLE001 whatever it raises instead
        return ""


def shortened(text: str, most: int = 200) -> str:
    """The text's beginning, with an ellipsis if it is longer."""
    return text if len(text) <= most else f"{text[:most]}…"


def without_credentials(text: str) -> str:
    """The text without the user and the password of the URLs in it; a password may have an @, too."""
    return re.sub(r"(?<=://)[^/\s]+@", "", text)
