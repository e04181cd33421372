"""The evaluations between steps, and whether the training ends with one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rlfactory_core.algo.evaluation import summarise
from rlfactory_core.algo.until import Ended, Until
from rlfactory_core.engines.local.training.rollouts import Rollouts
from rlfactory_core.engines.local.training.workers import Compute
from rlfactory_core.reporting.metrics import eval_metrics
from rlfactory_core.types import Group


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One evaluation, perhaps of no pass; all processes have the same ``ended`` and ``best``.

    Args:
        groups: those of all processes by the pass's prefix, on rank 0; empty lists on the others.
        metrics: of the step, on rank 0.
    """

    groups: Mapping[str, Sequence[Group]] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    ended: Ended | None = None
    best: bool = False  # the best so far


@dataclass(frozen=True, slots=True)
class Evaluations:
    """Evaluates after every n-th step; all processes call it together."""

    rollouts: Rollouts
    compute: Compute
    until: Until
    every: int  # 0: never

    async def after(self, step: int) -> Evaluation:
        """The evaluation that is due after a step."""
        if not self.every or step % self.every or not self.rollouts.eval_samples:
            return Evaluation()
        groups: dict[str, Sequence[Group]] = {}
        found: dict[str, float] = {}
        for how in self.until.passes(step):
            if how.prefix and not await self.compute.broadcast(self.until.possible(found)):
                break
            share = await self.rollouts.evaluate(how)
            groups[how.prefix] = [group for part in await self.compute.gather(share) for group in part]
            found |= summarise(groups[how.prefix], success=self.rollouts.runtime.success).flat(how.prefix)
        best = await self.compute.broadcast(self.until.is_best(found))
        ended = await self.compute.broadcast(self.until.check(step, found))
        metrics = eval_metrics(groups[""])
        metrics |= {f"eval/{name}": found[name] for name in self.until.goals if name in found}
        return Evaluation(groups, metrics, ended, best)
