"""The waiting time before a repetition.

The callers repeat by themselves, because each has a deadline, a circuit breaker or a process of its own. Libraries such
as ``stamina`` and ``tenacity`` do not support these.
"""

from __future__ import annotations

from random import SystemRandom

__all__ = ["backoff_s"]

_RANDOM = SystemRandom()  # a run's seed does not change it, and it does not change a task's random numbers


def backoff_s(failures: int, first_s: float, longest_s: float, *, least: float = 0.0) -> float:
    """Seconds to wait after so many failures in a row.

    The bound is ``first_s`` after one failure, and doubles with each further one up to ``longest_s``. The pause is a
    random share of it, so that callers that failed together do not come back together.

    Args:
        least: the smallest share of the bound; 1: always the bound itself.
    """
    bound: float = min(longest_s, first_s * 2.0 ** min(failures - 1, 64))
    return _RANDOM.uniform(least, 1.0) * bound
