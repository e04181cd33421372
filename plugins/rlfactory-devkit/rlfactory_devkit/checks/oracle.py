"""The oracle gets the highest reward."""

from __future__ import annotations

from collections.abc import Iterator

from rlfactory_core.types import FaultKind, StopReason, Trajectory
from rlfactory_devkit.checks.context import CheckContext
from rlfactory_devkit.checks.result import Evidence, seen, wrong
from rlfactory_devkit.rewards import components, ended_by_policy, last_text, masking_fault, mean, of, opinions

OPINION = 0.85  # of the whole reward, on average, where a model decides
_NEAR = 1e-6


def check(context: CheckContext) -> Iterator[Evidence]:
    """Plays `Task.solve` on both splits: each episode ends by itself, is not masked and gets the upper reward bound."""
    for split in ("train", "eval"):
        if not context.some(split):
            yield seen(f"{split}: no samples")
            continue
        played = context.oracle(split)
        if masked := [each for each in played if each.masked]:
            yield wrong(
                f"{split}: {of(len(masked), len(played), 'episode')} of the oracle masked. Sample "
                f"'{masked[0].sample.id}': {masking_fault(masked[0])}"
            )
        if not context.bench.task.has_solution:
            yield seen(f"{split}: the task says that its solve() is no solution, so its rewards are not judged")
            continue
        if failed := [each for each in played if each.stop is StopReason.AGENT_FAILED]:
            why = next((fault.message for fault in failed[0].faults if fault.kind is FaultKind.AGENT), "")
            yield wrong(f"{split}: the agent failed in {of(len(failed), len(played), 'episode')}. The first: {why}")
            continue
        if cut := [each for each in played if not ended_by_policy(each) and not each.masked]:
            yield wrong(
                f"{split}: {of(len(cut), len(played), 'episode')} of the oracle did not end by themselves. Sample "
                f"'{cut[0].sample.id}' ended with {cut[0].stop.value} after {len(cut[0].turns)} turns: correct "
                "Task.solve, or give the task larger budgets (defaults: rollout)."
            )
        yield from _rewarded(context, split, [each for each in played if not each.masked])


def _rewarded(context: CheckContext, split: str, played: list[Trajectory]) -> Iterator[Evidence]:
    if not played:
        return
    most, rewards = context.bench.reward_bounds[1], [each.reward for each in played]
    judges = opinions(context.bench)
    if judges:
        enough, rule = mean(rewards) >= OPINION * most, f"at least {OPINION * most:g} on average ({', '.join(judges)})"
    else:
        enough, rule = min(rewards) >= most - _NEAR, f"{most:g} each time"
    if enough:
        yield seen(f"{split}: the oracle gets {mean(rewards):.4g} of {most:g} on {len(played)} samples")
        return
    least = min(played, key=lambda each: each.reward)
    given = ", ".join(f"{name} {value:g}" for name, value in components(least).items())
    yield wrong(
        f"{split}: the oracle gets {mean(rewards):.4g} on average of {len(played)} samples; expected {rule}. Sample "
        f"'{least.sample.id}' gives {least.reward:.4g} for {last_text(least)[:120]!r} (by reward: {given or 'none'}). "
        "Let Task.solve give the right answer, or set the task's reward_bounds to what can be reached."
    )
