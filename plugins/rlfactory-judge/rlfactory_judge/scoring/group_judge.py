"""What the modes that compare a group's attempts have in common: whom they leave out, and what becomes of a failure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from rlfactory_core.types import Group, Score, Verdict
from rlfactory_judge.contract import BudgetError, UnavailableError
from rlfactory_judge.scoring.ballots import Ballot, Comparison, count
from rlfactory_judge.scoring.candidates import Candidates
from rlfactory_judge.scoring.judge import Judge, shortened, unasked
from rlfactory_judge.service.polling import ask_all

ALONE = 0.5  # the score of an answer that there is nothing to compare with


class GroupJudge(Judge, ABC):
    """Compares the different answers of a group; attempts that answer the same share the score.

    Attempts that are masked, or wrote nothing, are not compared. Where only one answer is left it scores `ALONE`.
    """

    async def score_group(self, group: Group) -> Sequence[Score]:
        """See `protocols.GroupScorer`."""
        candidates = Candidates.of(group, self.options.seed)
        try:
            compared = await self._compare(candidates)
        except (BudgetError, UnavailableError) as failure:
            return await self._instead(group, failure)
        return self._scores(group, candidates, compared)

    @abstractmethod
    def _ballots(self, candidates: Candidates) -> Sequence[Ballot]:
        """What to ask about at least two answers."""

    async def _compare(self, candidates: Candidates) -> Comparison:
        answers = candidates.answers
        if len(answers) < 2:
            return Comparison((ALONE,) * len(answers))
        ballots = self._ballots(candidates)
        questions = [
            (self.rubric.question_of_many([answers[place] for place in ballot.places], ballot.form), ballot.vote)
            for ballot in ballots
        ]
        return count(len(answers), ballots, await ask_all(self.service, questions))

    async def _instead(self, group: Group, failure: BudgetError | UnavailableError) -> list[Score]:
        """The scores by rule; `Otherwise.score` raises where they are not wanted. The cost stands in the first."""
        scores = []
        for trajectory in group.trajectories:
            score = unasked(trajectory)
            if score is None:
                score = await self._otherwise.score(trajectory, failure)
                failure = type(failure)(str(failure))
            scores.append(score)
        return scores

    def _scores(self, group: Group, candidates: Candidates, compared: Comparison) -> list[Score]:
        """The cost stands in the first attempt that was compared, so that sums over attempts are right."""
        counts = compared.counts
        scores = []
        for trajectory, place in zip(group.trajectories, candidates.places, strict=True):
            score = unasked(trajectory)
            if score is None:
                assert place is not None  # both leave out the same attempts
                verdict = self._verdict(place, compared)
                score = Score(compared.values[place], verdicts={"judge": verdict}, counts=counts)
                counts = {}
            scores.append(score)
        return scores

    def _verdict(self, place: int, compared: Comparison) -> Verdict:
        value = compared.values[place]
        shown = compared.first_with(place)
        if shown is None:
            return Verdict(None, ("there is no other answer to compare it with",), {"answers": 1})
        ballot, reply = shown
        facts = {
            "place": 1 + sum(other > value for other in compared.values),
            "answers": len(compared.values),
            "shown_as": 1 + ballot.places.index(place),
            "endpoint": reply.endpoint,
            "cached": reply.cached,
        }
        return Verdict(value >= self.options.threshold, (shortened(reply.text),), facts)
