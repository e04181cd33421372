"""Rule scorers over the ``<answer>`` that the model itself wrote.

They read parsed assistant contents only: not the thinking block, not the arguments of calls, never a tool's output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar

from rlfactory_core.errors import VerifierError
from rlfactory_core.rewards.answers import CLOSE, OPEN, exact_match, extract_answer, f1
from rlfactory_core.types import Sample, Score, Trajectory


class ExactMatch:
    """1 where the last answer equals an accepted one after SQuAD's normalisation, else 0; no answer scores 0."""

    inline: ClassVar[bool] = True

    async def score(self, trajectory: Trajectory) -> Score:
        return _compare(trajectory, exact_match)


class F1:
    """The best word F1 of the last answer with an accepted one; no answer scores 0."""

    inline: ClassVar[bool] = True

    async def score(self, trajectory: Trajectory) -> Score:
        return _compare(trajectory, f1)


class Format:
    """1 where every call was well formed and the last turn stops after one non-empty answer and nothing else."""

    inline: ClassVar[bool] = True

    async def score(self, trajectory: Trajectory) -> Score:
        return Score(float(_well_formed(trajectory)))


def last_answer(trajectory: Trajectory) -> str | None:
    """The answer of the last turn that holds one."""
    for turn in reversed(trajectory.turns):
        answer = extract_answer(turn.message.content)
        if answer is not None:
            return answer
    return None


def accepted_answers(sample: Sample) -> tuple[str, ...]:
    """The sample's ground truth as strings.

    Raises:
        VerifierError: the sample has none, or one that is no text, such as a dict.
    """
    truth = sample.answer
    if isinstance(truth, (Mapping, bytes)):
        kind = type(truth).__name__
        raise VerifierError(f"the answer of sample {sample.id!r} is a {kind}; expected a text, or several")
    answers = tuple(map(str, truth)) if isinstance(truth, Iterable) and not isinstance(truth, str) else (truth,)
    if not answers or answers == (None,):
        raise VerifierError(f"sample {sample.id!r} has no answer to compare with")
    return tuple(map(str, answers))


def _compare(trajectory: Trajectory, measure: Callable[[str, Iterable[str]], float]) -> Score:
    answer, references = last_answer(trajectory), accepted_answers(trajectory.sample)
    return Score(0.0 if answer is None else measure(answer, references))


def _well_formed(trajectory: Trajectory) -> bool:
    if not trajectory.turns:
        return False
    last = trajectory.turns[-1]
    text = last.message.content
    return (
        last.finish == "stop"
        and not last.message.tool_calls
        and text.endswith(CLOSE)
        and text.count(OPEN) == text.count(CLOSE) == 1
        and bool(extract_answer(text))
        and not any(call.error for turn in trajectory.turns for call in turn.message.tool_calls)
    )
