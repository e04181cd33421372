"""Rule scorers that compare the ``<answer>`` of the model with the accepted answers.

They read the parsed text of assistant messages only. Thinking blocks, arguments of calls and tools' outputs do not
count. `answers` has the comparison of two texts.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from rlfactory_core.errors import ConfigError, VerifierError
from rlfactory_core.rewards.answers import exact_match, f1, squad_em, squad_f1
from rlfactory_core.tiny import ANSWER_CLOSE, ANSWER_OPEN
from rlfactory_core.types import Sample, Score, StopReason, Trajectory

_log = logging.getLogger(__name__)

ENV_REWARD = "env_reward"  # the name of `EnvReward`


def extract_answer(text: str) -> str | None:
    """The stripped text of the last closed ``<answer>…</answer>``, or None."""
    end = len(text)
    while (start := text.rfind(ANSWER_OPEN, 0, end)) >= 0:
        close = text.find(ANSWER_CLOSE, start, end)
        if close >= 0:
            return text[start + len(ANSWER_OPEN) : close].strip()
        end = start
    return None


class _Compared:
    """A scorer that compares the last answer with the accepted ones, as texts; no answer scores 0."""

    inline: ClassVar[bool] = True

    @staticmethod
    def measure(prediction: str, references: Iterable[str]) -> float:
        raise NotImplementedError

    async def score(self, trajectory: Trajectory) -> Score:
        answer, references = last_answer(trajectory), accepted_answers(trajectory.sample)
        return Score(0.0 if answer is None else self.measure(answer, references))

    def check_samples(self, samples: Sequence[Sample]) -> None:
        """Warn of gold answers within marks that no short answer has; with them no answer is right."""
        golds = (
            str(gold)
            for sample in samples
            for gold in (sample.answer if isinstance(sample.answer, list | tuple) else [sample.answer])[:1]
        )
        marked = [gold for gold in golds if "\\boxed{" in gold or ANSWER_OPEN in gold]
        if marked:
            _log.warning(
                "%s: %d of %d answers have marks around what is meant, such as %r, and are compared whole. The reward "
                "math reads \\boxed{…}; else take the marks out of the data.",
                *(type(self).__name__, len(marked), len(samples), marked[0][-80:]),
            )


class ExactMatch(_Compared):
    """Scores the `exact_match` of the last answer; no answer scores 0."""

    measure = staticmethod(exact_match)


class F1(_Compared):
    """Scores the `f1` of the last answer; no answer scores 0."""

    measure = staticmethod(f1)


class SquadEM(_Compared):
    """Scores the `squad_em` of the last answer, for comparisons with published numbers; no answer scores 0."""

    measure = staticmethod(squad_em)


class SquadF1(_Compared):
    """Scores the `squad_f1` of the last answer, for comparisons with published numbers; no answer scores 0."""

    measure = staticmethod(squad_f1)


class EnvReward:
    """The sum of the environment's rewards, `EnvStep.reward`.

    They are a part of the trajectory's reward without any scorer. With the weight 0 this one shows them as a metric.
    """

    inline: ClassVar[bool] = True

    async def score(self, trajectory: Trajectory) -> Score:
        return Score(sum(turn.reward for turn in trajectory.turns))


class Overlong:
    """Soft overlong punishment: DAPO, Yu et al. 2025 (arXiv 2503.14476), equation 13.

    Scores 0 up to ``limit - buffer`` sampled tokens, then falls evenly to -1 at ``limit``.

    Args:
        limit: the sampled tokens of a trajectory that score -1.
        buffer: how many tokens before ``limit`` the score begins to fall.

    Raises:
        ConfigError: the buffer is not between 1 and the limit.
    """

    inline: ClassVar[bool] = True
    bounds: ClassVar[tuple[float, float]] = (-1.0, 0.0)

    def __init__(self, limit: int, buffer: int) -> None:
        if not 0 < buffer <= limit:
            raise ConfigError(
                f"rewards.overlong: got limit={limit} and buffer={buffer}; expected 0 < buffer <= limit, in tokens."
            )
        self._limit, self._buffer = limit, buffer

    async def score(self, trajectory: Trajectory) -> Score:
        free = self._limit - self._buffer
        return Score(max(-1.0, min(0.0, (free - trajectory.num_sampled) / self._buffer)))


class Format:
    """Scores 1 if every call was valid and the last turn ends with its only answer, which is not empty; else 0."""

    inline: ClassVar[bool] = True

    async def score(self, trajectory: Trajectory) -> Score:
        if not trajectory.turns:
            return Score(0.0)
        last = trajectory.turns[-1]
        text = last.message.content
        return Score(
            float(
                last.finish == "stop"
                and not last.message.tool_calls
                and text.endswith(ANSWER_CLOSE)
                and text.count(ANSWER_OPEN) == text.count(ANSWER_CLOSE) == 1
                and bool(extract_answer(text))
                and not any(call.error for turn in trajectory.turns for call in turn.message.tool_calls)
            )
        )


def last_answer(trajectory: Trajectory) -> str | None:
    """The answer that an agent gave, else the one in the last turn that has one, or None."""
    if trajectory.answer is not None or trajectory.stop is StopReason.AGENT_FAILED:
        return trajectory.answer and (extract_answer(trajectory.answer) or trajectory.answer.strip())
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
