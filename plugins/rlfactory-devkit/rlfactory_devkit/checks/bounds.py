"""Every reward is a number within the task's bounds, whatever a policy says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from rlfactory_core.runner import constant, script
from rlfactory_core.tiny import answer_text
from rlfactory_core.types import FaultKind, Trajectory
from rlfactory_devkit.checks.context import CheckContext
from rlfactory_devkit.checks.result import Evidence, seen, wrong
from rlfactory_devkit.examples import example_calls
from rlfactory_devkit.rewards import last_text, of

_NEAR = 1e-6
_CHARS_PER_TOKEN = 8
_REPEATED, _TURNS = 2, 6  # episodes of the oracle, and turns of each, that are repeated
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


def check(context: CheckContext) -> Iterator[Evidence]:
    """Looks at the rewards of all episodes that any check has played, for hostile texts and for repeated steps.

    A hostile text is as long as a turn may be. Each turn of the oracle is repeated until the episode ends, and every
    call is made in one episode.
    """
    most = context.bench.config.rollout.max_turn_tokens * _CHARS_PER_TOKEN
    for text in (*(text[:most] for text in _TEXTS), *(answer_text(text[:most]) for text in _ANSWERS)):
        context.play(constant(text), context.some()[:2])
    solved: list[Trajectory] = []
    with suppress(Exception):  # the check `oracle` reports it
        solved = context.oracle()
    for each in solved[:_REPEATED]:
        turns = [turn.message for turn in each.turns[:_TURNS]]
        for end in range(1, len(turns) + 1):  # a step that is rewarded each time can be taken up to the limit of turns
            context.play(script(*turns[:end]), [each.sample])
    if calls := example_calls(context.bench.tools, solved):
        context.play(script(*calls), context.some()[:_REPEATED])
    low, high = context.bench.reward_bounds
    played = [each for each in context.all_played if not each.masked]
    rewards = [each.reward for each in played]
    outside = [each for each in played if not low - _NEAR <= each.reward <= high + _NEAR]
    if outside:
        far = max(outside, key=lambda each: max(low - each.reward, each.reward - high))
        yield wrong(
            f"{of(len(outside), len(played), 'reward')} lie outside of {low:g} to {high:g}, the furthest "
            f"{far.reward:g} for {last_text(far)[:80]!r}. Correct the reward, or declare its range: bounds of the "
            "scorer, reward_bounds of the task."
        )
    elif rewards:
        yield seen(f"{len(rewards)} rewards from {min(rewards):.4g} to {max(rewards):.4g}; bounds {low:g} to {high:g}")
    else:
        yield seen("no episode was rewarded: all are masked")
    crashed: dict[str, Trajectory] = {}  # not by a `VerifierError`, which a scorer raises if it cannot judge
    for each in context.all_played:
        for fault in each.faults:
            if fault.kind is FaultKind.VERIFIER and fault.code in ("crashed", "unusable"):
                crashed.setdefault(f"{fault.source}: {fault.message.splitlines()[0][:200]}", each)
    for message, each in crashed.items():
        yield wrong(
            f"reward {message} (for {last_text(each)[:80]!r}). Such an episode is left out of training: give it a "
            "reward, or raise VerifierError if the answer cannot be judged."
        )
