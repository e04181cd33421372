"""Mutations that keep the answer right. A reward that refuses one of them punishes the form and not the answer.

Changes whose effect depends on the task (case, articles, a full stop, a correction) are tried as well, and count in no
rate.
"""

from __future__ import annotations

from collections.abc import Iterable

from rlfactory_core.testing.redteam.mutation import Case, Material, Mutation, long_text, mutation, one_of_each
from rlfactory_core.tiny import ANSWER_CLOSE, ANSWER_OPEN, answer_text

PROSE = "I have looked at what there is to know about this, and I am sure of it. "
_ACCEPTED = 5  # other accepted answers that are tried
_OUTCOME = "Judge the outcome by the answer alone, and the form by a small reward of its own (`format`)."


@mutation("right", "as it is", "See `rlfactory plugins check`: the right answer is not accepted.")
def oracle(material: Material) -> Iterable[Case]:
    return [Case((material.frame.say(material.truth),))]


@mutation("right", "the sample's other answers", "Compare with every accepted answer.")
def accepted(material: Material) -> Iterable[Case]:
    return one_of_each(material.accepted[1 : _ACCEPTED + 1], material.frame)


@mutation("right", "words before it", _OUTCOME)
def prose(material: Material) -> Iterable[Case]:
    """Only if the answer is marked, so that it can be separated from the prose."""
    if material.frame.kind == "whole":
        return []
    said = material.frame.say
    return [
        Case((said(material.truth, before=PROSE),), "a sentence before it"),
        Case((said(material.truth, before=long_text(PROSE)),), "100 kB before it"),
    ]


@mutation("right", "other white space", "Strip the answer before comparing.")
def white_space(material: Material) -> Iterable[Case]:
    truth = material.truth
    if material.frame.kind == "block":
        return one_of_each([("below it", f"{truth}\n\n")], material.frame)  # above it, it may mean something
    if material.frame.kind != "tags":
        return one_of_each([("around it", f"\n {truth} \n")], material.frame)
    return [
        Case((material.frame.say(f"\n  {truth}\n"),), "within the tags"),
        Case((material.frame.say(truth, before="\n\n ", after=" \n\n"),), "around the tags"),
        Case((f"{ANSWER_OPEN}{truth}{ANSWER_CLOSE}",), "none"),
    ]


@mutation("right", "said twice, the same", _OUTCOME)
def twice(material: Material) -> Iterable[Case]:
    text = f"{answer_text(material.truth)}\nSo it is {answer_text(material.truth)}"
    return [Case((text,))] if material.frame.kind == "tags" else []


@mutation(
    "right", "after thinking", "Read the model's parsed content, which has no thinking block (turn.message.content)."
)
def thought(material: Material) -> Iterable[Case]:
    said, wrong = material.frame.say, material.wrong[0]
    thoughts = [
        ("briefly", "Let me see."),
        ("for 100 kB", long_text(PROSE)),
        ("of a wrong answer", f"Is it {wrong}? {answer_text(wrong)} No, it is not."),
    ]
    return [Case((said(material.truth, before=f"<think>\n{text}\n</think>\n"),), how) for how, text in thoughts]


@mutation("either", "case, article, full stop, quotes")
def style(material: Material) -> Iterable[Case]:
    truth = material.truth
    styles = [
        ("upper case", truth.upper()),
        ("lower case", truth.lower()),
        ("a full stop", f"{truth}."),
        ("an article", f"the {truth}"),
        ("quoted", f'"{truth}"'),
    ]
    return one_of_each([(how, text) for how, text in styles if text not in material.accepted], material.frame)


@mutation("either", "a wrong one, then the right one")
def corrected(material: Material) -> Iterable[Case]:
    text = f"{answer_text(material.wrong[0])} No, that is wrong. {answer_text(material.truth)}"
    return [Case((text,))] if material.frame.kind == "tags" else []


RIGHT = tuple(each for each in tuple(globals().values()) if isinstance(each, Mutation))
"""All mutations of this file in its order."""
