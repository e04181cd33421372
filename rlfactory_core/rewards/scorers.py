"""Rule scorers that compare the ``<answer>`` of the model with the accepted answers.

They read the parsed text of assistant messages only. Thinking blocks, arguments of calls and tools' outputs do not
count. Answers are compared as SQuAD does (Rajpurkar et al. 2016, arXiv 1606.05250; its evaluation script 1.1).
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar

from rlfactory_core.errors import VerifierError
from rlfactory_core.tiny import ANSWER_CLOSE, ANSWER_OPEN
from rlfactory_core.types import Sample, Score, Trajectory

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize(text: str) -> str:
    """The text in lower case, without ASCII punctuation, English articles and repeated white space."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def exact_match(prediction: str, references: Iterable[str]) -> float:
    """1.0 if the prediction equals one of the references after `normalize`, else 0.0."""
    wanted = normalize(prediction)
    return float(any(normalize(reference) == wanted for reference in references))


def f1(prediction: str, references: Iterable[str]) -> float:
    """The best F1 of normalised words with one of the references, in [0, 1]; 1.0 if neither side has words left."""
    words = normalize(prediction).split()
    return max((_bag_f1(words, normalize(reference).split()) for reference in references), default=0.0)


def _bag_f1(prediction: list[str], reference: list[str]) -> float:
    if not prediction or not reference:
        return float(prediction == reference)
    common = (Counter(prediction) & Counter(reference)).total()
    return 2.0 * common / (len(prediction) + len(reference))


def extract_answer(text: str) -> str | None:
    """The stripped text of the last closed ``<answer>…</answer>``, or None."""
    end = len(text)
    while (start := text.rfind(ANSWER_OPEN, 0, end)) >= 0:
        close = text.find(ANSWER_CLOSE, start, end)
        if close >= 0:
            return text[start + len(ANSWER_OPEN) : close].strip()
        end = start
    return None


class ExactMatch:
    """Scores 1 if the last answer equals an accepted one after `normalize`, else 0; no answer scores 0."""

    inline: ClassVar[bool] = True

    async def score(self, trajectory: Trajectory) -> Score:
        return _compare(trajectory, exact_match)


class F1:
    """Scores the `f1` of the last answer; no answer scores 0."""

    inline: ClassVar[bool] = True

    async def score(self, trajectory: Trajectory) -> Score:
        return _compare(trajectory, f1)


class Format:
    """Scores 1 if every call was valid and the last turn ends with its only answer, which is not empty; else 0."""

    inline: ClassVar[bool] = True

    async def score(self, trajectory: Trajectory) -> Score:
        return Score(float(_well_formed(trajectory)))


def last_answer(trajectory: Trajectory) -> str | None:
    """The answer in the last turn that has one, or None."""
    for turn in reversed(trajectory.turns):
        answer = extract_answer(turn.message.content)
        if answer is not None:
            return answer
    return None


def accepted_answers(sample: Sample) -> tuple[str, ...]:
    """The sample's ground truth as strings.

    Raises:
        VerifierError: the sample has no answer, or one that is not text, such as a dict.
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
        and text.endswith(ANSWER_CLOSE)
        and text.count(ANSWER_OPEN) == text.count(ANSWER_CLOSE) == 1
        and bool(extract_answer(text))
        and not any(call.error for turn in trajectory.turns for call in turn.message.tool_calls)
    )
