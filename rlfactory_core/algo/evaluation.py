"""The passes of an evaluation, and its statistics: means per slice, pass@k and confidence intervals."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import comb, fsum, sqrt

from rlfactory_core.algo.masking import masked_by
from rlfactory_core.errors import UsageError
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


@dataclass(frozen=True, slots=True)
class Interval:
    """A 95 % confidence interval."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """A metric over samples: one value a sample, its mean over attempts."""

    metric: str
    slice: str  # empty: all samples
    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        return fsum(self.values) / len(self.values)

    def interval(self, seed: int = 0) -> Interval:
        """Wilson's score interval where every sample counts 0 or 1, else a percentile bootstrap over samples.

        Wilson (1927) holds its level near 0 and 1, where the usual one collapses. The bootstrap resamples samples, not
        attempts, because attempts at one sample are not independent; the same seed gives the same interval.
        """
        if all(value in (0.0, 1.0) for value in self.values):
            return wilson(self.mean, len(self.values))
        rng = random.Random(seed)
        size = len(self.values)
        means = sorted(sum(rng.choices(self.values, k=size)) / size for _ in range(_RESAMPLES))
        return Interval(means[round(0.025 * _RESAMPLES)], means[round(0.975 * _RESAMPLES) - 1])


@dataclass(frozen=True, slots=True)
class EvalReport:
    """All estimates of one evaluation."""

    estimates: tuple[Estimate, ...]
    samples: int
    trajectories: int
    masked: Mapping[str, int]  # trajectories that a fault left out, by the fault's source

    def get(self, metric: str, slice_name: str = "") -> Estimate | None:
        """The estimate of a metric; None if it was not measured."""
        return next((e for e in self.estimates if (e.metric, e.slice) == (metric, slice_name)), None)

    def flat(self, prefix: str = "", *, intervals: bool = False) -> dict[str, float]:
        """``metric`` and ``metric/slice`` -> mean; ``prefix`` before each key.

        Also the numbers of ``samples``, of ``masked`` trajectories, and of those by the source of their fault, such as
        ``masked/search``. With ``intervals`` also ``metric_low`` and ``metric_high``.
        """
        flat: dict[str, float] = {}
        for estimate in self.estimates:
            end = f"/{estimate.slice}" if estimate.slice else ""
            flat[f"{prefix}{estimate.metric}{end}"] = estimate.mean
            if intervals:
                bounds = estimate.interval()
                flat[f"{prefix}{estimate.metric}_low{end}"] = bounds.low
                flat[f"{prefix}{estimate.metric}_high{end}"] = bounds.high
        flat[f"{prefix}samples"] = self.samples
        flat[f"{prefix}masked"] = sum(self.masked.values())
        flat |= {f"{prefix}masked/{source}": count for source, count in self.masked.items()}
        return flat


def summarise(groups: Iterable[Group], *, success: str = "exact_match", ks: Sequence[int] | None = None) -> EvalReport:
    """The report of scored groups, one group a sample with all its attempts.

    It has the means of each score component and of the whole ``reward``, over all samples and per slice. For the
    component ``success`` (an attempt succeeds at 1) it also has ``pass@k``, by default for the powers of two from 2 to
    the number of attempts. Masked attempts are not counted. A sample with fewer than k others is left out of pass@k.

    Raises:
        UsageError: a k that no sample has enough attempts for.
    """
    groups = tuple(groups)
    live = [[t for t in group.trajectories if not t.masked and t.score is not None] for group in groups]
    most = max(map(len, live), default=0)
    wanted = [2**power for power in range(1, most.bit_length()) if 2**power <= most] if ks is None else list(ks)
    if ks is not None and most and max(wanted, default=0) > most:
        raise UsageError(f"pass@{max(wanted)} needs that many attempts a sample; got {most}. Raise eval.attempts.")
    values: dict[tuple[str, str], list[float]] = defaultdict(list)
    for group, attempts in zip(groups, live, strict=True):
        if not attempts:
            continue
        for metric, value in _metrics(attempts, success, wanted).items():
            for name in ("", *group.sample.slices):
                values[metric, name].append(value)
    trajectories = [trajectory for group in groups for trajectory in group.trajectories]
    return EvalReport(
        estimates=tuple(Estimate(metric, name, tuple(v)) for (metric, name), v in sorted(values.items())),
        samples=len(groups),
        trajectories=len(trajectories),
        masked=masked_by(trajectories),
    )


def pass_at_k(attempts: int, successes: int, k: int) -> float:
    """The unbiased chance of a success in k attempts: 1 - C(n-c, k) / C(n, k), Chen et al. 2021 (arXiv 2107.03374)."""
    return 1.0 - comb(attempts - successes, k) / comb(attempts, k)


def _metrics(attempts: Sequence[Trajectory], success: str, ks: Sequence[int]) -> dict[str, float]:
    """One sample's values: means over its attempts, and pass@k."""
    scores: list[Mapping[str, float]] = [trajectory.score.components for trajectory in attempts if trajectory.score]
    metrics = {"reward": fsum(trajectory.reward for trajectory in attempts) / len(attempts)}
    for name in dict.fromkeys(name for components in scores for name in components):
        found = [components[name] for components in scores if name in components]
        metrics[name] = fsum(found) / len(found)
    if success in metrics:
        # One of weight 0 may have failed.
        known = [components[success] for components in scores if success in components]
        successes = sum(value >= 1.0 for value in known)
        metrics |= {f"pass@{k}": pass_at_k(len(known), successes, k) for k in ks if k <= len(known)}
    return metrics


def wilson(share: float, size: int) -> Interval:
    """Wilson's score interval (JASA 22, 1927) of a share that was found in ``size`` cases."""
    squared = _Z95 * _Z95
    centre = (share + squared / (2 * size)) / (1 + squared / size)
    half = _Z95 * sqrt(share * (1 - share) / size + squared / (4 * size * size)) / (1 + squared / size)
    return Interval(round(max(0.0, centre - half), 12), round(min(1.0, centre + half), 12))  # exactly 0, 1 at the ends


def changed(before: float, after: float, sizes: tuple[int, int]) -> bool:
    """Whether two shares of so many samples differ by more than chance, with 95 % confidence.

    Newcombe's interval of a difference (Statistics in Medicine 17, 1998, method 10). The samples count as independent,
    which is cautious if they are the same ones; so is the use for means of values within 0 and 1.
    """
    low, high = (before, after) if after > before else (after, before)
    few, many = sizes if after > before else sizes[::-1]
    below, above = low - wilson(low, few).high, high - wilson(high, many).low
    return high - low > sqrt(below**2 + above**2)
