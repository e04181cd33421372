"""Evaluation does not use samples that are trained on."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from rlfactory_core.tasks import is_demonstrated
from rlfactory_core.types import Sample
from rlfactory_devkit.checks.context import CheckContext
from rlfactory_devkit.checks.result import Evidence, judged, seen, wrong
from rlfactory_devkit.rewards import of

_DECIDES = 0.5  # if this share of the common questions also have a common answer, a question determines its answer
_WORD = re.compile(r"[^\W\d_]{2,}")
_SHOWN = 5


def check(context: CheckContext) -> Iterator[Evidence]:
    """Ids are unique within a split, and no sample of ``eval`` is also in ``train``.

    Two samples are the same if prompt, answers and metadata agree. Agreement of prompt and answers is enough unless
    the meaning of a question depends on something else. That is so if most questions in both splits have different
    answers, or if there are no answers and train itself repeats its prompts, as in a game.
    """
    train, held_out = context.rows("train"), context.rows("eval")
    for split, rows in (("train", train), ("eval", held_out)):
        twice = [name for name, count in Counter(sample.id for sample in rows).items() if count > 1]
        yield judged(
            f"{split}: {of(len(twice), len(rows), 'id')} occur more than once, such as '{twice[0]}'. Ids have to be "
            "unique within a split, because seeds and sessions are derived from them."
            if twice
            else "",
            f"{split}: {len(rows)} samples with unique ids",
        )
    if not held_out:
        yield seen("eval: the split is empty, so a run evaluates only on what it trains on")
        return
    yield from disjoint(train, held_out)
    new = sorted(_words(held_out) - _words(train))
    if new and is_demonstrated(context.closed_bench().task):
        yield seen(
            f"{len(new)} words of eval never occur in train, such as {', '.join(map(repr, new[:_SHOWN]))}. The task's "
            "tiny model has not learnt to write them, and a held-out result stays low where an answer needs one"
        )


def disjoint(train: Sequence[Sample], held_out: Sequence[Sample]) -> Iterator[Evidence]:
    """Whether samples of one split are also in the other, by the rule of `check`."""
    meant: dict[str, set[tuple[str, str]]] = defaultdict(set)  # answers and metadata by question
    for sample in train:
        meant[_question(sample)].add(_meaning(sample))
    common = [sample for sample in held_out if _question(sample) in meant]
    copied = [sample for sample in common if _meaning(sample) in meant[_question(sample)]]
    known = [
        sample
        for sample in common
        if any(answer == _answer(sample) for answer, _ in meant[_question(sample)])
        and (sample.answer is not None or len(meant[_question(sample)]) == 1)
    ]
    decided = bool(common) and len(known) >= _DECIDES * len(common)
    leaked = copied or (known if decided else [])
    if leaked:
        yield wrong(
            f"{of(len(leaked), len(held_out), 'eval sample')} are also in train, such as '{leaked[0].id}': "
            f"{_question(leaked[0])[:120]!r}. Keep the splits apart, or evaluation measures memory."
        )
    elif common:
        yield seen(
            f"{of(len(common), len(held_out), 'question')} of eval are also in train, {len(known)} with the same "
            "answer, so their meaning depends on more than the prompt"
        )
    else:
        yield seen(f"none of {len(held_out)} eval samples is in train")


def _words(samples: Sequence[Sample]) -> set[str]:
    """The words of the questions and answers, without numbers."""
    return {word for sample in samples for word in _WORD.findall(f"{_question(sample)} {_answer(sample)}".lower())}


def _question(sample: Sample) -> str:
    return "\n".join(f"{each.role}: {' '.join(each.content.split())}" for each in sample.messages).lower()


def _answer(sample: Sample) -> str:
    answer = sample.answer
    return repr(sorted(map(repr, answer)) if isinstance(answer, (set, frozenset)) else answer)


def _meaning(sample: Sample) -> tuple[str, str]:
    """What a question may depend on: the answer and the metadata."""
    return _answer(sample), repr(sorted((repr(key), repr(value)) for key, value in sample.metadata.items()))
