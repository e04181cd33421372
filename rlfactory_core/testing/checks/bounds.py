"""Every reward is a number between the bounds that the task names, whatever a policy says."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

from rlfactory_core.testing.checks.result import Evidence, seen, wrong
from rlfactory_core.testing.checks.rewards import of
from rlfactory_core.testing.checks.subject import Subject
from rlfactory_core.testing.policies import constant
from rlfactory_core.tiny import answer_text
from rlfactory_core.types import FaultKind, Trajectory

_NEAR = 1e-6
_CRASHED = re.compile(r"[A-Z]\w*(Error|Exception|Exit|Interrupt|Iteration): ")  # as `rewards.asking.attempt` tells it
_CHARS_PER_TOKEN = 8
_TEXTS = (
    "answer " * 15_000,
    "<answer><answer>1</answer></answer>" * 50,
    "<answer>" * 500,
    '<tool_call>\n{"name": 1, "arguments": [}\n</tool_call>',
)
_ANSWERS = (
    "x" * 100_000,
    "[" * 2_000 + "]" * 2_000,
    "a\x00b\x1b[2J\u202e\ufeff\U0001f600",
    "nan",
    "-inf 1e999",
    "'; DROP TABLE t; -- \" ` $(x) {0} %s",
)


def check(subject: Subject) -> Iterator[Evidence]:
    """All rewards of all policies of all checks, and those for hostile texts, as long as a turn may be."""
    most = subject.bench.config.rollout.max_turn_tokens * _CHARS_PER_TOKEN
    for text in (*(text[:most] for text in _TEXTS), *(answer_text(text[:most]) for text in _ANSWERS)):
        subject.play(constant(text), subject.some()[:2])
    low, high = subject.bench.reward_bounds
    played = [each for each in subject.seen if not each.masked]
    rewards = [each.reward for each in played]
    outside = [each for each in played if not low - _NEAR <= each.reward <= high + _NEAR]
    if outside:
        far = max(outside, key=lambda each: _distance(each.reward, low, high))
        yield wrong(
            f"{of(len(outside), len(played), 'reward')} lie outside of {low:g} to {high:g}, the furthest "
            f"{far.reward:g} for {_said(far)!r}. Mend it, or say what it can be: bounds of the scorer, reward_bounds "
            "of the task."
        )
    elif rewards:
        yield seen(f"{len(rewards)} rewards from {min(rewards):.4g} to {max(rewards):.4g}; bounds {low:g} to {high:g}")
    else:
        yield seen("no episode was rewarded: all are masked")
    yield from _crashed(subject.seen)


def _crashed(played: Sequence[Trajectory]) -> Iterator[Evidence]:
    """A scorer's own faults; one that could not find out says so with a `VerifierError`, and is right to."""
    found: dict[str, Trajectory] = {}
    for each in played:
        for fault in each.faults:
            odd = "not finite" in fault.message or "per-turn scores" in fault.message
            if fault.kind is FaultKind.VERIFIER and (odd or _CRASHED.match(fault.message)):
                found.setdefault(f"{fault.source}: {fault.message.splitlines()[0][:200]}", each)
    for message, each in found.items():
        yield wrong(
            f"reward {message} (for {_said(each)!r}). Such an episode is left out of training: give it a reward, or "
            "raise VerifierError where nobody could tell."
        )


def _distance(reward: float, low: float, high: float) -> float:
    return max(low - reward, reward - high) if math.isfinite(reward) else math.inf


def _said(trajectory: Trajectory) -> str:
    return trajectory.turns[-1].message.content[:80] if trajectory.turns else ""
