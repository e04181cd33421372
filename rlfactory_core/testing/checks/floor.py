"""Whoever knows nothing gets clearly less than whoever knows."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence

from rlfactory_core.errors import VerifierError
from rlfactory_core.rewards.answers import exact_match
from rlfactory_core.rewards.scorers import accepted_answers, last_answer
from rlfactory_core.testing.checks.result import DoesNotApply, Evidence, seen, wrong
from rlfactory_core.testing.checks.rewards import mean
from rlfactory_core.testing.checks.subject import Subject
from rlfactory_core.testing.examples import example_calls
from rlfactory_core.testing.policies import Policy, constant
from rlfactory_core.tiny import answer_text
from rlfactory_core.types import Message, Sample, ToolSpec, Trajectory

_WORDS = 4  # of the prompt, as an answer


def check(subject: Subject) -> Iterator[Evidence]:
    """The mean reward of policies without knowledge stays below the middle between luck and the oracle.

    Luck is the lower end of the rewards, and for a guess among other samples' answers its share of hits above that: in
    a task with two classes half of the guesses are right.
    """
    known = [each.reward for each in subject.oracle() if not each.masked]
    if not known:
        raise DoesNotApply("there is no reward of the oracle to compare with")
    (low, high), top = subject.bench.reward_bounds, mean(known)
    if top <= (low + high) / 2:
        raise DoesNotApply(f"the oracle gets only {top:.4g} of {high:g}, so there is nothing to compare with")
    for name, policy in _policies(subject).items():
        played = [each for each in subject.play(policy, subject.some()) if not each.masked]
        if not played:
            yield seen(f"{name}: every episode is masked, so nothing can be learned from it")
            continue
        got = mean([each.reward for each in played])
        luck = low + (top - low) * mean([_is_right(each) for each in played])
        limit = (luck + top) / 2
        text = f"{name}: {got:.4g} on average (oracle {top:.4g}"
        if got < limit:
            yield seen(f"{text}, limit {limit:.4g})")
        else:
            yield wrong(
                f"{text}); expected less than {limit:.4g}. A policy that knows nothing must not be paid for it: "
                f"look at what the rewards give for {_said(played)!r}."
            )


def _policies(subject: Subject) -> dict[str, Policy]:
    answers = [answer for sample in subject.some() for answer in _answers(sample)[:1]]
    frequent = Counter(answers).most_common(1)
    policies = {
        "empty output": constant(""),
        "an empty answer": constant(answer_text("")),
        "a constant text": constant("I do not know."),
        "a constant answer": constant(answer_text("42")),
        "random words of the prompt": _words,
    }
    if frequent:
        policies["the most frequent answer"] = constant(answer_text(frequent[0][0]))
        policies["other samples' answers"] = _guesses([sample for sample in subject.some() if _answers(sample)])
    if subject.bench.tools:
        policies["random calls"] = _calls(subject)
    return policies


def _words(sample: Sample, messages: Sequence[Message], tools: Sequence[ToolSpec], rng: random.Random) -> str:
    words = " ".join(message.content for message in messages if message.role == "user").split()
    return answer_text(" ".join(rng.choice(words) for _ in range(_WORDS)) if words else "")


def _guesses(samples: Sequence[Sample]) -> Policy:
    def policy(sample: Sample, messages: Sequence[Message], tools: Sequence[ToolSpec], rng: random.Random) -> str:
        others = [other for other in samples if other.id != sample.id] or samples
        return answer_text(_answers(rng.choice(others))[0])

    return policy


def _calls(subject: Subject) -> Policy:
    """A call with the arguments of any other, then a guess."""
    guess = _guesses([sample for sample in subject.some() if _answers(sample)])
    calls = example_calls(subject.bench.tools, subject.oracle())

    def policy(
        sample: Sample, messages: Sequence[Message], tools: Sequence[ToolSpec], rng: random.Random
    ) -> Message | str:
        if any(message.role == "assistant" for message in messages):
            return guess(sample, messages, tools, rng) if any(map(_answers, subject.some())) else ""
        return Message("assistant", "", tool_calls=(rng.choice(calls),))

    return policy


def _answers(sample: Sample) -> tuple[str, ...]:
    try:
        return accepted_answers(sample)
    except VerifierError:
        return ()


def _is_right(trajectory: Trajectory) -> float:
    """By luck."""
    answer = last_answer(trajectory)
    return 0.0 if answer is None else exact_match(answer, _answers(trajectory.sample))


def _said(played: Sequence[Trajectory]) -> str:
    best = max(played, key=lambda each: each.reward)
    return best.turns[-1].message.content[:120] if best.turns else ""
