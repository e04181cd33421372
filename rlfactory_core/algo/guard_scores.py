"""What the guard looks for in the reward and in the scores that it is made of."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from statistics import pstdev

from rlfactory_core.algo.evaluation import changed, wilson
from rlfactory_core.algo.guard_past import LONG, LONGEST, REWARD, STEPS, Past
from rlfactory_core.algo.guard_signs import Finding

ZERO, HALF, LESS = 0.05, 0.5, 0.7  # of the best reward; see `reward_falls`
SURE = 5.0  # standard errors of a difference, because the best of many windows is compared
CHANGE, LOSS = 0.05, 0.15  # of a score within 0 and 1: one that is only measured, one that is rewarded
LOST = 0.7  # of the best value of a rewarded score
GAP = 0.15  # between a model's opinion and the truth
GROWN = 0.1  # of that gap since it was least
NEARER = 0.8  # times the gap of the five steps before: it closes


def reward_falls(past: Past) -> Iterator[Finding]:
    """Within five steps to nothing, within ten to half, or within twenty to 0.7 of the best window."""
    best = past.best()
    then = None if best is None else best.mean(REWARD)
    if best is None or then is None:
        return
    height = then - past.lowest
    for name, steps, share in (("zero", STEPS, ZERO), ("fall", LONG, HALF), ("fall", LONGEST, LESS)):
        if past.steps < steps + (1 if name == "zero" else STEPS):
            continue
        now, last = past.window(steps).mean(REWARD), past.window().mean(REWARD)
        if now is None or last is None or height <= 0:
            continue
        fallen = max(now, last) - past.lowest <= share * height
        recovering = last - now > past.error(REWARD, STEPS)
        if fallen and not recovering and then - now > SURE * past.error(REWARD, steps):
            text = f"The reward is {now:.2f} in the last {steps} steps; at its best it was {then:.2f}."
            advice = "Compare attempts of then and now; lower train.lr, or go back to an earlier checkpoint."
            yield Finding(name, f"{text} {advice}", steps=steps)
            return


def scores_part(past: Past, weights: Mapping[str, float]) -> Iterator[Finding]:
    """A rewarded score has risen while another one has fallen from its best window."""
    for name, weight in weights.items():
        for steps in (LONG,) if weight else (STEPS, LONG):  # rewarded scores may differ for a while
            best, now = past.best(name), past.window(steps)
            if best is None or past.steps < steps + STEPS or not _has_fallen(past, name, weight, steps):
                continue
            change = {
                key: (before, after)
                for key in weights
                if (before := best.mean(key)) is not None and (after := now.mean(key)) is not None
            }
            risen = [key for key in change if weights[key] > 0 and _has_risen(past, key, change[key], weight, steps)]
            gain = sum(weights[key] * (after - before) for key, (before, after) in change.items())
            if risen and (weight or gain > 0):
                yield Finding("reward", parting(name, weight, change[name], risen[0], change[risen[0]]), name, steps)
                return


def _has_fallen(past: Past, name: str, weight: float, steps: int) -> bool:
    best = past.best(name)
    was, now = None if best is None else best.mean(name), past.window(steps).mean(name)
    if was is None or now is None or was - now < max(LOSS if weight else CHANGE, SURE * past.error(name, steps)):
        return False
    recovering = (past.window().mean(name) or 0.0) - now > past.error(name, STEPS)
    return not weight or (now <= LOST * was and not recovering)


def _has_risen(past: Past, name: str, change: tuple[float, float], weight: float, steps: int) -> bool:
    least = 2 * CHANGE if weight else CHANGE
    return change[1] - change[0] >= max(least, SURE / 2 * past.error(name, steps))


def parting(name: str, weight: float, change: tuple[float, float], other: str, rise: tuple[float, float]) -> str:
    """In words: the score ``other`` has risen while this one has fallen."""
    what = "which is only measured" if weight == 0 else "which is rewarded too"
    why = f"may be learning to please {other}" if weight == 0 else "pays for one with the other: see their weights"
    return (
        f"{other} has risen ({rise[0]:.2f} to {rise[1]:.2f}) while {name}, {what}, has fallen ({change[0]:.2f} to "
        f"{change[1]:.2f}): the policy {why}."
    )


def held_out_findings(
    before: Mapping[str, float], now: Mapping[str, float], weights: Mapping[str, float]
) -> Iterator[Finding]:
    """Rewarded scores that have risen while one of weight 0 has fallen, between two evaluations with flat names.

    If the numbers of samples are known, only what they can show counts.
    """
    sizes = int(before.get("samples", 0)), int(now.get("samples", before.get("samples", 0)))

    def differs(name: str, sign: int) -> bool:
        if name not in before or name not in now or sign * (now[name] - before[name]) < CHANGE:
            return False
        pair = before[name], now[name]
        return not all(sizes) or not all(0 <= value <= 1 for value in pair) or changed(*pair, sizes)

    risen = [name for name, weight in weights.items() if weight > 0 and differs(name, 1)]
    for name, weight in weights.items():
        if risen and not weight and differs(name, -1):
            change = before[name], now[name]
            yield Finding("reward", parting(name, 0.0, change, risen[0], (before[risen[0]], now[risen[0]])), name)


def gap_name(judge: str, truth: str) -> str:
    """The metric that `gaps` follows: by how much the truth is above the opinion, so that its best is the least gap."""
    return f"{truth} - {judge}"


def pairs(weights: Mapping[str, float], opinions: Collection[str]) -> list[tuple[str, str]]:
    """Each rewarded opinion of a model with each measured truth."""
    judges = [name for name, weight in weights.items() if weight > 0 and name in opinions]
    truths = [name for name, weight in weights.items() if weight == 0 and name not in opinions]
    return [(judge, truth) for judge in judges for truth in truths]


def gaps(past: Past, judges: Collection[tuple[str, str]]) -> Iterator[Finding]:
    """An opinion is above the truth by more than `GAP` and does not come nearer, or the gap has grown."""
    if past.steps < LONG:
        return
    for judge, truth in judges:
        name = gap_name(judge, truth)
        best, window = past.best(name), past.window(LONG)
        now, before, last = window.mean(name), past.window(STEPS, STEPS).mean(name), past.window().mean(name)
        least = None if best is None else best.mean(name)
        if now is None or before is None or last is None or least is None:
            continue
        values = window.values(name)
        error = 2 * (pstdev(values) / len(values) ** 0.5)
        wide = -max(now, last) - error > GAP and last <= NEARER * before
        grown = least - max(now, last) >= max(GROWN, SURE * past.error(name, LONG))
        if wide or grown:
            text = gap_text(judge, truth, window.mean(judge) or 0.0, window.mean(truth) or 0.0)
            yield Finding("gap", text, name, LONG)


def gap_text(judge: str, truth: str, opinion: float, found: float) -> str:
    return (
        f"{judge} gives {opinion:.2f}, but {truth}, which is only measured, is {found:.2f}: wrong attempts are "
        f"rewarded. Read attempts that {judge} accepts and {truth} refuses."
    )


def gap_findings(found: Mapping[str, float], prefix: str, judges: Collection[tuple[str, str]]) -> Iterator[Finding]:
    """Opinions that are above a truth by more than `GAP` in one pass of an evaluation."""
    for judge, truth in judges:
        opinion, right = found.get(f"{prefix}{judge}"), found.get(f"{prefix}{truth}")
        if opinion is not None and right is not None and opinion - right > GAP:
            yield Finding("gap", gap_text(judge, truth, opinion, right), f"{prefix}{truth}")


def apart_text(name: str, trained: float | None, held_out: float | None, samples: float) -> str:
    """Says that training succeeds far more often than held-out samples do; empty if it does not."""
    if trained is None or held_out is None or not samples or not 0 <= held_out <= 1:
        return ""
    if trained - held_out < GAP or trained <= wilson(held_out, int(samples)).high:
        return ""
    return (
        f"{name} is {trained:.2f} in training (last {LONG} steps) and {held_out:.2f} on {samples:.0f} held-out "
        "samples: the policy learns its training samples by heart, or the held-out ones are harder. Use more training "
        "data, or more varied data."
    )
