"""Nothing that is trained on is measured with."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from rlfactory_core.testing.checks.result import Evidence, seen, wrong
from rlfactory_core.testing.checks.rewards import of
from rlfactory_core.testing.checks.subject import Subject
from rlfactory_core.types import Sample

_DECIDES = 0.5  # share of common questions with a common answer from which on a question decides its answer


def check(subject: Subject) -> Iterator[Evidence]:
    """Ids are unique within a split; no sample of ``eval`` stands in ``train``.

    The same sample is one with the same prompt, answers and metadata; or the same prompt and answers, unless what a
    question means depends on something else: then most questions that stand in both splits have other answers there, or
    there are no answers and train itself asks the same more than once, as a game does.
    """
    train, held_out = subject.rows("train"), subject.rows("eval")
    for split, rows in (("train", train), ("eval", held_out)):
        twice = [name for name, count in Counter(sample.id for sample in rows).items() if count > 1]
        if twice:
            yield wrong(
                f"{split}: {of(len(twice), len(rows), 'id')} stand there more than once, such as '{twice[0]}'. Ids "
                "have to be unique within a split: seeds and sessions come from them."
            )
        else:
            yield seen(f"{split}: {len(rows)} samples with ids of their own")
    if not held_out:
        yield seen("eval: it is empty, so a run measures only what it trains on")
        return
    yield from disjoint(train, held_out)


def disjoint(train: Sequence[Sample], held_out: Sequence[Sample]) -> Iterator[Evidence]:
    """Whether samples of one split stand in the other, by the rule of `check`."""
    whole = {_whole(sample) for sample in train}
    answers: dict[str, set[str]] = defaultdict(set)
    meant: dict[str, set[tuple[str, str, str]]] = defaultdict(set)
    for sample in train:
        answers[_asked(sample)].add(_answer(sample))
        meant[_asked(sample)].add(_whole(sample))
    copied = [sample for sample in held_out if _whole(sample) in whole]
    common = [sample for sample in held_out if _asked(sample) in answers]
    games = {asked for asked, wholes in meant.items() if len(wholes) > 1}
    known = [
        sample
        for sample in common
        if _answer(sample) in answers[_asked(sample)] and (sample.answer is not None or _asked(sample) not in games)
    ]
    decided = bool(common) and len(known) >= _DECIDES * len(common)
    leaked = copied or (known if decided else [])
    if leaked:
        yield wrong(
            f"{of(len(leaked), len(held_out), 'eval sample')} stand in train as well, such as '{leaked[0].id}': "
            f"{_asked(leaked[0])[:120]!r}. Keep them apart, or evaluation measures memory."
        )
    elif common:
        yield seen(
            f"{of(len(common), len(held_out), 'question')} of eval stand in train, {len(known)} with the same answer: "
            "they mean something else there"
        )
    else:
        yield seen(f"none of {len(held_out)} eval samples stands in train")


def _asked(sample: Sample) -> str:
    return "\n".join(f"{each.role}: {' '.join(each.content.split())}" for each in sample.messages).lower()


def _answer(sample: Sample) -> str:
    answer = sample.answer
    return repr(sorted(map(repr, answer)) if isinstance(answer, (set, frozenset)) else answer)


def _whole(sample: Sample) -> tuple[str, str, str]:
    return (
        _asked(sample),
        _answer(sample),
        repr(sorted((repr(key), repr(value)) for key, value in sample.metadata.items())),
    )
