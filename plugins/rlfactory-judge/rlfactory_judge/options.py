"""The options of the reward ``judge`` in a run's configuration."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from rlfactory_core.settings import File, Fraction, Natural, Positive, Section
from rlfactory_core.tools import CachePlace

Mode = Literal["outcome", "process", "ranking", "pairwise"]
SINGLE: tuple[Mode, ...] = ("outcome", "process")  # the modes that judge single attempts; the others compare
Output = Literal["auto", "json", "text"]
OnFailure = Literal["mask", "stop"]
Seconds = Annotated[float, Field(gt=0.0)]


def _one(given: object) -> object:
    """A list of one as that one."""
    if not isinstance(given, list | tuple):
        return given
    if len(given) != 1:
        raise ValueError(
            f"{len(given)} were given. A judge has one address: let one server have all replicas (vllm serve "
            "--data-parallel-size N), or put a load balancer before several"
        )
    return given[0]


One = Annotated[str, BeforeValidator(_one)]


class JudgeOptions(Section):
    """Which model judges, what it is asked, what it may cost, and what happens if it fails."""

    # who
    model: str | None = None
    """The served model's id, or with placement=pool its folder or hub id; none: the only one that is served."""
    url: One | None = None
    """The address of an OpenAI-compatible server; none: port 8000 on this machine, the default of `vllm serve`."""
    api_key_env: One | None = None
    """The environment variable with the server's key; none: RLFACTORY_API_KEY, or OPENAI_API_KEY for OpenAI's own
    server."""
    placement: Literal["endpoint", "pool"] = "endpoint"
    """With pool, the engine verl serves the model on GPUs of its own."""
    gpus: Positive = 1
    """For pool: GPUs of each node."""
    tensor_parallel: Positive = 1
    """For pool: GPUs that one server spans."""

    # what
    mode: Mode = "outcome"
    """What is judged: a trajectory, each turn, or a group's attempts against each other."""
    rubric: str = "correctness"
    """A built-in rubric's name, or a Jinja file."""
    low: float = 0.0
    """The lower end of the scale that the judge is given; scores are mapped onto [0, 1]."""
    high: float = 10.0
    """The upper end of the scale."""
    threshold: Fraction = 0.5
    """A mapped score of at least this is a passed verdict."""
    votes: Positive = 1
    """Replies to each question; the median counts."""
    temperature: Annotated[float, Field(ge=0.0)] | None = None
    """Temperature of the judge; none: 0, or 0.7 where there are several votes."""
    max_tokens: Positive = 2048
    """Tokens of one reply, its reasoning included."""
    output: Output = "auto"
    """Whether the server enforces the form of a reply: with auto where it can, with json always, with text never."""
    seed: int = 0
    """Sent to the server with each question, where it takes one, and used for the order in which answers are shown."""

    # cost and speed
    concurrency: Positive = 64
    """Requests at once."""
    request_s: Seconds = 120.0
    """Deadline of one request."""
    retries: Natural = 4
    """Requests after the first one of a question."""
    breaker_failures: Positive = 5
    """Failures in a row after which the server gets no requests."""
    breaker_reset_s: Seconds = 10.0
    """How long it then gets no requests, before its health is checked."""
    cache: CachePlace = "disk"
    """Where replies are kept, so that an equal question is asked once."""
    token_budget: Positive | None = None
    """Tokens of the whole run, prompts and replies; none: no limit."""
    on_budget: OnFailure = "mask"
    """What happens when the budget is spent: a verifier fault, or the run stops as well."""
    on_outage: OnFailure = "mask"
    """What happens when the server does not answer."""

    # trust
    labels: File | None = None
    """A file of labelled examples that the judge is measured on before the run."""
    min_kappa: Annotated[float, Field(ge=-1.0, le=1.0)] | None = None
    """If the 95 % interval of kappa on the labels begins below it, or they are fewer than 30, no run starts."""
    max_injected: Fraction | None = 0.3
    """With `min_kappa`: no run starts if the 95 % interval of the share of wrong answers that the judge accepts after a
    text for it was added ends above this; none: not measured."""
    max_place: Annotated[float, Field(ge=0.5, le=1.0)] | None = 0.7
    """With `min_kappa`, in the modes that compare: no run starts if the 95 % interval of the share of comparisons that
    one place wins, the first or the second, ends above this; none: any."""

    def on_scale(self, value: float) -> float:
        """A score on [0, 1] as the judge gave it."""
        return self.low + value * (self.high - self.low)
