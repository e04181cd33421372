"""Compares the rewards of stored trajectories with those that they get when they are scored anew."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlfactory_core.algo.masking import masked_by
from rlfactory_core.reporting.progress import count_text, number_label, number_text
from rlfactory_core.types import StopReason, Trajectory

NEAR = 1e-9  # a smaller difference is one of rounding
PHASES = 3  # of the training steps
SHOWN = 10  # of the most changed attempts
Mean = float | None
"""Of the attempts that no fault masks; None: there is none."""


@dataclass(frozen=True, slots=True)
class Marks:
    """What an attempt has got from its scorers."""

    reward: float
    scores: Mapping[str, float]  # unweighted, by scorer
    masked: str = ""  # the source of the fault that masks it

    @classmethod
    def of(cls, trajectory: Trajectory) -> Marks:
        scores = trajectory.score.components if trajectory.score else {}
        return cls(trajectory.reward, scores, next(iter(masked_by([trajectory])), ""))


@dataclass(frozen=True, slots=True)
class RescoredAttempt:
    """One attempt, as it was scored and as it is scored now."""

    file: int | str  # of its trajectory: a step, or the name of an evaluation's pass
    sample: str
    attempt: int
    stop: StopReason
    before: Marks
    after: Marks

    @classmethod
    def of(cls, file: int | str, before: Trajectory, after: Trajectory) -> RescoredAttempt:
        name, attempt = before.sample.id, before.attempt
        return cls(file, name, attempt, before.stop, Marks.of(before), Marks.of(after))

    @property
    def difference(self) -> float:
        """Of the reward; 0 if a fault masks the attempt before or after."""
        return 0.0 if self.before.masked or self.after.masked else self.after.reward - self.before.reward

    @property
    def scores(self) -> dict[str, tuple[float, float]]:
        """The scores that both have and that differ."""
        before, after = self.before.scores, self.after.scores
        pairs = {name: (before[name], after[name]) for name in before if name in after}
        return {name: pair for name, pair in pairs.items() if abs(pair[1] - pair[0]) > NEAR}

    @property
    def changed(self) -> bool:
        """Whether its reward, a score that both have, or its masking differs; not if it is masked in both."""
        if self.before.masked or self.after.masked:
            return bool(self.before.masked) != bool(self.after.masked)
        return abs(self.difference) > NEAR or bool(self.scores)

    @property
    def where(self) -> str:
        """Such as ``step 12, train-3, attempt 0``."""
        return f"{file_title(self.file)}, {self.sample}, attempt {self.attempt}"

    @property
    def text(self) -> str:
        """What changed."""
        if self.after.masked:
            return f"{self.before.reward:.3f} → masked by {self.after.masked}"
        if self.before.masked:
            return f"masked by {self.before.masked} → {self.after.reward:.3f}"
        scores = ", ".join(f"{number_label(name)} {a:g} → {b:g}" for name, (a, b) in self.scores.items())
        return f"{self.before.reward:.3f} → {self.after.reward:.3f}" + (f": {scores}" if scores else "")

    @property
    def record(self) -> dict[str, Any]:
        """As JSON data; ``null`` stands for the reward of a masked attempt."""
        rewards = {
            when: None if marks.masked else marks.reward
            for when, marks in (("before", self.before), ("after", self.after))
        }
        scores = {name: list(pair) for name, pair in self.scores.items()}
        return {"file": self.file, "sample": self.sample, "attempt": self.attempt, **rewards, "scores": scores}


@dataclass(frozen=True, slots=True)
class RescoredPart:
    """The attempts of an evaluation's pass, or of some steps."""

    name: str
    attempts: int
    changed: int
    higher: int
    lower: int
    masked: tuple[int, int]  # before, after
    reward: tuple[Mean, Mean]
    scores: Mapping[str, tuple[Mean, Mean]]

    @classmethod
    def of(cls, name: str, attempts: Sequence[RescoredAttempt]) -> RescoredPart:
        sides = [[each.before for each in attempts], [each.after for each in attempts]]
        names = dict.fromkeys(name for side in sides for marks in side for name in marks.scores)
        return cls(
            name,
            len(attempts),
            sum(each.changed for each in attempts),
            sum(each.difference > NEAR for each in attempts),
            sum(each.difference < -NEAR for each in attempts),
            _pair(sum(bool(marks.masked) for marks in side) for side in sides),
            _pair(_mean(marks.reward for marks in side if not marks.masked) for side in sides),
            {
                name: _pair(
                    _mean(marks.scores[name] for marks in side if not marks.masked and name in marks.scores)
                    for side in sides
                )
                for name in names
            },
        )


