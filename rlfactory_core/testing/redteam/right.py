"""Right answers in other clothes: whatever refuses one of them teaches a model to be afraid of white space.

What only the task can decide (case, articles, a full stop, a correction) is tried as well, and counts in no rate.
"""

from __future__ import annotations

from collections.abc import Iterable

from rlfactory_core.rewards.answers import CLOSE, OPEN
from rlfactory_core.testing.redteam.frame import tagged
from rlfactory_core.testing.redteam.mutation import Case, Material, Mutation, long_text, one_of_each

PROSE = "I have looked at what there is to know about this, and I am sure of it. "
_ACCEPTED = 5  # other accepted answers that are tried


def _oracle(material: Material) -> Iterable[Case]:
    return [Case((material.frame.say(material.truth),))]


def _accepted(material: Material) -> Iterable[Case]:
    return one_of_each(material.accepted[1 : _ACCEPTED + 1], material.frame)


def _prose(material: Material) -> Iterable[Case]:
    """Only where something tells the answer from the prose."""
    if material.frame.kind == "whole":
        return []
    said = material.frame.say
    return [
        Case((said(material.truth, before=PROSE),), "a sentence before it"),
        Case((said(material.truth, before=long_text(PROSE)),), "100 kB before it"),
    ]


def _white_space(material: Material) -> Iterable[Case]:
    truth = material.truth
    if material.frame.kind == "block":
        return one_of_each([("below it", f"{truth}\n\n")], material.frame)  # above it, it may mean something
    if material.frame.kind != "tags":
        return one_of_each([("around it", f"\n {truth} \n")], material.frame)
    return [
        Case((material.frame.say(f"\n  {truth}\n"),), "within the tags"),
        Case((material.frame.say(truth, before="\n\n ", after=" \n\n"),), "around the tags"),
        Case((f"{OPEN}{truth}{CLOSE}",), "none"),
    ]


def _twice(material: Material) -> Iterable[Case]:
    twice = f"{tagged(material.truth)}\nSo it is {tagged(material.truth)}"
    return [Case((twice,))] if material.frame.kind == "tags" else []


def _thought(material: Material) -> Iterable[Case]:
    said, wrong = material.frame.say, material.wrong[0]
    thoughts = [
        ("briefly", "Let me see."),
        ("for 100 kB", long_text(PROSE)),
        ("of a wrong answer", f"Is it {wrong}? {tagged(wrong)} No, it is not."),
    ]
    return [Case((said(material.truth, before=f"<think>\n{text}\n</think>\n"),), how) for how, text in thoughts]


def _style(material: Material) -> Iterable[Case]:
    truth = material.truth
    styles = [
        ("upper case", truth.upper()),
        ("lower case", truth.lower()),
        ("a full stop", f"{truth}."),
        ("an article", f"the {truth}"),
        ("quoted", f'"{truth}"'),
    ]
    return one_of_each([(how, text) for how, text in styles if text not in material.accepted], material.frame)


def _corrected(material: Material) -> Iterable[Case]:
    text = f"{tagged(material.wrong[0])} No, that is wrong. {tagged(material.truth)}"
    return [Case((text,))] if material.frame.kind == "tags" else []


def right_mutations() -> tuple[Mutation, ...]:
    """All of them; the last ones are for information."""
    outcome = "Judge the outcome by the answer alone, and the form by a small reward of its own (`format`)."
    own = "Read the model's parsed content, which has no thinking block (turn.message.content)."
    return (
        Mutation(
            "oracle", "right", "as it is", "See `rlfactory plugins check`: the right answer is not accepted.", _oracle
        ),
        Mutation("accepted", "right", "the sample's other answers", "Compare with every accepted answer.", _accepted),
        Mutation("prose", "right", "words before it", outcome, _prose),
        Mutation("white_space", "right", "other white space", "Strip the answer before comparing.", _white_space),
        Mutation("twice", "right", "said twice, the same", outcome, _twice),
        Mutation("thought", "right", "after thinking", own, _thought),
        Mutation("style", "either", "case, article, full stop, quotes", "", _style),
        Mutation("corrected", "either", "a wrong one, then the right one", "", _corrected),
    )
