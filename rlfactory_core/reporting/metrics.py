"""A step's trajectories as flat numbers.

Names, in this order:

- ``reward``, ``reward_std``: over trajectories that are not masked; NaN where all are.
- ``<component>``, ``<component>/<slice>``: mean of each score component (unweighted), such as ``exact_match`` and
  ``exact_match/two_hop``; masked trajectories are left out. A component named like one of the others here is reported
  as ``score/<component>``.
- ``tool_calls``, ``turns``, ``sampled_tokens``: means a trajectory.
- ``stop/<reason>``: share of the trajectories, for every `StopReason`.
- ``faults/<kind>``: number of faults, for every `FaultKind`; ``faults/verifier/<scorer>``: those of a scorer that had
  some.
- ``counts/<scorer>.<name>``: sum of what a scorer counted (`Score.counts`, `VerifierError.counts`), such as
  ``counts/judge.requests``, over all trajectories, masked ones too; left out where nobody counted.
- ``masked``: trajectories left out of the update because an infra or verifier fault spoilt them.
- ``equal_groups``: groups whose rewards are all equal, which carry no gradient (fewer than two unmasked ones: too).

A name that ends in ``_s`` is wall-clock time or a rate, here and wherever metrics are made: two runs that do the same
differ only in those, and in what a scorer counts of services outside.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from math import nan, sqrt

from rlfactory_core.types import FaultKind, Group, StopReason, Trajectory

_OWN_NAMES = {"step", "reward", "reward_std", "tool_calls", "turns", "sampled_tokens", "masked", "equal_groups"}


def group_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """All metrics of the module's docstring, for one step's groups or one evaluation's."""
    trajectories = [trajectory for group in groups for trajectory in group.trajectories]
    kept = [trajectory for trajectory in trajectories if not trajectory.masked]
    rewards = [trajectory.reward for trajectory in kept]
    metrics = {"reward": _mean(rewards), "reward_std": _std(rewards), **component_means(trajectories)}
    metrics["tool_calls"] = _mean([trajectory.num_tool_calls for trajectory in trajectories])
    metrics["turns"] = _mean([len(trajectory.turns) for trajectory in trajectories])
    metrics["sampled_tokens"] = _mean([trajectory.num_sampled for trajectory in trajectories])
    stops = Counter(trajectory.stop for trajectory in trajectories)
    metrics.update({f"stop/{reason.value}": stops[reason] / max(len(trajectories), 1) for reason in StopReason})
    faults = Counter(fault.kind for trajectory in trajectories for fault in trajectory.faults)
    metrics.update({f"faults/{kind.value}": float(faults[kind]) for kind in FaultKind})
    verifiers = Counter(f.source for t in trajectories for f in t.faults if f.kind is FaultKind.VERIFIER)
    metrics.update({f"faults/verifier/{name}": float(verifiers[name]) for name in sorted(verifiers)})
    metrics.update({f"counts/{name}": total for name, total in count_sums(trajectories).items()})
    metrics["masked"] = float(len(trajectories) - len(kept))
    metrics["equal_groups"] = float(sum(map(_all_equal, groups)))
    return metrics


def all_masked(groups: Sequence[Group]) -> str | None:
    """A sentence with the first fault, where no trajectory of a step is left to learn from; else None."""
    trajectories = [trajectory for group in groups for trajectory in group.trajectories]
    if not trajectories or not all(trajectory.masked for trajectory in trajectories):
        return None
    masking = (FaultKind.INFRA, FaultKind.VERIFIER)
    fault = next(fault for fault in trajectories[0].faults if fault.kind in masking)
    return f"all {len(trajectories)} trajectories were masked, the first by {fault.source}: {fault.message}"


def component_means(trajectories: Iterable[Trajectory]) -> dict[str, float]:
    """Mean of each score component, overall and by the samples' slices; names in alphabetical order.

    Masked trajectories are left out.
    """
    values: defaultdict[str, list[float]] = defaultdict(list)
    for trajectory in trajectories:
        for name, value in trajectory.score.components.items() if trajectory.score and not trajectory.masked else ():
            whole = component_metric(name)
            values[whole].append(value)
            if trajectory.sample.slice:
                values[f"{whole}/{trajectory.sample.slice}"].append(value)
    return {name: _mean(values[name]) for name in sorted(values)}


def count_sums(trajectories: Iterable[Trajectory]) -> dict[str, float]:
    """What scorers counted, summed over all trajectories, masked ones too; names in alphabetical order."""
    sums: defaultdict[str, float] = defaultdict(float)
    for trajectory in trajectories:
        for name, count in trajectory.score.counts.items() if trajectory.score else ():
            sums[name] += count
    return {name: sums[name] for name in sorted(sums)}


def eval_metrics(groups: Iterable[Group]) -> dict[str, float]:
    """Of an evaluation between two steps: ``eval/<component>``, by slice too, and ``eval/counts/<scorer>.<name>``."""
    trajectories = [trajectory for group in groups for trajectory in group.trajectories]
    found = component_means(trajectories)
    found |= {f"counts/{name}": total for name, total in count_sums(trajectories).items()}
    return {f"eval/{name}": value for name, value in found.items()}


def component_metric(name: str) -> str:
    """Under which name a score component is reported."""
    return f"score/{name}" if name in _OWN_NAMES else name


def _all_equal(group: Group) -> bool:
    rewards = [trajectory.reward for trajectory in group.trajectories if not trajectory.masked]
    return len(rewards) < 2 or max(rewards) - min(rewards) < 1e-8


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else nan


def _std(values: Sequence[float]) -> float:
    mean = _mean(values)
    return sqrt(_mean([(value - mean) ** 2 for value in values])) if values else nan
