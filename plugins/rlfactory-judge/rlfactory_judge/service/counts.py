"""The cost of a judgement, for the metrics of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from rlfactory_core.errors import VerifierError
from rlfactory_judge.contract import BudgetError, RefusedError, Reply, UnavailableError, UnreadableError

_NAMES: dict[type[VerifierError], str] = {
    UnreadableError: "unreadable",
    RefusedError: "refused",
    UnavailableError: "unavailable",
    BudgetError: "over_budget",
}


def cost(replies: Iterable[Reply], failures: Iterable[VerifierError] = ()) -> dict[str, float]:
    """The total cost of replies and failures, for `Score.counts`.

    ``replies``, of these ``cached`` ones (from an equal question); ``requests``, of these ``retries`` and
    ``hedged`` ones; ``prompt_tokens``, ``sampled_tokens``; questions that failed as ``unreadable``, ``refused``,
    ``unavailable`` or ``over_budget``. Zero counts are left out. A failure's own ``counts`` are added.
    """
    counts: Counter[str] = Counter()
    for reply in replies:
        counts["replies"] += 1
        counts["cached"] += reply.cached
        counts["requests"] += reply.attempts
        counts["retries"] += max(0, reply.attempts - 1 - reply.hedged)
        counts["hedged"] += reply.hedged
        counts["prompt_tokens"] += reply.prompt_tokens
        counts["sampled_tokens"] += reply.sampled_tokens
    found = {name: float(count) for name, count in counts.items()}
    for failure in failures:
        name = next((name for kind, name in _NAMES.items() if isinstance(failure, kind)), "failed")
        for key, count in {name: 1.0, **failure.counts}.items():
            found[key] = found.get(key, 0.0) + count
    return {name: count for name, count in found.items() if count}
