"""Python's garbage collector, while thousands of calls are in flight."""

from __future__ import annotations

import gc
from collections.abc import Callable

__all__ = ["collect_rarely"]

YOUNGEST = 50_000
"""Objects of the youngest generation before it is collected, instead of 700.

Trajectories in flight are many live objects and little garbage. With 256 of them behind the gateway, collections took
a fifth of the CPU and up to 70 ms each (``benchmarks/gateway.py``).
"""


def collect_rarely() -> Callable[[], None]:
    """Exclude the objects that are there now from collections, and collect less often. Returns what undoes both.

    Otherwise each full collection walks through all objects of torch.
    """
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNGEST, *before[1:])

    def undo() -> None:
        gc.set_threshold(*before)
        gc.unfreeze()

    return undo
