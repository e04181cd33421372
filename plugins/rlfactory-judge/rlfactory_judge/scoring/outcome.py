"""Mode ``outcome``: how good is the attempt as a whole?"""

from __future__ import annotations

from dataclasses import replace

from rlfactory_core.types import Score, Trajectory, Verdict
from rlfactory_judge.contract import BudgetError, UnavailableError
from rlfactory_judge.forms.score import ScoreForm
from rlfactory_judge.scoring.judge import Judge, unasked
from rlfactory_judge.service.costs import cost
from rlfactory_judge.service.polling import Poll, majority, poll


class OutcomeJudge(Judge):
    """A scorer, and a verifier of the same question.

    The score is the median vote on [0, 1]; it passes where more than half of the votes reach the threshold.
    """

    async def score(self, trajectory: Trajectory) -> Score:
        """See `protocols.RewardScorer`."""
        known = unasked(trajectory)
        if known is not None:
            return known
        options = self.options
        question = self.rubric.question(trajectory, ScoreForm(options.low, options.high))
        try:
            found = await poll(self.service, [question] * options.votes)
        except (BudgetError, UnavailableError) as failure:
            return await self._otherwise.score(trajectory, failure)
        return self._score(found)

    async def verify(self, trajectory: Trajectory) -> Verdict:
        """See `protocols.Verifier`."""
        return (await self.score(trajectory)).verdicts["judge"]

    def _score(self, found: Poll) -> Score:
        (value,) = found.medians()
        votes = [reply.values[0] for reply in found.replies]
        verdict = self.verdict(value, found.replies, raw=self.options.on_scale(value), votes=votes)
        spread = {"spread": max(votes) - min(votes)} if self.options.votes > 1 else {}
        return Score(
            value,
            spread,
            verdicts={"judge": replace(verdict, passed=majority(found.replies, self.options.threshold))},
            counts=cost(found.replies, found.failures),
        )
