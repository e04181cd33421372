"""Handle trajectories that the judge could not judge: a rule scores them, they are masked, or the run stops."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlfactory_core.errors import VerifierError
from rlfactory_core.protocols import RewardScorer
from rlfactory_core.rewards import F1, ExactMatch, Format
from rlfactory_core.types import Score, Trajectory, Verdict
from rlfactory_judge.contract import BudgetError, UnavailableError
from rlfactory_judge.options import JudgeOptions

if TYPE_CHECKING:
    from rlfactory_core import RunContext

_RULES: dict[str, type[RewardScorer]] = {"exact_match": ExactMatch, "f1": F1, "format": Format}


class FailurePolicy:
    """The options ``on_budget`` and ``on_outage``.

    Unreadable answers and refused questions are always faults: otherwise a policy could choose its scorer by what it
    writes.
    """

    def __init__(self, options: JudgeOptions) -> None:
        self._on_budget, self._on_outage = options.on_budget, options.on_outage
        self._budget = options.token_budget
        self._name = options.fallback
        self._rule = _RULES[options.fallback]()
        self._threshold = options.threshold
        self._run: RunContext | None = None
        self._asked_to_stop = False

    def use(self, run: RunContext) -> None:
        """Set the run that may have to stop."""
        self._run, self._asked_to_stop = run, False

    async def score(self, trajectory: Trajectory, failure: VerifierError) -> Score:
        """The rule's score if the options allow it; the verdict has the reason.

        Raises:
            VerifierError: the failure itself otherwise. If the options say so, the run is stopped.
        """
        way = self._way(failure)
        if way == "stop":
            self._stop(failure)
        if way != "rules":
            raise failure
        try:
            ruled = await self._rule.score(trajectory)
        except VerifierError as error:
            raise VerifierError(f"{failure} The rule {self._name}: {error}", counts=failure.counts) from error
        reason = f"scored by the rule {self._name} instead of the judge: {failure}"
        verdict = Verdict(ruled.value >= self._threshold, (reason,), {"fallback": self._name})
        return Score(ruled.value, verdicts={"judge": verdict}, counts={**failure.counts, "fallback": 1.0})

    def _way(self, failure: VerifierError) -> str:
        if isinstance(failure, BudgetError):
            return self._on_budget
        return self._on_outage if isinstance(failure, UnavailableError) else "mask"

    def _stop(self, failure: VerifierError) -> None:
        if self._run is None or self._asked_to_stop:
            return
        self._asked_to_stop = True
        if isinstance(failure, BudgetError):
            why = f"The judge's token_budget of {self._budget} is spent. To go on, set a larger one, or on_budget=mask"
        else:
            why = f"The judge does not answer: {failure} To go on, start it again, or set on_outage=mask"
        self._run.request_stop(f"{why}, among the rewards of config.yaml in the run's folder.")
