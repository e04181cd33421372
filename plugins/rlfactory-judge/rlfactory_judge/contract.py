"""The types shared by this plugin's parts: a question to the judge, the form of its answer, its reply."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from rlfactory_core.errors import VerifierError
from rlfactory_judge.forms import Form


class RefusedError(VerifierError):
    """The server does not answer this question, although it answers others."""


class RejectedError(RefusedError):
    """The server rejects the question itself, for example because it is too long. No outage looks like this."""


class UnavailableError(VerifierError):
    """The server did not answer, retries included."""


class BudgetError(VerifierError):
    """The run's token budget for this judge is spent."""


@dataclass(frozen=True, slots=True)
class Question:
    """One question to the judge; equal questions have equal answers at temperature 0."""

    system: str
    user: str
    form: Form
    measures: bool = False  # the model that answers now is measured, so no reply comes from the cache


@dataclass(frozen=True, slots=True)
class Reply:
    """The judge's answer. Token counts come from the server, or are estimated; they are 0 if the reply was cached."""

    values: tuple[float, ...]  # from `Form.read`
    text: str  # without the reasoning
    reasoning: str = ""
    prompt_tokens: int = 0
    sampled_tokens: int = 0
    attempts: int = 0  # requests sent; 0: the reply was cached
    clamped: bool = False  # a number was outside the scale
    cached: bool = False  # from the cache of an equal question
    seconds: float = 0.0  # from question to reply, including waiting
    endpoint: str = ""


@dataclass(frozen=True, slots=True)
class JudgePlace:
    """A judge's address, which ends with ``/v1``, the served model's id, and what it has to be measured on first."""

    url: str
    model: str
    labels: Path | None = None  # a file for the option ``labels``, unless the user gives one
    min_kappa: float | None = None


@runtime_checkable
class JudgeHost(Protocol):
    """A task that serves a judge, for rewards that name none."""

    async def serve_judge(self) -> JudgePlace:
        """Serve the judge until the task is closed, at one place; raises `BackendError` if it does not start."""
