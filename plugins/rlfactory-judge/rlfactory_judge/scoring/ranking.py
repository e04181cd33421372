"""Mode ``ranking``: a group's answers in one list, best to worst."""

from __future__ import annotations

from collections.abc import Sequence

from rlfactory_judge.forms.ranking import RankingForm
from rlfactory_judge.scoring.ballots import Ballot
from rlfactory_judge.scoring.candidates import Candidates
from rlfactory_judge.scoring.group_judge import GroupJudge

MOST_LISTED = 16  # answers in one question; more are hard to keep apart


class RankingJudge(GroupJudge):
    """Asks for the order of all answers at once: the best scores 1, the worst 0, the others lie evenly between.

    Each vote sees the answers in another order, and the mean of its places counts. More than `MOST_LISTED` answers are
    ranked in several lists, twice with other neighbours: an answer scores the mean of its places in its lists.
    """

    def _ballots(self, candidates: Candidates) -> Sequence[Ballot]:
        # Of one order and its reverse the lists would hold the same answers, so several lists take every other order.
        step = 1 if len(candidates.answers) <= MOST_LISTED else 2
        return [
            Ballot(tuple(places), RankingForm(len(places)), vote)
            for vote in range(self.options.votes * step)
            for places in _lists(candidates.shuffled(vote * step))
        ]


def _lists(order: Sequence[int]) -> list[Sequence[int]]:
    """The order cut into as few lists as keep to the most, of nearly equal length."""
    size = len(order)
    pieces = -(-size // MOST_LISTED)
    return [order[piece * size // pieces : (piece + 1) * size // pieces] for piece in range(pieces)]
