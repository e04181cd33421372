"""Whoever knows the answer gets the whole reward."""

from __future__ import annotations

from collections.abc import Iterator

from rlfactory_core.testing.checks.result import Evidence, seen, wrong
from rlfactory_core.testing.checks.rewards import ended, mean, of, opinions, spoilt
from rlfactory_core.testing.checks.subject import Subject
from rlfactory_core.types import Trajectory

OPINION = 0.85  # of the whole reward, on average, where a model decides
_NEAR = 1e-6


def check(subject: Subject) -> Iterator[Evidence]:
    """`Task.solve` on samples of both splits: `reward_bounds`' upper end each time, unmasked, ended by itself."""
    for split in ("train", "eval"):
        if not subject.some(split):
            yield seen(f"{split}: no samples")
            continue
        played = subject.oracle(split)
        yield from _played_to_its_end(split, played)
        yield from _rewarded(subject, split, [each for each in played if not each.masked])


def _played_to_its_end(split: str, played: list[Trajectory]) -> Iterator[Evidence]:
    masked = [each for each in played if each.masked]
    if masked:
        yield wrong(
            f"{split}: {of(len(masked), len(played), 'episode')} of the oracle spoilt. Sample '{masked[0].sample.id}': "
            f"{spoilt(masked[0])}"
        )
    cut = [each for each in played if not ended(each) and not each.masked]
    if cut:
        yield wrong(
            f"{split}: {of(len(cut), len(played), 'episode')} of the oracle did not end by themselves. Sample "
            f"'{cut[0].sample.id}' ended with {cut[0].stop.value} after {len(cut[0].turns)} turns: mend Task.solve, or "
            "give the task larger budgets (defaults: rollout)."
        )


def _rewarded(subject: Subject, split: str, played: list[Trajectory]) -> Iterator[Evidence]:
    if not played:
        return
    most, rewards = subject.bench.reward_bounds[1], [each.reward for each in played]
    judges = opinions(subject.bench)
    if judges:
        enough, rule = mean(rewards) >= OPINION * most, f"at least {OPINION * most:g} on average ({', '.join(judges)})"
    else:
        enough, rule = min(rewards) >= most - _NEAR, f"{most:g} each time"
    if enough:
        yield seen(f"{split}: the oracle gets {mean(rewards):.4g} of {most:g} on {len(played)} samples")
        return
    least = min(played, key=lambda each: each.reward)
    said = least.turns[-1].message.content if least.turns else ""
    yield wrong(
        f"{split}: the oracle gets {mean(rewards):.4g} on average of {len(played)} samples; expected {rule}. Sample "
        f"'{least.sample.id}' gives {least.reward:.4g} for {said[:120]!r} (by reward: {_components(least)}). Write "
        "Task.solve so that it says what is right, or set the task's reward_bounds to what can be had."
    )


def _components(trajectory: Trajectory) -> str:
    given = trajectory.score.components if trajectory.score else {}
    return ", ".join(f"{name} {value:g}" for name, value in given.items()) or "none"
