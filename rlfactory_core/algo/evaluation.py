"""The passes of an evaluation, and its statistics: means per slice, pass@k and confidence intervals."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import comb, fsum, sqrt

from rlfactory_core.algo.masking import masked_by
from rlfactory_core.types import Group, Trajectory

_Z95 = 1.959963984540054  # the normal distribution's 97.5 % quantile
_RESAMPLES = 1000


@dataclass(frozen=True, slots=True)
class EvalPass:
    """One pass over samples."""

    name: str  # of its trajectory file; also goes into the seeds and sessions, so that passes share no randomness
    prefix: str = ""  # before the names of its results
    temperature: float = 0.0  # 0 is greedy
    attempts: int = 1  # per sample
    control: str = ""  # the name of a task's control, whose tools replace the task's own


def eval_passes(when: str, *, attempts: int, controls: Iterable[str]) -> list[EvalPass]:
    """A greedy pass, one at temperature 1 if ``attempts`` is not 0, and a greedy one with each control."""
    passes = [EvalPass(f"eval-{when}")]
    if attempts:
        passes.append(EvalPass(f"eval-{when}-sampled", "sampled/", temperature=1.0, attempts=attempts))
    return passes + [EvalPass(f"control-{name}", f"control/{name}/", control=name) for name in controls]


def summarise(
    groups: Iterable[Group], *, success: str = "exact_match", prefix: str = "", intervals: bool = False
) -> dict[str, float]:
    """The results of scored groups, one group a sample with all its attempts; ``prefix`` stands before each name.

    These are the means of each score component and of the whole ``reward``: ``metric`` over all samples, and
    ``metric/slice``. Where tools were offered, ``called`` is the share of attempts with a valid call. For the
    component ``success`` (an attempt succeeds at 1) also ``pass@k`` for the powers of two from 2 to the number of
    attempts. Masked attempts are not counted. A sample with fewer than k others is left out of pass@k. With
    ``intervals`` also ``metric_low`` and ``metric_high``, see `interval`. And the numbers of ``samples``, of ``masked``
    trajectories, and of those by the source of their fault, such as ``masked/search``.
    """
    groups = tuple(groups)
    live = [[t for t in group.trajectories if not t.masked and t.score is not None] for group in groups]
    most = max(map(len, live), default=0)
    powers = [2**power for power in range(1, most.bit_length()) if 2**power <= most]
    values: dict[tuple[str, str], list[float]] = defaultdict(list)
    for group, attempts in zip(groups, live, strict=True):
        for metric, value in _metrics(attempts, success, powers).items() if attempts else ():
            for name in ("", *group.sample.slices):
                values[metric, name].append(value)
    found: dict[str, float] = {}
    for (metric, name), each in sorted(values.items()):
        end = f"/{name}" if name else ""
        found[f"{metric}{end}"] = fsum(each) / len(each)
        if intervals:
            found[f"{metric}_low{end}"], found[f"{metric}_high{end}"] = interval(each)
    masked = masked_by(trajectory for group in groups for trajectory in group.trajectories)
    found |= {"samples": len(groups), "masked": masked.total()}
    found |= {f"masked/{source}": count for source, count in masked.items()}
    return {f"{prefix}{name}": value for name, value in found.items()}


def interval(values: Sequence[float], seed: int = 0) -> tuple[float, float]:
    """The 95 % confidence interval of a mean over samples: Wilson's score interval where every sample counts 0 or 1.

    Otherwise it is a percentile bootstrap over samples, not over attempts, because attempts at one sample are not
    independent; the same seed gives the same interval. Wilson's holds its level near 0 and 1, where the usual one
    collapses.
    """
    size = len(values)
    if all(value in (0.0, 1.0) for value in values):
        return wilson(fsum(values) / size, size)
    rng = random.Random(seed)
    means = sorted(sum(rng.choices(values, k=size)) / size for _ in range(_RESAMPLES))
    return means[round(0.025 * _RESAMPLES)], means[round(0.975 * _RESAMPLES) - 1]


def pass_at_k(attempts: int, successes: int, k: int) -> float:
    """The unbiased chance of a success in k attempts: 1 - C(n-c, k) / C(n, k), Chen et al. 2021 (arXiv 2107.03374)."""
    return 1.0 - comb(attempts - successes, k) / comb(attempts, k)


def _metrics(attempts: Sequence[Trajectory], success: str, ks: Sequence[int]) -> dict[str, float]:
    """One sample's values: means over its attempts, and pass@k."""
    scores: list[Mapping[str, float]] = [trajectory.score.components for trajectory in attempts if trajectory.score]
    metrics = {"reward": fsum(trajectory.reward for trajectory in attempts) / len(attempts)}
    if called := [bool(each.called) for each in attempts if each.called is not None]:
        metrics["called"] = sum(called) / len(called)
    for name in dict.fromkeys(name for components in scores for name in components):
        found = [components[name] for components in scores if name in components]
        metrics[name] = fsum(found) / len(found)
    if success in metrics:
        # One of weight 0 may have failed.
        known = [components[success] for components in scores if success in components]
        successes = sum(value >= 1.0 for value in known)
        metrics |= {f"pass@{k}": pass_at_k(len(known), successes, k) for k in ks if k <= len(known)}
    return metrics


def wilson(share: float, size: int) -> tuple[float, float]:
    """Wilson's score interval (JASA 22, 1927) of a share that was found in ``size`` cases."""
    squared = _Z95 * _Z95
    centre = (share + squared / (2 * size)) / (1 + squared / size)
    half = _Z95 * sqrt(share * (1 - share) / size + squared / (4 * size * size)) / (1 + squared / size)
    return round(max(0.0, centre - half), 12), round(min(1.0, centre + half), 12)  # exactly 0, 1 at the ends


def changed(before: float, after: float, sizes: tuple[int, int]) -> bool:
    """Whether two shares of so many samples differ by more than chance, with 95 % confidence.

    Newcombe's interval of a difference (Statistics in Medicine 17, 1998, method 10). The samples count as independent,
    which is cautious if they are the same ones; so is the use for means of values within 0 and 1.
    """
    low, high = (before, after) if after > before else (after, before)
    few, many = sizes if after > before else sizes[::-1]
    below, above = low - wilson(low, few)[1], high - wilson(high, many)[0]
    return high - low > sqrt(below**2 + above**2)
