"""The reward `math`: the final answer has the value of an accepted one."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, ClassVar

from rlfactory_core.errors import ConfigError, MissingExtraError
from rlfactory_core.rewards.maths.compare import is_parsable, same_text
from rlfactory_core.rewards.maths.finding import final_answer
from rlfactory_core.rewards.maths.processes import Comparers
from rlfactory_core.rewards.scorers import accepted_answers, last_answer
from rlfactory_core.types import Sample, StopReason, Trajectory, Verdict

_log = logging.getLogger(__name__)

_CHECKED = 300  # samples at the start


class Math:
    """Passes if the last ``\\boxed{}``, ``<answer>`` or ``####`` of the model holds an accepted answer.

    Args:
        cpu_s: seconds of CPU time for one comparison; an answer that needs more fails.
        processes: that compare; by default half of the processors, at most 4.

    Raises:
        ConfigError: an option is no whole number from 1 on.
        MissingExtraError: math-verify is not installed.
    """

    deadline_s: ClassVar[float] = 300.0  # if many answers are slow to compare, others wait

    def __init__(self, cpu_s: int = 2, processes: int | None = None) -> None:
        if processes is None:
            processes = max(1, min(4, (os.cpu_count() or 2) // 2))
        for name, value in (("cpu_s", cpu_s), ("processes", processes)):
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ConfigError(f"rewards.math: {name} is {value!r}; expected a whole number from 1 on.")
        if find_spec("math_verify") is None:
            raise MissingExtraError(
                "The reward math needs the package math-verify, which is not installed. Install it: "
                "python -m pip install 'rlfactory-core[math]'"
            )
        self._processes, self._cpu_s = processes, cpu_s
        self._comparers: Comparers | None = None

    def check_samples(self, samples: Sequence[Sample]) -> None:
        """Warn if gold answers cannot be read as mathematics; only equal texts are right then."""
        golds = list(dict.fromkeys(_golds(sample) for sample in samples[:_CHECKED]))
        unread = [each for each in golds if not any(map(is_parsable, each))]
        if unread:
            _log.warning(
                "math: %d of %d different gold answers cannot be read as mathematics, such as %r. Only the same "
                "text is right for them.", len(unread), len(golds), unread[0][0],
            )  # fmt: skip

    async def open(self, task: Any) -> None:
        self._comparers = Comparers(self._processes, self._cpu_s)

    async def close(self) -> None:
        if self._comparers is not None:
            await self._comparers.close()
            self._comparers = None

    async def verify(self, trajectory: Trajectory) -> Verdict:
        golds, answer = _golds(trajectory.sample), found_answer(trajectory)
        if answer is None:
            return Verdict(passed=False, reasons=("no \\boxed{…}, <answer>…</answer> or #### holds an answer",))
        if self._comparers is None:
            raise RuntimeError("The reward is not open: await open() before verify().")
        if any(same_text(gold, answer) for gold in golds):
            return Verdict(passed=True)
        found = await self._comparers.compare(golds, answer)
        if found.same:
            return Verdict(passed=True)
        why = f" ({found.why})" if found.why else ""
        return Verdict(passed=False, reasons=(f"{answer[:200]!r} is not {golds[0][:200]!r}{why}",))


def found_answer(trajectory: Trajectory) -> str | None:
    """The answer that an agent gave, else what the last mark in the model's own words holds; None without one."""
    if trajectory.answer is not None or trajectory.stop is StopReason.AGENT_FAILED:
        given = last_answer(trajectory)
        return given and (final_answer(trajectory.answer or "") or final_answer(given) or given)
    marked = (final_answer(turn.message.content) for turn in reversed(trajectory.turns))
    return next((answer for answer in marked if answer is not None), None)


def _golds(sample: Sample) -> tuple[str, ...]:
    """The accepted answers; of a whole solution, as GSM8K and MATH have it, its final answer."""
    return tuple(final_answer(answer) or answer for answer in accepted_answers(sample))
