"""The attempts of a group as the judge compares them: equal answers once, in an order that says nothing."""

from __future__ import annotations

import random
from dataclasses import dataclass

from rlfactory_core.types import Group, Trajectory
from rlfactory_judge.rubrics.transcript import final_answer


@dataclass(frozen=True, slots=True)
class Candidates:
    """The different answers of a group, and which attempts gave them.

    Args:
        answers: one attempt for each, in an order that does not depend on that of the attempts.
        places: of each attempt in ``answers``; None: it is not compared.
    """

    answers: tuple[Trajectory, ...]
    places: tuple[int | None, ...]
    seed: str

    @staticmethod
    def of(group: Group, seed: int) -> Candidates:
        """Those of a group; attempts that are masked or wrote nothing are left out.

        Two answers are equal where `final_answer` is, whatever led there.
        """
        texts = [None if one.masked or not one.turns else final_answer(one).strip() for one in group.trajectories]
        order = sorted({text for text in texts if text is not None})
        first = dict(zip(reversed(texts), reversed(group.trajectories), strict=True))
        places = tuple(None if text is None else order.index(text) for text in texts)
        return Candidates(tuple(first[text] for text in order), places, "\n".join((str(seed), group.sample.id, *order)))

    def shuffled(self, number: int) -> list[int]:
        """The places in an order of its own for each number; an odd one has the order before it, reversed.

        What a judge gives to the first and takes from the last, or the other way round, so cancels in pairs.
        """
        order = list(range(len(self.answers)))
        random.Random(f"{number // 2} {self.seed}").shuffle(order)
        return order[::-1] if number % 2 else order
