"""The answer does not stand where the model may read it without work."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rlfactory_core.errors import VerifierError
from rlfactory_core.protocols import EnvStart
from rlfactory_core.rewards.answers import normalize
from rlfactory_core.rewards.scorers import accepted_answers
from rlfactory_core.testing.checks.result import DoesNotApply, Evidence, seen, wrong
from rlfactory_core.testing.checks.rewards import of
from rlfactory_core.testing.checks.subject import Subject
from rlfactory_core.types import Sample

_SAMPLES = 64  # of each split that are looked at
_SHORT = 3  # characters that an answer needs to be told from chance
_COMMON = {"yes", "no", "true", "false", "none", "null", "unknown"}
_SAME = 0.75  # share of the answers found that stand between the same words
_FEW = 2  # answers found by which nothing is shown


@dataclass(frozen=True, slots=True)
class _Read:
    """One sample as a model sees it before its first turn: normalised words, by the place where they stand."""

    sample: Sample
    answers: tuple[str, ...]
    places: Mapping[str, str]


def check(subject: Subject) -> Iterator[Evidence]:
    """Looks for accepted answers in the opening messages, the tools' schemas and descriptions, and the sample's id.

    Compared as SQuAD does, at word borders; answers under three letters and words such as yes are left out. An answer
    may stand there among options or in a passage to be read. It leaks where it can be told from the rest: where other
    samples' answers stand there less than half as often, and at least three quarters of those found stand between the
    same words.
    """
    read = _read(subject)
    if not read:
        raise DoesNotApply(
            "no answer can be looked for: they are all missing, shorter than three letters, or words such as yes"
        )
    for place in read[0].places:
        yield _in_place(place, read)


def _read(subject: Subject) -> list[_Read]:
    samples = [sample for split in ("train", "eval") for sample in subject.bench.samples(split, _SAMPLES)]
    found = []
    for sample in samples:
        answers = tuple(filter(_tells, map(_normal, _answers(sample))))
        if answers:
            start = subject.bench.run(subject.bench.opening(sample), subject.deadline_s, f"starting '{sample.id}'")
            found.append(_Read(sample, answers, _places(sample, start)))
    return found


def _places(sample: Sample, start: EnvStart) -> dict[str, str]:
    tools = [[tool.name, tool.description, json.dumps(dict(tool.parameters), default=str)] for tool in start.tools]
    texts = {
        "the prompt": "\n".join(message.content for message in start.messages),
        "the tools' schemas": "\n".join(text for tool in tools for text in tool),
        "the sample's id": sample.id,
    }
    return {place: _normal(text) for place, text in texts.items()}


def _normal(text: str) -> str:
    """As SQuAD does, but that words which punctuation joins stay apart."""
    return normalize("".join(letter if letter.isalnum() or letter == "'" else " " for letter in text))


def _in_place(place: str, read: Sequence[_Read]) -> Evidence:
    own = [(each, between) for each in read if (between := _find(each.places[place], each.answers))]
    if not own:
        return seen(f"{place}: none of {len(read)} answers stands there")
    text = f"{place}: the answer stands there in {of(len(own), len(read), 'sample')}"
    others = _share_of_others(place, read)
    if 2 * others >= len(own) / len(read):
        return seen(f"{text}, and so do {others:.0%} of the other samples' answers")
    for side, name in ((0, "behind"), (1, "before")):
        words, count = Counter(between[side] for _, between in own).most_common(1)[0]
        if count >= _SAME * len(own) and (count > _FEW or len(own) == len(read)):
            first = own[0][0]
            return wrong(
                f"{text}, {count} times {name} the same words ({words!r}); other samples' answers stand there in "
                f"{others:.0%}. Sample '{first.sample.id}', answer {first.answers[0][:60]!r}: take it out."
            )
    return seen(f"{text}, but nowhere in particular, as in a text to be read")


def _share_of_others(place: str, read: Sequence[_Read]) -> float:
    pairs = [
        bool(_find(each.places[place], other.answers))
        for each in read
        for other in read
        if not set(other.answers) & set(each.answers)
    ]
    return sum(pairs) / len(pairs) if pairs else 1.0


def _find(text: str, answers: Sequence[str]) -> tuple[str, str] | None:
    """The two words before and the two after the first answer that stands in the text."""
    padded = f" {text} "
    for answer in answers:
        at = padded.find(f" {answer} ")
        if at >= 0:
            before, after = padded[:at].split(), padded[at + len(answer) + 1 :].split()
            return " ".join(before[-2:]) or "the beginning", " ".join(after[:2]) or "the end"
    return None


def _tells(answer: str) -> bool:
    return len(answer) >= _SHORT and answer not in _COMMON


def _answers(sample: Sample) -> tuple[str, ...]:
    try:
        return accepted_answers(sample)
    except VerifierError:
        return ()
