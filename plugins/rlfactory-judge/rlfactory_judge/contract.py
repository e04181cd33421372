"""What the parts of this plugin pass to each other: a question to the judge, the form of its answer, its reply."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from rlfactory_core.errors import VerifierError


class UnreadableError(VerifierError):
    """The judge answered, and its answer has not the form that was asked for."""


class RefusedError(VerifierError):
    """No endpoint answers this one question, which may be too long; others are answered."""


class UnavailableError(VerifierError):
    """No endpoint gave an answer, retries included."""


class BudgetError(VerifierError):
    """The run's tokens for this judge are spent."""


class Form(Protocol):
    """What the judge is asked to answer with. Made in `forms`, one class a form."""

    @property
    def instruction(self) -> str:
        """What the judge is told about the form, at the end of the prompt."""
        ...

    @property
    def schema(self) -> Mapping[str, Any]:
        """A JSON schema of the answer, for servers that enforce one."""
        ...

    def read(self, text: str) -> tuple[float, ...]:
        """The numbers in an answer without its reasoning, each clamped to the scale and mapped onto [0, 1].

        Raises:
            UnreadableError: it holds none, or several that differ.
        """
        ...


@dataclass(frozen=True, slots=True)
class Question:
    """One question to the judge; equal questions have equal answers at temperature 0."""

    system: str
    user: str
    form: Form


@dataclass(frozen=True, slots=True)
class Reply:
    """The judge's answer. Token counts are those of the server, and 0 where it says none or the reply was at hand."""

    values: tuple[float, ...]  # as `Form.read` gives them
    text: str  # without the reasoning
    reasoning: str = ""
    prompt_tokens: int = 0
    sampled_tokens: int = 0
    attempts: int = 0  # requests that were sent; 0: the reply was at hand
    hedged: bool = False  # a second request was sent while the first was still under way
    cached: bool = False  # at hand from an equal question
    seconds: float = 0.0  # from question to reply, waiting included
    endpoint: str = ""


class Service(Protocol):
    """Asks the judge: finds an endpoint, retries, remembers, counts tokens."""

    async def ask(self, question: Question, *, sample: int = 0) -> Reply:
        """The reply to one question; may be called many times at once.

        Args:
            sample: which of several independent replies to the same question (votes); each is remembered on its own.

        Raises:
            UnreadableError: the answer cannot be read; it is not remembered.
            RefusedError: the question cannot be asked.
            UnavailableError: no endpoint answers.
            BudgetError: the tokens are spent.
        """
        ...


@dataclass(frozen=True, slots=True)
class JudgePlace:
    """Where a judge answers: the address ends with ``/v1``, the model's id is the server's."""

    url: str
    model: str


@runtime_checkable
class JudgeHost(Protocol):
    """What a task has besides where it brings a judge of its own, for a reward that names none."""

    async def serve_judge(self) -> JudgePlace:
        """Serve it until the task is closed; asked again, the same place.

        Raises:
            BackendError: it does not start.
        """
        ...