@dataclass(frozen=True, slots=True)
class Comparison:
    """All attempts of a run, an evaluation, or those of them that were chosen."""

    attempts: Sequence[RescoredAttempt]
    data: Sequence[str] = ()  # what is to be said of the samples

    @property
    def whole(self) -> RescoredPart:
        return RescoredPart.of("all", self.attempts)

    @property
    def parts(self) -> list[RescoredPart]:
        """The evaluations before, the steps in up to three phases, the evaluations after, and the controls."""
        steps = sorted({each.file for each in self.attempts if isinstance(each.file, int)})
        size = -(-len(steps) // PHASES) or 1
        phases = {step: steps[at - at % size : at - at % size + size] for at, step in enumerate(steps)}
        by_name: dict[str, list[RescoredAttempt]] = {}
        for each in self.attempts:
            name = steps_text(phases[each.file]) if isinstance(each.file, int) else file_title(each.file)
            by_name.setdefault(name, []).append(each)
        return [RescoredPart.of(name, found) for name, found in by_name.items()]

    @property
    def most_changed(self) -> list[RescoredAttempt]:
        """The changed attempts: those that gained or lost their masking, then by the size of the change."""

        def order(each: RescoredAttempt) -> tuple[bool, float]:
            return bool(each.before.masked) == bool(each.after.masked), -abs(each.difference)

        return sorted((each for each in self.attempts if each.changed), key=order)

    @property
    def notes(self) -> list[str]:
        """What a reader should know: changed data, attempts that a limit cut off, and those that a fault masks."""
        notes = [*self.data]
        if cut := sum(each.stop is StopReason.LENGTH for each in self.attempts):
            notes.append(
                f"{count_text(cut, 'attempt')} ended at a limit of tokens, and {'is' if cut == 1 else 'are'} scored as "
                "far as they go."
            )
        lost = Counter(each.after.masked for each in self.attempts if each.after.masked)
        if lost:
            sources = ", ".join(f"{source} {count:,}" for source, count in lost.most_common())
            count = count_text(lost.total(), "attempt")
            notes.append(f"{count} masked by a fault in no mean: {sources}.")
        return notes

    @property
    def text(self) -> str:
        """The result in one sentence."""
        whole = self.whole
        if not whole.changed:
            return f"All {count_text(whole.attempts, 'attempt')} got the same rewards."
        moved = whole.changed - whole.higher - whole.lower
        parts = [(whole.higher, "higher"), (whole.lower, "lower"), (moved, "with another score or masking")]
        how = ", ".join(f"{count:,} {word}" for count, word in parts if count)
        before, after = (mean_text(mean) for mean in whole.reward)
        return (
            f"{whole.changed:,} of {count_text(whole.attempts, 'attempt')} changed ({how}); the mean reward went from "
            f"{before} to {after}."
        )

    @property
    def record(self) -> dict[str, Any]:
        """As JSON data, for ``summary.json``."""
        return {
            "attempts": len(self.attempts),
            "changed": self.whole.changed,
            "text": self.text,
            "notes": self.notes,
            "parts": [_part_record(part) for part in [*self.parts, self.whole]],
            "most_changed": [each.record for each in self.most_changed[:SHOWN]],
        }


def steps_text(steps: Sequence[int | str]) -> str:
    return f"step {steps[0]}" if len(steps) == 1 else f"steps {steps[0]} to {steps[-1]}"


def file_title(file: int | str) -> str:
    """Such as ``step 12``, ``evaluation before, sampled`` or ``control no_results``."""
    if isinstance(file, int):
        return f"step {file}"
    kind, _, name = file.partition("-")
    return f"{'evaluation' if kind == 'eval' else kind} {re.sub('-sampled$', ', sampled', name)}"


def mean_text(mean: Mean) -> str:
    return "-" if mean is None else number_text(mean)


def change_text(before: Mean, after: Mean) -> str:
    """Such as ``0.120 → 0.180``."""
    return f"{mean_text(before)} → {mean_text(after)}"


def _part_record(part: RescoredPart) -> dict[str, Any]:
    counts = {name: getattr(part, name) for name in ("name", "attempts", "changed", "higher", "lower")}
    scores = {name: list(pair) for name, pair in part.scores.items()}
    return {**counts, "masked": list(part.masked), "reward": list(part.reward), "scores": scores}


def _mean(values: Iterable[float]) -> Mean:
    found = list(values)
    return sum(found) / len(found) if found else None


def _pair(sides: Iterable[Any]) -> tuple[Any, Any]:
    before, after = sides
    return before, after
