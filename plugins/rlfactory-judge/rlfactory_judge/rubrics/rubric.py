"""A rubric: a template of questions to the judge about a trajectory, several trajectories, or a text."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlfactory_core.errors import ConfigError, nearest
from rlfactory_core.tools import to_text
from rlfactory_core.types import Message, Sample, StopReason, Trajectory, Turn
from rlfactory_judge.contract import Form, Question
from rlfactory_judge.options import SINGLE, Mode
from rlfactory_judge.rubrics.quoting import MAX_QUOTED, NOTICE, quoted
from rlfactory_judge.rubrics.rendering import BLOCKS, compile_template, render_block, uses
from rlfactory_judge.rubrics.transcript import (
    MAX_TRANSCRIPT,
    final_answer,
    sample_view,
    transcript,
    turn_views,
)

if TYPE_CHECKING:
    from jinja2 import Template

BUILT_IN: Mapping[str, tuple[Mode, ...]] = {
    "correctness": ("outcome",),
    "helpfulness": ("outcome",),
    "steps": ("process",),
    "comparison": ("ranking", "pairwise"),
}


_OF_ONE = ("sample", "truth", "answer", "transcript", "turns", "form", "quoting")
_OF_MANY = ("sample", "truth", "candidates", "form", "quoting")


def default_rubric(mode: Mode) -> str:
    """A mode's default rubric: the first built-in one for it."""
    return next(name for name, modes in BUILT_IN.items() if mode in modes)


class _Anything(dict[str, Any]):
    """Metadata with every key, for the test rendering without a sample."""

    def __missing__(self, key: str) -> _Anything:
        return _Anything()


@dataclass(frozen=True, slots=True)
class Rubric:
    """A checked template. `load` makes one."""

    name: str  # the built-in's name, or the file
    mode: Mode
    fingerprint: str  # a hash of the template and the quotation, which identifies what a calibration measured
    _template: Template
    _quotes: bool  # the template itself explains quotations

    @classmethod
    def load(cls, name_or_path: str, mode: Mode) -> Rubric:
        """Load a built-in rubric by name, or a Jinja file. It is rendered once with an example, to find errors early.

        Raises:
            ConfigError: the name is unknown or for another mode, the file cannot be read, or the template is wrong.
        """
        source = _source(name_or_path, mode)
        template = compile_template(source, name_or_path, _OF_ONE if mode in SINGLE else _OF_MANY)
        digest = hashlib.sha256("\0".join((source, NOTICE)).encode()).hexdigest()[:16]
        rubric = cls(name_or_path, mode, digest, template, uses(source, "quoting"))
        example = _example("What is 6 times 7?", "42", ("42",))
        shared = _shared(example.sample)
        shared["sample"]["metadata"] = _Anything()
        try:
            rubric._rendered(
                {**shared, **rubric._attempts([example] if mode in SINGLE else [example] * 2)}, "A number."
            )
        except ConfigError as error:  # metadata without real values makes some expressions fail
            if not (isinstance(error.__cause__, (TypeError, ValueError)) and "metadata" in source):
                raise
        return rubric

    def question(self, trajectory: Trajectory, form: Form) -> Question:
        """The question about one trajectory (modes outcome and process).

        Raises:
            ConfigError: as `rendering.render_block`; likewise for the other questions.
        """
        return self._asked([trajectory], form)

    def question_of_many(self, trajectories: Sequence[Trajectory], form: Form) -> Question:
        """The question about several attempts at one sample, numbered from 1 in the given order (the other modes)."""
        return self._asked(trajectories, form)

    def question_of_text(self, *, prompt: str, answer: str, truth: Sequence[str], form: Form) -> Question:
        """The question about an answer without a trajectory, taken as the text of a single turn."""
        return self._asked([_example(prompt, answer, tuple(truth))], form, answer=quoted(answer))

    def _asked(self, trajectories: Sequence[Trajectory], form: Form, **more: str) -> Question:
        data = {**_shared(trajectories[0].sample), **self._attempts(trajectories), **more}
        return Question(*self._rendered(data, form.instruction), form)

    def _attempts(self, trajectories: Sequence[Trajectory]) -> dict[str, Any]:
        views = [_view(one, MAX_TRANSCRIPT // len(trajectories)) for one in trajectories]
        if self.mode in SINGLE:
            return views[0]
        return {"candidates": [{"number": number, **view} for number, view in enumerate(views, 1)]}

    def _rendered(self, data: Mapping[str, Any], instruction: str) -> tuple[str, str]:
        seen = {**data, "form": {"instruction": instruction}, "quoting": NOTICE}
        system, user = (render_block(self._template, block, seen) for block in BLOCKS)
        return (system if self._quotes else f"{system}\n\n{NOTICE}".strip()), user


def _view(trajectory: Trajectory, budget: int) -> dict[str, Any]:
    """One attempt as data; ``budget`` limits the characters of its transcript and of its answer."""
    views = turn_views(trajectory.turns, budget)
    answer = quoted(final_answer(trajectory), min(MAX_QUOTED, budget))
    return {"answer": answer, "transcript": transcript(views), "turns": views}


def _shared(sample: Sample) -> dict[str, Any]:
    return {"sample": sample_view(sample), "truth": [quoted(text) for text in _truth(sample.answer)]}


def _truth(answer: object) -> tuple[str, ...]:
    """The accepted answers as texts; empty if the sample has no ground truth."""
    if answer is None:
        return ()
    if isinstance(answer, Iterable) and not isinstance(answer, (str, bytes, Mapping)):
        return tuple(to_text(item) for item in answer)
    return (to_text(answer),)


def _example(prompt: str, answer: str, truth: tuple[str, ...]) -> Trajectory:
    sample = Sample("text", prompt, truth)
    return Trajectory(sample, 0, (Turn((), (), (), Message("assistant", answer)),), StopReason.FINAL_ANSWER)


def _source(name_or_path: str, mode: Mode) -> str:
    if name_or_path in BUILT_IN:
        if mode not in BUILT_IN[name_or_path]:
            fitting = " or ".join(name for name, modes in BUILT_IN.items() if mode in modes)
            raise ConfigError(
                f"The rubric {name_or_path} is for mode {' or '.join(BUILT_IN[name_or_path])}, and the mode is {mode}. "
                f"Set rubric: {fitting}, or give a Jinja file of your own."
            )
        place = resources.files("rlfactory_judge.rubrics") / "templates" / f"{name_or_path}.jinja"
        return place.read_text(encoding="utf-8")
    path = Path(name_or_path).expanduser()
    if not path.is_file():
        if path.suffix or len(path.parts) > 1:
            known = ", ".join(BUILT_IN)
            raise ConfigError(f"The rubric {name_or_path} is not a file. Give a Jinja file's path, or one of {known}.")
        raise ConfigError(
            f"There is no rubric {name_or_path!r}. {nearest(name_or_path, BUILT_IN)} Or give a Jinja file."
        )
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"The rubric {name_or_path} cannot be read as UTF-8 text: {error}.") from error
