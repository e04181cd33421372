"""A guard against work that explodes. Not a measurement: those stand in the benchmarks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

MOST_S = 40.0  # of CPU: many times what the work takes on a busy machine, and little beside exponential work


@contextmanager
def modest_effort() -> Iterator[None]:
    """The block takes at most `MOST_S` seconds of CPU."""
    began = time.process_time()
    yield
    assert time.process_time() - began < MOST_S
