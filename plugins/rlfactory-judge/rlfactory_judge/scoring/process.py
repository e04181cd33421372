"""Mode ``process``: how good is each turn?"""

from __future__ import annotations

from rlfactory_core.types import Score, Trajectory
from rlfactory_judge.contract import BudgetError, UnavailableError
from rlfactory_judge.forms.turns import TurnScoresForm
from rlfactory_judge.scoring.judge import Judge, unasked
from rlfactory_judge.service.costs import cost
from rlfactory_judge.service.polling import poll


class ProcessJudge(Judge):
    """One question about all turns. A turn's reward is its score on [0, 1], divided by the number of turns: the sum is
    the mean, so that a longer attempt is not worth more for being longer."""

    async def score(self, trajectory: Trajectory) -> Score:
        """See `protocols.RewardScorer`."""
        known = unasked(trajectory)
        if known is not None:
            return known
        options, count = self.options, len(trajectory.turns)
        question = self.rubric.question(trajectory, TurnScoresForm(count, options.low, options.high))
        try:
            found = await poll(self.service, [question] * options.votes)
        except (BudgetError, UnavailableError) as failure:
            return await self._otherwise.score(trajectory, failure)
        values = found.medians()
        verdict = self.verdict(sum(values) / count, found.replies, turns=values)
        return Score(
            0.0,
            turns=tuple(value / count for value in values),
            verdicts={"judge": verdict},
            counts=cost(found.replies, found.failures),
        )
