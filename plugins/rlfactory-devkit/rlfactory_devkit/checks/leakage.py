"""The answer cannot be read from the prompt, the tools or the sample's id."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from rlfactory_core.protocols import EnvStart
from rlfactory_core.rewards import normalize
from rlfactory_core.tools import undescribed
from rlfactory_core.types import Sample
from rlfactory_devkit.checks.context import CheckContext
from rlfactory_devkit.checks.result import DoesNotApply, Evidence, seen, wrong
from rlfactory_devkit.rewards import known_answers, of

_SAMPLES = 64  # of each split
_SAME = 0.75  # share of the found answers with the same words beside them
_FEW = 2  # so few found answers prove nothing
_UNSPACED = re.compile(  # letters of scripts without spaces between words, or, as Korean, with endings joined to them
    "[\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff"  # Thai, Lao, Burmese, Hangul, Khmer
    "\u3005-\u3007\u3040-\u31ff\u3400-\u9fff\uac00-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff]"  # CJK
)


def check(context: CheckContext) -> Iterator[Evidence]:
    """Looks for accepted answers in the opening messages, the tools' schemas and descriptions, and the sample's id.

    Texts are normalised as SQuAD does and compared at word boundaries, or letter by letter in scripts without them,
    such as Chinese and Thai. An answer may also be there as one of several options, in a passage to be read, or by
    chance. It counts as a leak if other samples' answers are there less than half as often, and at least three
    quarters of the answers that are found have the same words before or after them.
    """
    samples = [sample for split in ("train", "eval") for sample in context.bench.samples(split, _SAMPLES)]
    starts = [
        context.bench.run(context.bench.opening(each), context.options.deadline_s, "starting") for each in samples
    ]
    for name, tool in {tool.name: tool for start in starts for tool in start.tools}.items():
        if missing := undescribed(tool):
            yield seen(f"the tools' schemas: the model is not told of {name} {', nor '.join(missing)}")
    if not any(map(_comparable_answers, samples)):
        raise DoesNotApply("no answer can be looked for: the samples have none in words or numbers")
    texts = [_places(sample, start) for sample, start in zip(samples, starts, strict=True)]
    for place in texts[0]:
        yield leaks(place, [(sample, text[place]) for sample, text in zip(samples, texts, strict=True)])


def leaks(place: str, texts: Sequence[tuple[Sample, str]]) -> Evidence:
    """Whether the text of a place gives the answers away, by the rule of `check`.

    Args:
        texts: some of the samples, each with its text.
    """
    read = [(sample, answers, _normal(text)) for sample, text in texts if (answers := _comparable_answers(sample))]
    own = [(sample, between) for sample, answers, text in read if (between := _find(text, answers))]
    if not own:
        return seen(f"{place}: none of {len(read)} answers is there")
    text = f"{place}: the answer is there in {of(len(own), len(read), 'sample')}"
    pairs = [
        bool(_find(here, answers)) for _, known, here in read for _, answers, _ in read if not set(answers) & set(known)
    ]
    others = sum(pairs) / len(pairs) if pairs else 1.0
    if 2 * others >= len(own) / len(read):
        return seen(f"{text}, and so do {others:.0%} of the other samples' answers")
    for side, name in ((0, "behind"), (1, "before")):
        words, count = Counter(between[side] for _, between in own).most_common(1)[0]
        if count >= _SAME * len(own) and (count > _FEW or len(own) == len(read)):
            first = own[0][0]
            return wrong(
                f"{text}, {count} times {name} the same words ({words!r}); other samples' answers are there in "
                f"{others:.0%}. Sample '{first.id}', answer {known_answers(first)[0][:60]!r}: take it out."
            )
    return seen(f"{text}, but in different places, as in a text to be read")


def _places(sample: Sample, start: EnvStart) -> dict[str, str]:
    tools = [[tool.name, tool.description, json.dumps(dict(tool.parameters), default=str)] for tool in start.tools]
    return {
        "the prompt": "\n".join(message.content for message in start.messages),
        "the tools' schemas": "\n".join(text for tool in tools for text in tool),
        "the sample's id": sample.id,
    }


def _normal(text: str) -> str:
    """SQuAD's normalisation, except that punctuation separates words, and so does each letter of an unspaced script."""
    words = "".join(letter if letter.isalnum() or letter == "'" else " " for letter in text)
    return normalize(_UNSPACED.sub(r" \g<0> ", words))


def _find(text: str, answers: Sequence[str]) -> tuple[str, str] | None:
    """The two words before and the two words after the first answer found in the text."""
    padded = f" {text} "
    for answer in answers:
        at = padded.find(f" {answer} ")
        if at >= 0:
            before, after = padded[:at].split(), padded[at + len(answer) + 1 :].split()
            return " ".join(before[-2:]) or "the beginning", " ".join(after[:2]) or "the end"
    return None


def _comparable_answers(sample: Sample) -> tuple[str, ...]:
    """The accepted answers, normalised, without those that become empty."""
    return tuple(filter(None, map(_normal, known_answers(sample))))
