"""Makes metrics of runs that go well or wrong in a known way, for tests of the guard."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

Rows = list[dict[str, float]]
WEIGHTS = {"exact_match": 1.0, "format": 0.1}
JUDGED = {"judge": 1.0, "exact_match": 0.0}
GROUPS = 16.0


def good(rng: random.Random, steps: int = 60, *, rises: bool = True, noise: float | None = None) -> Rows:
    """A run whose reward rises or stays, with the noise that metrics of small batches have."""
    noise = rng.choice([0.02, 0.04, 0.07, 0.1]) if noise is None else noise
    start, end = rng.uniform(0.1, 0.5), rng.uniform(0.5, 0.95)
    start, slowness = (start if rises else end), rng.uniform(5, 40)
    calls, tokens, entropy = rng.uniform(0.8, 3), rng.choice([40, 300, 1500]), rng.uniform(0.3, 0.8)
    rows: Rows = []
    for step in range(steps):
        learnt = 1 - math.exp(-step / slowness)
        score = within(start + (end - start) * learnt + rng.gauss(0, noise))
        rows.append(
            {
                "step": float(step + 1),
                "reward": score,
                "reward_std": math.sqrt(max(score * (1 - score), 1e-4)),
                "exact_match": within(score + rng.gauss(0, 0.01)),
                "format": within(0.95 - 0.2 * math.exp(-step / 8) + rng.gauss(0, 0.02)),
                "tool_calls": calls * (1 + 0.15 * learnt) * wobble(rng, 0.1),
                "turns": calls + 1,
                "sampled_tokens": tokens * (1 + 0.3 * learnt) * wobble(rng, 0.1),
                "stop/length": abs(rng.gauss(0.03, 0.02)),
                "stop/max_turns": abs(rng.gauss(0.02, 0.01)),
                "faults/policy": float(round(3 + 12 * math.exp(-step / 5) + abs(rng.gauss(0, 2)))),
                "faults/tool": float(round(abs(rng.gauss(2, 1.5)))),
                "faults/infra": float(rng.random() < 0.05),
                "masked": 0.0,
                "groups": GROUPS,
                "equal_groups": min(GROUPS - 1, max(0.0, round(GROUPS * (0.1 + 0.6 * score**2) + rng.gauss(0, 2)))),
                "entropy": entropy * (1 - 0.6 * learnt) * wobble(rng, 0.1),
                "kl": 0.0005 + 0.02 * learnt * wobble(rng, 0.2),
                "grad_norm": 0.3 * wobble(rng, 0.4),
                "loss": rng.gauss(0, 0.02),
                "mismatch_kl": 0.0005 * wobble(rng, 1.0),
                "trained_tokens": 4000.0,
            }
        )
    return rows


def within(value: float) -> float:
    return min(1.0, max(0.0, value))


def wobble(rng: random.Random, size: float) -> float:
    return math.exp(rng.gauss(0, size))


def between(before: float, after: float, share: float) -> float:
    return before + (after - before) * share


def scaled(metric: str, factor: float) -> Callable[[dict[str, float], float, random.Random], None]:
    def change(row: dict[str, float], share: float, rng: random.Random) -> None:
        row[metric] *= factor**share * wobble(rng, 0.1)

    return change


def moved(metric: str, value: float) -> Callable[[dict[str, float], float, random.Random], None]:
    def change(row: dict[str, float], share: float, rng: random.Random) -> None:
        row[metric] = between(row[metric], value * wobble(rng, 0.1), share)

    return change


def nothing(row: dict[str, float], share: float, _rng: random.Random) -> None:
    row.update({name: row[name] * (1 - share) for name in ("reward", "exact_match", "format")})
    row["faults/policy"] = between(2.0, 212.0, share)
    if share == 1:
        row.update(equal_groups=GROUPS, reward_std=0.0, trained_tokens=0.0)


def less(row: dict[str, float], share: float, _rng: random.Random) -> None:
    row["reward"], row["exact_match"] = (row[name] * (1 - 0.65 * share) for name in ("reward", "exact_match"))


def equal(row: dict[str, float], _share: float, _rng: random.Random) -> None:
    row.update(equal_groups=GROUPS, trained_tokens=0.0, grad_norm=0.0, loss=0.0, entropy=0.0)


def not_a_number(row: dict[str, float], _share: float, _rng: random.Random) -> None:
    row.update(loss=math.nan, grad_norm=math.nan)


def masked(row: dict[str, float], _share: float, _rng: random.Random) -> None:
    row.update(masked=70.0, trained_tokens=0.0, reward=math.nan)


BAD = {
    "reward to nothing": ("zero", nothing),
    "reward to a third": ("fall", less),
    "nothing trained": ("equal", equal),
    "entropy collapses": ("entropy", moved("entropy", 0.002)),
    "entropy explodes": ("entropy", moved("entropy", 2.5)),
    "KL x 100": ("kl", scaled("kl", 100.0)),
    "gradient x 100": ("gradient", scaled("grad_norm", 100.0)),
    "30 calls": ("calls", moved("tool_calls", 30.0)),
    "no calls": ("tools", scaled("tool_calls", 0.01)),
    "wrong calls x 100": ("faults", moved("faults/policy", 300.0)),
    "refused calls x 100": ("faults", moved("faults/tool", 200.0)),
    "infrastructure": ("faults", moved("faults/infra", 60.0)),
    "8 times as long": ("long", scaled("sampled_tokens", 8.0)),
    "a tenth as long": ("length", scaled("sampled_tokens", 0.1)),
    "cut off": ("cut_off", moved("stop/length", 0.85)),
    "turns in circles": ("cut_off", moved("stop/max_turns", 0.9)),
    "not a number": ("nan", not_a_number),
    "sampler drifts": ("mismatch", moved("mismatch_kl", 0.3)),
    "masked": ("masked", masked),
}


def bad(kind: str, rng: random.Random, *, early: bool = False) -> Rows:
    """A run that goes well, and then wrong: at once or within some steps; ``early``: at once within five steps."""
    steps = rng.choice([30, 50, 80])
    begins, takes = (rng.randint(1, 4), 0) if early else (rng.randint(10, steps - 14), rng.choice([0, 2, 5, 8]))
    rows = good(rng, steps, rises=not early and rng.random() < 0.5)
    for step, row in enumerate(rows):
        share = within((step + 1 - begins) / takes) if takes else float(step >= begins)
        if share:
            BAD[kind][1](row, share, rng)
    return rows


def traded(rng: random.Random) -> Rows:
    """One rewarded score is bought with another."""
    rows, begins = good(rng, 50), rng.randint(12, 30)
    for step, row in enumerate(rows):
        share = within((step - begins) / 8)
        row["exact_match"] = within(0.3 + 0.5 * share + rng.gauss(0, 0.03))
        row["format"] = within(0.95 - 0.8 * share + rng.gauss(0, 0.03))
        row["reward"] = row["exact_match"] + row["format"]
    return rows


def judged(rng: random.Random, gap: Callable[[int], float]) -> Rows:
    """A judge's score is rewarded; it is above the truth by ``gap`` in each step."""
    rows = good(rng, 60)
    for step, row in enumerate(rows):
        row["exact_match"] = truth = within(0.3 + 0.4 * min(1.0, step / 20) + rng.gauss(0, 0.04))
        row["judge"] = row["reward"] = within(truth + gap(step) + rng.gauss(0, 0.02))
    return rows


