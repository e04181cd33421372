"""The answer does not stand where the model may read it without work."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
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
_SAME = 0.75  # share of the answers found that stand between the same words
_FEW = 2  # answers found by which nothing is shown
_UNSPACED = re.compile(  # letters of scripts without spaces between words, or, as Korean, with endings joined to them
    "[\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff"  # Thai, Lao, Burmese, Hangul, Khmer
    "\u3005-\u3007\u3040-\u31ff\u3400-\u9fff\uac00-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff]"  # CJK
)


@dataclass(frozen=True, slots=True)
class _Read:
    """A sample's accepted answers and what stands in one place, as normalised words."""

    sample: Sample
    answers: tuple[str, ...]
    text: str


def check(subject: Subject) -> Iterator[Evidence]:
    """Looks for accepted answers in the opening messages, the tools' schemas and descriptions, and the sample's id.

    Compared as SQuAD does, at word borders; letter by letter in Chinese, Thai and others that write none. An answer
    may stand there among options, in a passage to be read, or by chance. It leaks where it can be told from the rest:
    where other samples' answers stand there less than half as often, and at least three quarters of those found
    stand between the same words.
    """
    samples = [sample for split in ("train", "eval") for sample in subject.bench.samples(split, _SAMPLES)]
    starts = [subject.bench.run(subject.bench.opening(each), subject.deadline_s, "starting") for each in samples]
    yield from _undescribed(starts)
    if not any(map(_telling, samples)):
        raise DoesNotApply("no answer can be looked for: the samples have none in words or numbers")
    texts = [_places(sample, start) for sample, start in zip(samples, starts, strict=True)]
    for place in texts[0]:
        yield leaks(place, [(sample, text[place]) for sample, text in zip(samples, texts, strict=True)])


def leaks(place: str, texts: Sequence[tuple[Sample, str]]) -> Evidence:
    """Whether answers can be told from the text that stands in a place, by the rule of `check`.

    Args:
        texts: some of the samples, each with its text.
    """
    read = [_Read(sample, answers, _normal(text)) for sample, text in texts if (answers := _telling(sample))]
    own = [(each, between) for each in read if (between := _find(each.text, each.answers))]
    if not own:
        return seen(f"{place}: none of {len(read)} answers stands there")
    text = f"{place}: the answer stands there in {of(len(own), len(read), 'sample')}"
    others = _share_of_others(read)
    if 2 * others >= len(own) / len(read):
        return seen(f"{text}, and so do {others:.0%} of the other samples' answers")
    for side, name in ((0, "behind"), (1, "before")):
        words, count = Counter(between[side] for _, between in own).most_common(1)[0]
        if count >= _SAME * len(own) and (count > _FEW or len(own) == len(read)):
            first = own[0][0]
            return wrong(
                f"{text}, {count} times {name} the same words ({words!r}); other samples' answers stand there in "
                f"{others:.0%}. Sample '{first.sample.id}', answer {_answers(first.sample)[0][:60]!r}: take it out."
            )
    return seen(f"{text}, but nowhere in particular, as in a text to be read")


def _undescribed(starts: Sequence[EnvStart]) -> Iterator[Evidence]:
    names = dict.fromkeys(tool.name for start in starts for tool in start.tools if not tool.description.strip())
    if names:
        yield seen(
            f"the tools' schemas: nothing says what {', '.join(names)} does, so the model has the name alone to go by; "
            "write it a docstring"
        )


def _places(sample: Sample, start: EnvStart) -> dict[str, str]:
    tools = [[tool.name, tool.description, json.dumps(dict(tool.parameters), default=str)] for tool in start.tools]
    return {
        "the prompt": "\n".join(message.content for message in start.messages),
        "the tools' schemas": "\n".join(text for tool in tools for text in tool),
        "the sample's id": sample.id,
    }


def _normal(text: str) -> str:
    """As SQuAD does, but that words which punctuation joins stay apart, and letters where none stands between words."""
    words = "".join(letter if letter.isalnum() or letter == "'" else " " for letter in text)
    return normalize(_UNSPACED.sub(r" \g<0> ", words))


def _share_of_others(read: Sequence[_Read]) -> float:
    pairs = [
        bool(_find(each.text, other.answers))
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


def _telling(sample: Sample) -> tuple[str, ...]:
    """Its accepted answers, normalised, without those of which nothing is left."""
    return tuple(filter(None, map(_normal, _answers(sample))))


def _answers(sample: Sample) -> tuple[str, ...]:
    try:
        return accepted_answers(sample)
    except VerifierError:
        return ()
