"""The modes that compare the attempts of a group: `ranking` and `pairwise`."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import NamedTuple

from rlfactory_core.errors import VerifierError
from rlfactory_core.types import Group, Message, Score, Trajectory, Turn, Verdict
from rlfactory_judge.contract import BudgetError, RejectedError, Reply, UnavailableError
from rlfactory_judge.forms import RankingForm, UnreadableError
from rlfactory_judge.rubrics.rubric import final_answer
from rlfactory_judge.scoring.judge import Judge, alone_unreadable, score_without_judge, shortened
from rlfactory_judge.service.service import ask_all, cost, worst_failure

ALONE = 0.5  # the score of an answer without others to compare with
NEUTRAL = "I do not know."  # an answer that may have made a reply unreadable is compared with this


@dataclass(frozen=True, slots=True)
class Candidates:
    """The different answers of a group, and the attempts that gave them."""

    answers: tuple[Trajectory, ...]  # one attempt for each, in an order that does not depend on that of the attempts
    places: tuple[int | None, ...]  # of each attempt in `answers`; None: it is not compared
    seed: str

    @staticmethod
    def of(group: Group, seed: int) -> Candidates:
        """The candidates of a group, without attempts that are masked or wrote nothing; equal answers are one."""
        texts = [None if score_without_judge(one) else final_answer(one).strip() for one in group.trajectories]
        order = sorted({text for text in texts if text is not None})
        first = dict(zip(reversed(texts), reversed(group.trajectories), strict=True))
        places = tuple(None if text is None else order.index(text) for text in texts)
        return Candidates(tuple(first[text] for text in order), places, "\n".join((str(seed), group.sample.id, *order)))

    def shuffled(self, number: int, kept: Sequence[int]) -> list[int]:
        """The indices ``kept`` in another order for each number; an odd one reverses the order before it."""
        order = list(kept)
        random.Random(f"{number // 2} {self.seed}").shuffle(order)
        return order[::-1] if number % 2 else order


class Ballot(NamedTuple):
    """The indices of some answers in the order in which the judge sees them, and the number of the vote."""

    places: tuple[int, ...]
    vote: int

    @property
    def answers(self) -> tuple[frozenset[int], int]:
        """Equal for ballots of one vote that show the same answers, in whatever order."""
        return frozenset(self.places), self.vote


@dataclass(frozen=True, slots=True)
class Comparison:
    """A score in [0, 1] for each compared answer by its index, the ballots behind it, and the cost of all."""

    values: Mapping[int, float]
    read: Sequence[tuple[Ballot, Reply]] = ()
    counts: Mapping[str, float] = field(default_factory=dict)
    unranked: Mapping[int, str] = field(default_factory=dict)  # answers that cannot be ranked, and why


class GroupJudge(Judge, ABC):
    """Compares the different answers of a group; equal ones share the score, and a single one scores `ALONE`."""

    async def score_group(self, group: Group) -> Sequence[Score]:
        """See `protocols.GroupScorer`. The first score that needed the judge has the cost of all."""
        candidates = Candidates.of(group, self.options.seed)
        try:
            compared = await self._compare(candidates)
        except (BudgetError, UnavailableError) as failure:
            self.stop_after(failure)
            raise
        scores, counts = list[Score](), compared.counts
        for trajectory, place in zip(group.trajectories, candidates.places, strict=True):
            if (known := score_without_judge(trajectory)) is not None:
                scores.append(known)
                continue
            assert place is not None  # both exclude the same attempts
            verdict = self._verdict(place, compared)
            scores.append(Score(compared.values[place], verdicts={"judge": verdict}, counts=counts))
            counts = {}
        return scores

    @abstractmethod
    def _ballots(self, candidates: Candidates, kept: Sequence[int]) -> Sequence[Ballot]:
        """The ballots for at least two answers, of which ``kept`` are the indices."""

    async def _compare(self, candidates: Candidates) -> Comparison:
        """The comparison of all answers, and if that fails, of those that can be judged beside `NEUTRAL`.

        A policy must not be able to have its group masked, by an answer that is too long or that spoils the judge's
        reply. Such an answer scores 0.

        Raises:
            VerifierError: all answers can be judged beside it, or none; or the others cannot be compared either.
        """
        answers = candidates.answers
        try:
            return await self._compared(candidates, range(len(answers)))
        except (UnreadableError, RejectedError) as error:
            failure = error
        turns = (Turn((), (), (), Message("assistant", NEUTRAL)),)
        pairs = ([one, replace(one, turns=turns)] for one in answers)
        beside = [(self.rubric.question_of_many(pair, RankingForm(2)), 0) for pair in pairs]
        outcomes = list(enumerate(await ask_all(self.service, beside)))
        spent = Counter(failure.counts)
        spent.update(cost(outcome for _, outcome in outcomes))
        unranked = {place: str(each) for place, each in outcomes if isinstance(each, (UnreadableError, RejectedError))}
        kept = [place for place in range(len(answers)) if place not in unranked]
        if not unranked or not kept:
            raise type(failure)(str(failure), counts=spent)
        try:
            rest = await self._compared(candidates, kept)
        except VerifierError as error:
            spent.update(error.counts)
            raise type(error)(str(error), counts=spent) from error
        spent.update(rest.counts)
        values = {**rest.values, **dict.fromkeys(unranked, 0.0)}
        return replace(rest, values=values, counts=dict(spent), unranked=unranked)

    async def _compared(self, candidates: Candidates, kept: Sequence[int]) -> Comparison:
        """The mean of each of the answers ``kept`` over its ballots.

        If a ballot failed, the one with the same answers in the other order does not count, because the effect of the
        order would not cancel.

        Raises:
            VerifierError: no majority of an answer's ballots counts; see `worst_failure`.
        """
        if len(kept) < 2:
            return Comparison(dict.fromkeys(kept, ALONE))
        ballots = self._ballots(candidates, kept)
        shown = ([candidates.answers[place] for place in ballot.places] for ballot in ballots)
        questions = (self.rubric.question_of_many(each, RankingForm(len(each))) for each in shown)
        outcomes = await ask_all(self.service, zip(questions, (ballot.vote for ballot in ballots), strict=True))
        cast = list(zip(ballots, outcomes, strict=True))
        lost = {ballot.answers for ballot, outcome in cast if not isinstance(outcome, Reply)}
        read = [(ballot, each) for ballot, each in cast if isinstance(each, Reply) and ballot.answers not in lost]
        found: dict[int, list[float]] = {place: [] for place in kept}
        for ballot, reply in read:
            for place, value in zip(ballot.places, reply.values, strict=True):
                found[place].append(value)
        asked = Counter(place for ballot in ballots for place in ballot.places)
        if any(2 * len(values) <= asked[place] for place, values in found.items()):
            raise worst_failure(outcomes)
        return Comparison({place: fmean(values) for place, values in found.items()}, read, cost(outcomes))

    def _verdict(self, place: int, compared: Comparison) -> Verdict:
        value = compared.values[place]
        if place in compared.unranked:
            return alone_unreadable(compared.unranked[place])
        shown = next((each for each in compared.read if place in each[0].places), None)
        if shown is None:
            return Verdict(None, ("there is no other answer to compare it with",), {"answers": 1})
        ballot, reply = shown
        facts = {
            "place": 1 + sum(other > value for other in compared.values.values()),
            "answers": len(compared.values),
            "shown_as": 1 + ballot.places.index(place),
            "endpoint": reply.endpoint,
            "cached": reply.cached,
        }
        return Verdict(value >= self.options.threshold, (shortened(reply.text),), facts)


class RankingJudge(GroupJudge):
    """Mode ``ranking``: asks for the order of all answers, in each vote shown otherwise; the mean rank counts."""

    def _ballots(self, candidates: Candidates, kept: Sequence[int]) -> Sequence[Ballot]:
        return [Ballot(tuple(candidates.shuffled(vote, kept)), vote) for vote in range(self.options.votes)]


class PairwiseJudge(GroupJudge):
    """Mode ``pairwise``: asks which of two answers is better, in both orders; the score is the share of wins.

    Each of n answers is compared with about 2·log2(n) others, the same number for all, or with all if that is less.
    """

    def _ballots(self, candidates: Candidates, kept: Sequence[int]) -> Sequence[Ballot]:
        return [
            Ballot(order, vote)
            for first, second in _pairs(candidates.shuffled(0, kept))
            for order in ((first, second), (second, first))
            for vote in range(self.options.votes)
        ]


def _pairs(ring: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Each index paired with the next ones on a ring, so that all are treated equally."""
    size = len(ring)
    reach = min((size - 1).bit_length(), size // 2)
    for step in range(1, reach + 1):
        whole = range(size // 2 if 2 * step == size else size)  # halfway around the ring, each pair would occur twice
        yield from ((ring[start], ring[(start + step) % size]) for start in whole)
