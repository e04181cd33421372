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
        self._options = options
        self._rule = _RULES[options.fallback]()
        self._run: RunContext | None = None

    def use(self, run: RunContext) -> None:
        """Set the run that may have to stop."""
        self._run = run

    async def score(self, trajectory: Trajectory, failure: VerifierError) -> Score:
        """The rule's score if the options allow it, without the failure's counts; the verdict has the reason.

        Raises:
            VerifierError: the failure itself otherwise. If the options say so, the run is stopped, once.
        """
        options = self._options
        why, way = f"The judge does not answer: {failure} To go on, start it again, or set on_outage=mask", "mask"
        if isinstance(failure, BudgetError):
            way = options.on_budget
            why = f"The judge's token_budget of {options.token_budget} is spent. To go on, set a larger one"
            why += ", or on_budget=mask"
        elif isinstance(failure, UnavailableError):
            way = options.on_outage
        if way == "stop" and self._run is not None:
            self._run.request_stop(f"{why}, among the rewards of config.yaml in the run's folder.")
            self._run = None
        if way != "rules":
            raise failure
        try:
            ruled = await self._rule.score(trajectory)
        except VerifierError as error:
            raise VerifierError(f"{failure} The rule {options.fallback}: {error}", counts=failure.counts) from error
        reason = f"scored by the rule {options.fallback} instead of the judge: {failure}"
        verdict = Verdict(ruled.value >= options.threshold, (reason,), {"fallback": options.fallback})
        return Score(ruled.value, verdicts={"judge": verdict}, counts={"fallback": 1.0})
