"""Tells from a run's metrics that its training goes wrong: pure functions over the rows of ``metrics.jsonl``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import fsum, isfinite

Row = Mapping[str, float | None]

STOPPED_BY = "train.guard: "  # the beginning of the reason for a stop
STEPS = 5  # that are looked at, and as many at the beginning of the run, with which they are compared
ENTROPY = 0.01  # nats a token
SHORTER, FEWER_CALLS = 0.3, 0.2  # of what it was
CALLS = 0.5  # calls a trajectory, from which on tools are said to be in use
CUT_OFF = 0.5  # share of trajectories that end because a limit of tokens is reached
MISMATCH = 0.1  # nats a token, as the KL estimate of the sampling to the training policy
PROBABILITY = 0.05  # likewise the mean difference of probabilities, as verl measures it
CHANGE = 0.05  # of a score within 0 and 1


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that goes wrong."""

    name: str  # in the metrics: ``guard/<name>``
    text: str


def findings(rows: Sequence[Row], weights: Mapping[str, float]) -> list[Finding]:
    """What the last `STEPS` rows of a run show.

    Args:
        rows: all of the run, the oldest first.
        weights: of the scorers by their keys; those of weight 0 are only measured.
    """
    if len(rows) < STEPS:
        return []
    first, last = rows[:STEPS], rows[-STEPS:]
    found = [finding for detect in DETECTORS for finding in detect(first, last)]
    means = {name: (_mean(first, name), _mean(last, name)) for name in weights}
    change = {name: (was, now) for name, (was, now) in means.items() if was is not None and now is not None}
    return [*found, *(Finding("reward", text) for text in pleasing(change, weights))]


def _masked(first: Sequence[Row], last: Sequence[Row]) -> Iterator[Finding]:
    if all((row.get("masked") or 0) > 0 and not row.get("trained_tokens") for row in last):
        yield Finding(
            "masked", f"In the last {STEPS} steps too many trajectories were masked by faults: nothing was trained."
        )


def _entropy(first: Sequence[Row], last: Sequence[Row]) -> Iterator[Finding]:
    trained = [row for row in last if row.get("trained_tokens") != 0]  # without a trained token nothing was measured
    values = _values(trained, "entropy")
    if len(values) == STEPS and max(values) < ENTROPY:
        yield Finding(
            "entropy", f"Entropy is below {ENTROPY} nats a token in the last {STEPS} steps: attempts are all alike."
        )


def _length(first: Sequence[Row], last: Sequence[Row]) -> Iterator[Finding]:
    before, now = _mean(first, "sampled_tokens"), _mean(last, "sampled_tokens")
    if before and now is not None and now < SHORTER * before:
        yield Finding(
            "length", f"The policy writes {now:.0f} tokens an attempt; at the beginning it wrote {before:.0f}."
        )
    before, now = _mean(first, "stop/length"), _mean(last, "stop/length")
    if before is not None and now is not None and now > CUT_OFF > 2 * before:
        yield Finding(
            "cut_off", f"{now:.0%} of the attempts end at a limit of tokens; at the beginning it was {before:.0%}."
        )


def _tools(first: Sequence[Row], last: Sequence[Row]) -> Iterator[Finding]:
    before, now = _mean(first, "tool_calls"), _mean(last, "tool_calls")
    if before is not None and now is not None and before >= CALLS and now < FEWER_CALLS * before:
        yield Finding(
            "tools",
            f"The policy has stopped to use its tools: {now:.2f} calls an attempt, {before:.2f} at the beginning.",
        )


def _mismatch(first: Sequence[Row], last: Sequence[Row]) -> Iterator[Finding]:
    if any(row.get("staleness") for row in last):  # older weights sampled, so a difference is expected
        return
    for name, most in (("mismatch_kl", MISMATCH), ("rollout_probs_diff_mean", PROBABILITY)):
        values = _values(last, name)
        if len(values) == STEPS and min(values) > most:
            yield Finding(
                "mismatch",
                f"What is sampled is not what is trained: {name} is {fsum(values) / STEPS:.3g} (at most {most:g} is "
                "usual). Are the weights transferred, and do both compute alike?",
            )


DETECTORS: tuple[Callable[[Sequence[Row], Sequence[Row]], Iterator[Finding]], ...] = (
    _masked,
    _entropy,
    _length,
    _tools,
    _mismatch,
)


def pleasing(change: Mapping[str, tuple[float, float]], weights: Mapping[str, float]) -> Iterator[str]:
    """Says that a score which is rewarded rises while one of weight 0 falls: the policy learns to please the reward.

    Args:
        change: of the scores, from what they were to what they are.
    """
    risen = [name for name, (before, now) in change.items() if weights[name] > 0 and now - before >= CHANGE]
    for name, (before, now) in change.items():
        if risen and not weights[name] and before - now >= CHANGE:
            was, is_now = change[risen[0]]
            yield (
                f"{risen[0]} has risen ({was:.2f} to {is_now:.2f}) while {name}, which is only measured, has fallen "
                f"({before:.2f} to {now:.2f}): the policy may be learning to please {risen[0]}."
            )


def _values(rows: Sequence[Row], name: str) -> list[float]:
    return [value for row in rows if (value := row.get(name)) is not None and isfinite(value)]


def _mean(rows: Sequence[Row], name: str) -> float | None:
    """None if a row lacks the metric."""
    values = _values(rows, name)
    return fsum(values) / len(values) if len(values) == len(rows) else None
