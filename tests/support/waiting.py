"""Wait for what another process does: it tells nobody."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 120.0  # of a busy machine


def until(
    holds: Callable[[], object], what: str, found: Callable[[], object] = str, *, seconds: float = PATIENCE_S
) -> None:
    """Wait until it holds. If it does not happen, the message has ``what`` and what is ``found`` instead."""
    ends = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < ends, f"waited {seconds:g} s for {what} {found()}"
        time.sleep(0.02)
