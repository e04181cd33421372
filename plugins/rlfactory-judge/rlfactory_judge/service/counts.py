"""What asking the judge took, for the run's metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass


@dataclass(slots=True)
class Counts:
    """Totals of one process since it began. Health checks and the questions at start are not among the requests."""

    asked: int = 0  # questions
    requests: int = 0  # that were sent for them
    retries: int = 0  # of these, after a request that failed
    hedged: int = 0  # of these, beside a request that was slow
    cached: int = 0  # questions with a reply at hand
    shared: int = 0  # questions that waited for the reply to an equal one
    unreadable: int = 0  # questions whose reply could not be read
    refused: int = 0  # questions that no endpoint takes, such as one that is too long
    unavailable: int = 0  # questions without a reply
    over_budget: int = 0  # questions that were not sent
    prompt_tokens: int = 0
    sampled_tokens: int = 0

    def to_dict(self) -> Mapping[str, int]:
        return asdict(self)
