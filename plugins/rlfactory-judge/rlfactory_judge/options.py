"""The options of the reward ``judge``, as they stand in a run's configuration."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rlfactory_core.config import CachePlace, File, Fraction, Natural, Positive, Section

Mode = Literal["outcome", "process", "ranking", "pairwise"]
Output = Literal["auto", "json", "text"]
Otherwise = Literal["rules", "mask", "stop"]
Rule = Literal["exact_match", "f1", "format"]
Seconds = Annotated[float, Field(gt=0.0)]


class JudgeOptions(Section):
    """Who judges, what it is asked, what it may cost, and what happens where it fails."""

    # who
    model: str | None = None  # the served model's id, or with placement=pool the folder or hub id; none: the only one
    url: str | tuple[str, ...] | None = None  # OpenAI-compatible addresses; none: `endpoints`
    endpoints: File | None = None  # an endpoint file of `rlfactory judge serve`; none: its usual place
    placement: Literal["endpoint", "pool"] = "endpoint"  # pool: engine=verl serves the model on GPUs of its own
    gpus: Positive = 1  # pool: of each node
    tensor_parallel: Positive = 1  # pool: GPUs that one server spans

    # what
    mode: Mode = "outcome"  # of a trajectory, of each turn, or of a group's attempts against each other
    rubric: str = "correctness"  # a built-in rubric's name, or a Jinja file
    low: float = 0.0  # the scale that the judge is told; scores are mapped onto [0, 1]
    high: float = 10.0
    threshold: Fraction = 0.5  # a mapped score from here on is a passed verdict
    votes: Positive = 1  # replies to each question; the median counts
    temperature: Annotated[float, Field(ge=0.0)] | None = None  # none: 0, and 0.7 where there are several votes
    max_tokens: Positive = 2048  # of one reply, its reasoning included
    output: Output = "auto"  # json: the server enforces the form; auto: where it can
    seed: int = 0

    # cost and speed
    concurrency: Positive = 64  # requests under way at once, over all endpoints
    request_s: Seconds = 120.0  # of one request
    retries: Natural = 4  # after the first request of a question, on another endpoint where there is one
    hedge_s: Seconds | None = None  # after so long a second request is sent elsewhere, and the first reply counts
    breaker_failures: Positive = 5  # in a row, after which an endpoint is left alone
    breaker_reset_s: Seconds = 10.0  # for so long, until its health is asked for
    cache: CachePlace = "disk"
    token_budget: Positive | None = None  # of the whole run, prompts and replies
    on_budget: Otherwise = "mask"  # when it is spent: the rule below, a verifier fault, or the run stops
    on_outage: Otherwise = "mask"  # when no endpoint answers
    fallback: Rule = "exact_match"  # the rule that scores instead

    # trust
    labels: File | None = None  # labelled examples that the judge is measured on before the run
    min_kappa: Annotated[float, Field(ge=-1.0, le=1.0)] | None = None  # below it the run does not start

    def on_scale(self, value: float) -> float:
        """A score on [0, 1] as the judge gave it."""
        return self.low + value * (self.high - self.low)
