"""Mode ``pairwise``: a group's answers two by two."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rlfactory_judge.forms.preference import PreferenceForm
from rlfactory_judge.scoring.ballots import Ballot
from rlfactory_judge.scoring.candidates import Candidates
from rlfactory_judge.scoring.group_judge import GroupJudge


class PairwiseJudge(GroupJudge):
    """Asks which of two answers is better, in both orders. An answer scores its share of wins; a tie is half a win.

    Of n answers each is compared with about 2·log2(n) others, the same number for all: about n·log2(n) pairs, or all
    pairs where those are fewer.
    """

    def _ballots(self, candidates: Candidates) -> Sequence[Ballot]:
        form = PreferenceForm()
        return [
            Ballot(order, form, vote)
            for first, second in _pairs(candidates.shuffled(0))
            for order in ((first, second), (second, first))
            for vote in range(self.options.votes)
        ]


def _pairs(ring: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Each with the next ones on a ring, which treats all alike."""
    size = len(ring)
    reach = min((size - 1).bit_length(), size // 2)
    for step in range(1, reach + 1):
        whole = range(size // 2 if 2 * step == size else size)  # halfway around, each pair would come twice
        yield from ((ring[start], ring[(start + step) % size]) for start in whole)
