"""A mutation, which changes an answer, and what it knows of the sample."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from rlfactory_core.rewards import normalize
from rlfactory_core.types import Message, Sample, ToolCall, Trajectory
from rlfactory_devkit.redteam.frame import FRAMES, Frame
from rlfactory_devkit.rewards import known_answers

_MORE = 1e-6


@dataclass(frozen=True, slots=True)
class Case:
    """One attempt of a mutation."""

    turns: tuple[Message | str, ...]  # that replace the oracle's; the last one is repeated
    variant: str = ""  # distinguishes the case from the other cases of its mutation
    after: int | None = None  # how many of the oracle's turns come first; None: all but the last
    credited: int | None = None  # how many of the oracle's turns may earn something; None: those that come first
    adds: bool = False  # counts as accepted only if it earns more than the unchanged episode
    observed: str | None = None  # what every tool answers; None: the real tools run


@dataclass(frozen=True, slots=True)
class Material:
    """What the red team knows of one sample; the oracle's episode and silence are the ends of its reward scale."""

    sample: Sample
    frame: Frame  # the oracle's last message
    oracle: Trajectory
    silent: Mapping[int, Trajectory]  # falls silent after so many turns of the oracle
    accepted: tuple[str, ...]  # the right answers as texts, beginning with the oracle's own
    wrong: tuple[str, ...] = ()  # certainly wrong here, mostly other samples' right answers; never empty in a mutation
    known_calls: tuple[ToolCall, ...] = ()  # different calls of the oracle, on any sample
    other_episodes: tuple[tuple[Message, ...], ...] = ()  # the oracle's turns on samples with another answer
    injections: tuple[str, ...] = ()  # texts for this sample, with ``{answer}`` in place of a wrong answer

    @property
    def turns(self) -> tuple[Message, ...]:
        """All of the oracle."""
        return tuple(turn.message for turn in self.oracle.turns)

    @property
    def truth(self) -> str:
        return self.accepted[0]

    @property
    def question(self) -> str:
        """The last message of the user."""
        return next((each.content for each in reversed(self.sample.messages) if each.role == "user"), "")

    @property
    def answered(self) -> bool:
        """Whether the sample says what the right answer is."""
        return bool(known_answers(self.sample))

    def is_wrong(self, text: str) -> bool:
        """Whether an answer is certainly not right; see `certainly_wrong`."""
        return certainly_wrong(text, self.accepted)

    def before(self, case: Case) -> int:
        """How many of the oracle's turns come first."""
        return len(self.turns) - 1 if case.after is None else case.after

    def low(self, case: Case) -> Trajectory:
        """Silence after the oracle's turns that a case is credited with."""
        return self.silent[self.before(case) if case.credited is None else case.credited]

    def threshold(self, case: Case, worth: Callable[[Trajectory], float]) -> float:
        """From which worth a case counts as accepted: the reward, or one scorer's value."""
        low, high = worth(self.low(case)), worth(self.oracle)
        if high > low:
            return (low + high) / 2
        return low + _MORE if case.adds else high


Made = Iterable[Case | tuple[str, str] | str]
"""Cases, or answers in the oracle's words, each with its variant unless the answer itself names it."""
Kind = Literal["wrong", "right", "either"]


@dataclass(frozen=True, slots=True)
class Mutation:
    """A way to change the oracle's answer."""

    name: str  # for ``--skip``
    kind: Kind  # of the changed answer; "either" depends on the task and counts in no rate
    what: str  # the change, in a few words
    advice: str  # for the author of a reward that is mistaken here
    make: Callable[[Material], Made]
    frames: Collection[str]  # the forms of the oracle's last message to which it applies

    def cases(self, material: Material) -> list[Case]:
        """Its cases for one sample; none if it does not apply, or changes a last turn on which nothing depends."""
        if material.frame.kind not in self.frames:
            return []
        pairs = [(each, each) if isinstance(each, str) else each for each in self.make(material)]
        cases = [each if isinstance(each, Case) else Case((material.frame.say(each[1]),), each[0]) for each in pairs]
        silent = material.silent[len(material.turns) - 1]
        last_turn_matters = material.answered or silent.reward < material.oracle.reward
        return [each for each in cases if each.after is not None or last_turn_matters]


def mutation(
    kind: Kind, what: str, advice: str = "", frames: Collection[str] = FRAMES
) -> Callable[[Callable[[Material], Made]], Mutation]:
    """Makes a mutation of a function; the function's name is the mutation's."""
    return lambda make: Mutation(make.__name__, kind, what, advice, make, frames)


def certainly_wrong(text: str, accepted: Iterable[str]) -> bool:
    """Whether, for each right answer, the text has a word that it lacks, and lacks a word that it has.

    Words are compared after SQuAD's normalisation. Another notation of a right answer, or a longer or shorter form of
    it, is therefore never taken for wrong, because a task may accept it.
    """
    words, *rights = (set(normalize(each).split() or each.split()) for each in (text, *accepted))
    return not any(words <= right or right <= words for right in rights)
