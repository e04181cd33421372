"""What a server says when it says no: the status, its own words, and when it wants to be asked again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from math import isfinite

_RETRIED = (408, 409, 425, 429)  # and all from 500 on
_MAX_SHOWN = 300  # characters of a server's own message


class RefusedError(Exception):
    """A status that is not success; never leaves the client.

    Args:
        body: of the answer.
        headers: with names in lower case, or in a mapping that does not tell.
    """

    def __init__(self, status: int, body: str, headers: Mapping[str, str]) -> None:
        self.status, self.text = status, _said(body)
        self.retry_after_s = _seconds(headers.get("retry-after"))
        super().__init__(f"answered with HTTP status {status}" + (f": {self.text}" if self.text else ""))

    @property
    def may_pass(self) -> bool:
        """Whether the same request may succeed a little later."""
        return self.status in _RETRIED or self.status >= 500

    @property
    def context_is_full(self) -> bool:
        """As vLLM, SGLang, llama.cpp and OpenAI word it."""
        text = self.text.lower()
        return self.status in (400, 413, 422) and "context" in text and ("length" in text or "size" in text)


def _said(body: str) -> str:
    """A server's own message, out of its JSON where it has the usual form."""
    try:
        data = json.loads(body)
        found = data.get("error", data)
        body = str(found.get("message") or found.get("detail") or body) if isinstance(found, dict) else str(found)
    except (ValueError, AttributeError, RecursionError):
        pass
    line = " ".join(body.split())
    return line if len(line) <= _MAX_SHOWN else line[:_MAX_SHOWN] + "…"


def _seconds(retry_after: str | None) -> float:
    """0 where the header is missing or unreadable."""
    if not retry_after:
        return 0.0
    try:
        seconds = float(retry_after)
    except ValueError:
        pass
    else:
        return max(0.0, seconds) if isfinite(seconds) else 0.0
    try:
        return max(0.0, (parsedate_to_datetime(retry_after) - datetime.now(timezone.utc)).total_seconds())
    except (ValueError, TypeError):
        return 0.0
