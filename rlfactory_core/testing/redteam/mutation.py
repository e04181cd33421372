"""A mutation, which changes an answer, and what it knows of the sample."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from rlfactory_core.rewards.answers import normalize
from rlfactory_core.testing.redteam.frame import Frame
from rlfactory_core.types import Message, Sample, ToolCall, ToolSpec

LONG = 100_000  # characters of a text that is meant to be long


@dataclass(frozen=True, slots=True)
class Material:
    """What the red team knows of one sample."""

    sample: Sample
    frame: Frame  # the oracle's last message
    turns: tuple[Message, ...]  # all of the oracle
    accepted: tuple[str, ...]  # the right answers as texts, beginning with the oracle's own
    wrong: tuple[str, ...]  # certainly wrong here, mostly other samples' right answers; never empty
    tools: tuple[ToolSpec, ...] = ()  # those that were offered
    known_calls: tuple[ToolCall, ...] = ()  # different calls of the oracle, on any sample
    other_episodes: tuple[tuple[Message, ...], ...] = ()  # the oracle's turns on samples with another answer
    answered: bool = True  # whether the sample says what the right answer is
    injections: tuple[str, ...] = ()  # texts for this sample, with ``{answer}`` in place of a wrong answer

    @property
    def truth(self) -> str:
        return self.accepted[0]

    @property
    def question(self) -> str:
        """The last message of the user."""
        return next((each.content for each in reversed(self.sample.messages) if each.role == "user"), "")

    def is_wrong(self, text: str) -> bool:
        """Whether an answer is certainly not right; see `certainly_wrong`."""
        return certainly_wrong(text, self.accepted)


@dataclass(frozen=True, slots=True)
class Case:
    """One attempt of a mutation."""

    said: tuple[Message | str, ...]  # the turns that replace the oracle's; the last one is repeated
    variant: str = ""  # distinguishes the case from the other cases of its mutation
    after: int | None = None  # how many of the oracle's turns come first; None: all but the last
    credited: int | None = None  # how many of the oracle's turns may earn something; None: those that come first
    adds: bool = False  # whether it is accepted only if it earns more than these turns
    observed: str | None = None  # what every tool answers; None: the real tools run


Make = Callable[[Material], Iterable[Case]]
Kind = Literal["wrong", "right", "either"]


@dataclass(frozen=True, slots=True)
class Mutation:
    """A way to change the oracle's answer."""

    name: str  # for ``--skip``
    kind: Kind  # of the changed answer; "either" depends on the task and counts in no rate
    what: str  # the change, in a few words
    advice: str  # for the author of a reward that is mistaken here
    make: Make  # makes the cases; none if the mutation does not apply to the sample


def mutation(kind: Kind, what: str, advice: str = "") -> Callable[[Make], Mutation]:
    """Makes a mutation of a function that makes its cases; the function's name is the mutation's."""
    return lambda make: Mutation(make.__name__, kind, what, advice, make)


def certainly_wrong(text: str, accepted: Iterable[str]) -> bool:
    """Whether, for each right answer, the text has a word that it lacks, and lacks a word that it has.

    Words are compared after SQuAD's normalisation. Another notation of a right answer, or a longer or shorter form of
    it, is therefore never taken for wrong, because a task may accept it.
    """
    words = set(_words(text))
    return not any(words <= right or right <= words for right in map(set, map(_words, accepted)))


def long_text(sentence: str) -> str:
    """The sentence repeated to about `LONG` characters."""
    return sentence * (LONG // len(sentence) + 1)


def one_of_each(said: Sequence[str | tuple[str, str]], frame: Frame) -> list[Case]:
    """A case for each answer, or for each pair of variant and answer."""
    pairs = [(item, item) if isinstance(item, str) else item for item in said]
    return [Case((frame.say(answer),), variant) for variant, answer in pairs]


def _words(text: str) -> list[str]:
    return normalize(text).split() or text.split()
