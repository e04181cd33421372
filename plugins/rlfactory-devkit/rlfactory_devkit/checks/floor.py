"""A policy without knowledge gets clearly less reward than the oracle."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence

from rlfactory_core.rewards import exact_match, last_answer
from rlfactory_core.runner import Policy, constant
from rlfactory_core.tiny import answer_text
from rlfactory_core.types import Message, Sample
from rlfactory_devkit.checks.context import CheckContext
from rlfactory_devkit.checks.result import DoesNotApply, Evidence, seen, wrong
from rlfactory_devkit.examples import example_calls, random_calls
from rlfactory_devkit.rewards import known_answers, last_text, mean

_WORDS = 4  # of the prompt, that make a random answer


def check(context: CheckContext) -> Iterator[Evidence]:
    """Compares policies without knowledge with the midpoint between luck and the oracle.

    Luck is the lower bound of the reward, plus the share of correct guesses for a policy that guesses. In a task with
    two classes, half of the guesses are correct. Where rewards may be negative, as penalties, luck is at least 0.
    """
    if not context.bench.task.has_solution:
        raise DoesNotApply("the task says that its solve() is no solution")
    known = [each.reward for each in context.oracle() if not each.masked]
    if not known:
        raise DoesNotApply("there is no reward of the oracle to compare with")
    (low, high), top = context.bench.reward_bounds, mean(known)
    low = max(low, 0.0) if top > 0 else low
    if top <= (low + high) / 2:
        raise DoesNotApply(f"the oracle gets only {top:.4g} of {high:g}, so there is nothing to compare with")
    for name, policy in _policies(context).items():
        played = [each for each in context.play(policy, context.some()) if not each.masked]
        if not played:
            yield seen(f"{name}: every episode is masked, so nothing can be learned from it")
            continue
        got = mean([each.reward for each in played])
        right = [exact_match(last_answer(each) or "", known_answers(each.sample)) for each in played]
        luck = low + (top - low) * mean(right)
        limit = (luck + top) / 2
        text = f"{name}: {got:.4g} on average (oracle {top:.4g}"
        if got < limit:
            yield seen(f"{text}, limit {limit:.4g})")
        else:
            yield wrong(
                f"{text}); expected less than {limit:.4g}. A policy that knows nothing must not earn this. "
                f"Look at what the rewards give for {last_text(max(played, key=lambda each: each.reward))[:120]!r}."
            )


def _policies(context: CheckContext) -> dict[str, Policy]:
    answered = [sample for sample in context.some() if known_answers(sample)]
    policies = {
        "empty output": constant(""),
        "an empty answer": constant(answer_text("")),
        "a constant text": constant("I do not know."),
        "a constant answer": constant(answer_text("42")),
        "random words of the prompt": _words,
    }
    guesses = constant("")
    if answered:
        (frequent, _) = Counter(known_answers(sample)[0] for sample in answered).most_common(1)[0]
        policies["the most frequent answer"] = constant(answer_text(frequent))
        policies["other samples' answers"] = guesses = _guesses(answered)
    if context.bench.tools:
        policies["random calls"] = random_calls(example_calls(context.bench.tools, context.oracle()), 1, guesses)
    return policies


def _words(_: Sample, messages: Sequence[Message], tools: object, rng: random.Random) -> str:
    words = " ".join(message.content for message in messages if message.role == "user").split()
    return answer_text(" ".join(rng.choice(words) for _ in range(_WORDS)) if words else "")


def _guesses(samples: Sequence[Sample]) -> Policy:
    def policy(sample: Sample, messages: object, tools: object, rng: random.Random) -> str:
        others = [other for other in samples if other.id != sample.id] or samples
        return answer_text(known_answers(rng.choice(others))[0])

    return policy