def hacked(rng: random.Random) -> Rows:
    """A rewarded score rises while the one that is only measured falls."""
    rows = judged(rng, lambda _step: 0.0)
    for step, row in enumerate(rows):
        row["exact_match"] = within(0.5 - 0.4 * within((step - 15) / 15) + rng.gauss(0, 0.04))
        row["hasty"] = row["reward"] = within(0.5 + 0.4 * within((step - 15) / 15) + rng.gauss(0, 0.04))
    return rows


def recovers(rng: random.Random) -> Rows:
    """A run that begins badly in every respect, and recovers."""
    rows, bad_steps = good(rng, rng.choice([30, 60, 120])), rng.randint(6, 14)
    for step, row in enumerate(rows):
        share = 1 - within((step - bad_steps) / 8)
        for name in ("reward", "exact_match"):
            row[name] = between(row[name], abs(rng.gauss(0.05, 0.03)), share)
        for name, factor in (("tool_calls", 20), ("sampled_tokens", 7), ("grad_norm", 20), ("faults/policy", 60)):
            row[name] *= 1 + (factor - 1) * share
        row["entropy"] += 1.5 * share
        row["stop/length"] += 0.7 * share
        row["equal_groups"] = min(GROUPS - 1, row["equal_groups"] + 11 * share)
    return rows


def dips(rng: random.Random) -> Rows:
    """A run that is bad for some steps."""
    rows = good(rng, rng.choice([40, 120]))
    middle = rng.randint(5, len(rows) - 10)
    for step, row in enumerate(rows):
        share = max(0.0, 1 - abs(step - middle) / 3)
        for name in ("reward", "exact_match", "tool_calls"):
            row[name] *= 1 - 0.9 * share
        row["faults/policy"] += 60 * share
        row["grad_norm"] *= 1 + 10 * share
    return rows


def solves(rng: random.Random) -> Rows:
    """A run that solves its task, so that most groups teach nothing and attempts are alike."""
    rows = good(rng, 100)
    for step, row in enumerate(rows):
        row["reward"] = row["exact_match"] = between(row["reward"], 1 - 0.02 * (rng.random() < 0.3), within(step / 30))
        if step > 35:
            row["entropy"] = 0.004 * wobble(rng, 0.3)
            if rng.random() < 0.7:
                equal(row, 1.0, rng)
    return rows


def spikes(rng: random.Random) -> Rows:
    """Single steps are odd."""
    rows = good(rng, rng.choice([60, 200]))
    for row in rows:
        row["grad_norm"] *= 100 if rng.random() < 0.06 else 1
        row["kl"] *= 30 if rng.random() < 0.04 else 1
        row["masked"] = 3.0 * (rng.random() < 0.05)
    return rows


HEALTHY: tuple[Callable[[random.Random], Rows], ...] = (
    lambda rng: good(rng, rng.choice([30, 60, 200])),
    lambda rng: good(rng, rng.choice([30, 60, 200]), rises=False),
    recovers,
    dips,
    solves,
    spikes,
    lambda rng: judged(rng, lambda step: 0.02 + 0.25 * math.exp(-step / 5)),  # the gap closes
)
