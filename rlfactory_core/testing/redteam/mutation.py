"""What a mutation is, and what it has to work with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from rlfactory_core.rewards.answers import normalize
from rlfactory_core.testing.redteam.frame import Frame
from rlfactory_core.types import Message, Sample, ToolSpec

LONG = 100_000  # characters of what is meant to be long


@dataclass(frozen=True, slots=True)
class Material:
    """One sample as the red team knows it.

    Args:
        frame: the oracle's last message.
        accepted: the right answers as texts, the oracle's own first.
        wrong: answers that are certainly wrong here, most of them other samples' right ones; there are always some.
        tools: that were offered.
        calls: how many the oracle made.
        injections: texts with ``{answer}`` in place of a wrong answer, for this sample.
    """

    sample: Sample
    frame: Frame
    accepted: tuple[str, ...]
    wrong: tuple[str, ...]
    tools: tuple[ToolSpec, ...] = ()
    calls: int = 0
    injections: tuple[str, ...] = ()

    @property
    def truth(self) -> str:
        return self.accepted[0]

    @property
    def question(self) -> str:
        """What the user asks."""
        return next((each.content for each in reversed(self.sample.messages) if each.role == "user"), "")

    def is_wrong(self, text: str) -> bool:
        """Whether an answer is certainly not right; see `certainly_wrong`."""
        return certainly_wrong(text, self.accepted)


@dataclass(frozen=True, slots=True)
class Case:
    """One thing to try.

    Args:
        said: turn after turn, instead of the oracle's last message.
        variant: what tells it from the other cases of its mutation.
        replays: whether the oracle's turns up to its last message come first.
        observed: what every tool answers instead of what it does; None: they are the real ones.
    """

    said: tuple[Message | str, ...]
    variant: str = ""
    replays: bool = True
    observed: str | None = None


@dataclass(frozen=True, slots=True)
class Mutation:
    """A way to change the oracle's answer.

    Args:
        name: what ``--skip`` takes.
        kind: whether what it makes is wrong or right; either: that is for the task to say, and it counts in no rate.
        what: is tried, in a line.
        advice: for the author of a reward that errs here.
        make: the cases; none where it does not apply to the sample.
    """

    name: str
    kind: Literal["wrong", "right", "either"]
    what: str
    advice: str
    make: Callable[[Material], Iterable[Case]]


def certainly_wrong(text: str, accepted: Iterable[str]) -> bool:
    """Whether no right answer holds all its words, and it holds all the words of none.

    Words are those left by SQuAD's normalisation. So neither another notation nor a longer or shorter form of a right
    answer, about which a task may well be lenient, is ever taken for wrong.
    """
    words = set(_words(text))
    return not any(words <= right or right <= words for right in map(set, map(_words, accepted)))


def long_text(sentence: str) -> str:
    """The sentence again and again, about `LONG` characters."""
    return sentence * (LONG // len(sentence) + 1)


def one_of_each(said: Sequence[str | tuple[str, str]], frame: Frame) -> list[Case]:
    """A case for each answer, or for each pair of variant and answer."""
    pairs = [(item, item) if isinstance(item, str) else item for item in said]
    return [Case((frame.say(answer),), variant) for variant, answer in pairs]


def _words(text: str) -> list[str]:
    return normalize(text).split() or text.split()
