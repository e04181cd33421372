"""A verifier and a scorer, each with an option."""

from __future__ import annotations

from rlfactory_core import FaultKind, Score, Task, Trajectory, Verdict, VerifierError


class Looked:
    """Passed where the answer was looked up before it was given.

    Args:
        times: how often at least.
    """

    def __init__(self, times: int = 1) -> None:
        self._times = times

    async def verify(self, trajectory: Trajectory) -> Verdict:
        looks = sum(result.fault is None for turn in trajectory.turns for result in turn.results)
        return Verdict(looks >= self._times, () if looks >= self._times else (f"{looks} of {self._times} looks",))


class Patience:
    """A little less for each turn with a call that was refused.

    Args:
        price: of one such turn.
    """

    def __init__(self, *, price: float = 0.1) -> None:
        self._price = price
        self._open = False

    async def open(self, task: Task) -> None:
        self._open = True

    async def close(self) -> None:
        self._open = False

    async def score(self, trajectory: Trajectory) -> Score:
        if not self._open:
            raise VerifierError("asked before it was opened", counts={"asked": 1})
        wrong = [any(r.fault in (FaultKind.TOOL, FaultKind.POLICY) for r in turn.results) for turn in trajectory.turns]
        turns = tuple(-self._price * bad for bad in wrong)
        return Score(0.0, components={"refused": float(sum(wrong))}, turn_rewards=turns, counts={"asked": 1})
