"""Runs the red team. It makes right and wrong answers from the oracle's, plays them in the task and scores them."""

from __future__ import annotations

import random
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest

from rlfactory_core import ToolContext
from rlfactory_core.errors import UsageError
from rlfactory_core.protocols import ToolManager
from rlfactory_core.reporting.progress import Progress
from rlfactory_core.runner import Policy, TaskBench, oracle
from rlfactory_core.types import Message, Sample, ToolCall, ToolResult, ToolSpec, Trajectory
from rlfactory_devkit.redteam.frame import Frame, turn_text
from rlfactory_devkit.redteam.mutation import Case, Material, Mutation
from rlfactory_devkit.redteam.mutations import MOST_STEPS, MUTATIONS, all_injections
from rlfactory_devkit.redteam.result import Attempt, RedTeamResult
from rlfactory_devkit.rewards import components, known_answers, masking_fault

SAMPLES = 12
MADE_UP = ("zyxwv qjutsr", "9876543210123", "mumble grumble")  # wrong answers for tasks with few samples
_WRONG = 40  # most answers of other samples that are tried on one
_INJECTIONS = 4  # least injections that are tried on one sample
_DEADLINE_S = 600.0  # of one case on all samples; a scorer's own deadlines are shorter
_SHOWN = 240  # characters of an answer
_CLOSE = 1e-9


def run_redteam(
    bench: TaskBench,
    *,
    samples: int = SAMPLES,
    seed: int = 0,
    skip: Collection[str] = (),
    progress: Progress | None = None,
) -> RedTeamResult:
    """Try the mutations on the reward of an open task.

    An answer counts as accepted if its reward reaches the midpoint between silence and the oracle on the same sample,
    both after the oracle's turns that come first. If the oracle gets no more than silence does, the answer has to reach
    the oracle's reward.

    Args:
        samples: how many of the training data are used.
        seed: for the choice of wrong answers.
        skip: names of mutations that are left out.

    Raises:
        UsageError: there is no such mutation, or the task has no solution with an answer that can be changed.
    """
    started, progress = time.perf_counter(), progress or Progress()
    names = [each.name for each in MUTATIONS]
    for name in skip:
        if name not in names:
            raise UsageError(f"There is no mutation '{name}' to skip. There are: {', '.join(names)}")
    mutations = tuple(each for each in MUTATIONS if each.name not in skip)
    if not bench.task.has_solution:
        raise UsageError(
            "The red team changes a right solution, and this task has none: its solve() only plays on. Give it one; "
            f"`rlfactory plugins info {bench.plugin}` shows the task's options."
        )
    known, left_out = _known(bench, bench.samples("train", samples))
    materials = _with_wrong_answers(bench, known, seed)
    if not materials:
        reasons = "; ".join(dict.fromkeys(left_out.values()))
        raise UsageError(
            f"There is no right answer to start from: {reasons}. The red team changes what the oracle says: see "
            f"`rlfactory plugins check {bench.plugin}`, and let the task's solve() give the right answer."
        )
    rounds = [  # the first cases of all samples, then the second ones, and so on; each round is played at once
        (each, {name: case for name, case in zip(materials, row, strict=True) if case is not None})
        for each in mutations
        for row in zip_longest(*(each.cases(material) for material in materials.values()))
    ]
    progress.stage("attack the reward", sum(len(cases) for _, cases in rounds), "answer")
    attempts: list[Attempt] = []
    for mutation, cases in rounds:
        attempts += _play(bench, mutation, cases, materials)
        progress.advance(len(cases))
    return RedTeamResult(
        bench.plugin,
        bench.runtime.success,
        tuple(materials),
        left_out,
        mutations,
        tuple(attempts),
        time.perf_counter() - started,
    )


def _known(bench: TaskBench, rows: Sequence[Sample]) -> tuple[dict[str, Material], dict[str, str]]:
    """What is known of each sample, without wrong answers yet, by sample id; and why samples are left out."""
    solved = bench.play(oracle(bench.task), rows, deadline_s=_DEADLINE_S)
    silent = _silences(bench, solved)
    known: dict[str, Material] = {}
    left_out: dict[str, str] = {}
    for best in solved:
        name, early = best.sample.id, silent[best.sample.id]
        masked = next((each for each in (best, *early.values()) if each.masked), None)
        accepted = known_answers(best.sample)
        frame = Frame.of_episode(best, accepted)
        if masked is not None:
            left_out[name] = f"the episode is masked by {masking_fault(masked)}"
        elif frame is None or not frame.answer.strip():
            left_out[name] = "the oracle's last message holds no answer"
        elif best.reward <= bench.reward_bounds[0]:
            left_out[name] = f"the oracle gets only {best.reward:g}"
        else:
            truths = dict.fromkeys([frame.answer.strip(), *accepted])
            known[name] = Material(best.sample, frame, best, early, tuple(truths))
    return known, left_out


def _silences(bench: TaskBench, solved: Sequence[Trajectory]) -> dict[str, dict[int, Trajectory]]:
    """By sample id, the episodes that fall silent after some of the oracle's turns; see `Material`."""
    found: dict[str, dict[int, Trajectory]] = {each.sample.id: {} for each in solved}
    for number in range(max((len(each.turns) for each in solved), default=0)):
        played = [each for each in solved if number in {*range(MOST_STEPS + 1), len(each.turns) - 1}]
        scripts: dict[str, list[Message | str]] = {
            each.sample.id: [*(turn.message for turn in each.turns[:number]), ""] for each in played
        }
        for early in bench.play(_speaker(scripts), [each.sample for each in played], deadline_s=_DEADLINE_S):
            found[early.sample.id][number] = early
    return found


def _with_wrong_answers(bench: TaskBench, known: Mapping[str, Material], seed: int) -> dict[str, Material]:
    """The samples with what others give: wrong answers, calls and episodes; and with some of the injections.

    Every injection is used. A sample gets `_INJECTIONS` or more if there are enough.
    """
    own = [traits.injections for traits in bench.runtime.rewards.traits.values()]
    injections = all_injections(*own, bench.task.injections)
    share = min(len(injections), max(_INJECTIONS, -(-len(injections) // max(1, len(known)))))
    pool = list(dict.fromkeys(each.frame.answer.strip() for each in known.values()))
    every = [call for each in known.values() for turn in each.turns for call in turn.tool_calls]
    calls = {f"{each.name}({each.arguments_text})": each for each in every}
    found: dict[str, Material] = {}
    for index, (name, each) in enumerate(known.items()):
        others = random.Random(f"{seed} {name}").sample(pool, len(pool))
        wrong = [text for text in others if each.is_wrong(text)][:_WRONG]
        found[name] = replace(
            each,
            wrong=tuple([*wrong, *MADE_UP] if len(wrong) < len(MADE_UP) else wrong),
            known_calls=tuple(calls.values()),
            other_episodes=tuple(other.turns for other in known.values() if other.frame.answer.strip() in wrong),
            injections=tuple(injections[(index * share + i) % len(injections)] for i in range(share)),
        )
    return found


def _play(
    bench: TaskBench, mutation: Mutation, cases: Mapping[str, Case], materials: Mapping[str, Material]
) -> list[Attempt]:
    """Play one case on each of some samples."""
    scripts = {
        name: (*materials[name].turns[: materials[name].before(case)], *case.turns) for name, case in cases.items()
    }
    texts = {name: case.observed for name, case in cases.items() if case.observed is not None}
    manager = _Echo(bench.runtime.manager, texts) if texts else None
    samples = [materials[name].sample for name in cases]
    played = bench.play(_speaker(scripts), samples, manager=manager, deadline_s=_DEADLINE_S)
    return [_attempt(bench, mutation, cases[each.sample.id], materials[each.sample.id], each) for each in played]


def _speaker(scripts: Mapping[str, Sequence[Message | str]]) -> Policy:
    """A policy that follows the script of its sample. The last line is repeated if the episode goes on."""
    played: dict[str, int] = {}

    def policy(sample: Sample, *_: object) -> Message | str:
        lines, turn = scripts[sample.id], played.get(sample.id, 0)
        played[sample.id] = turn + 1
        return lines[min(turn, len(lines) - 1)]

    return policy


class _Echo:
    """A `ToolManager` whose tools all answer with a fixed text, on the samples that have one."""

    def __init__(self, real: ToolManager, texts: Mapping[str, str]) -> None:
        self._real, self._texts = real, texts

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return self._real.specs

    async def invoke(self, calls: Sequence[ToolCall], context: ToolContext) -> tuple[ToolResult, ...]:
        text = self._texts.get(context.sample.id)
        if text is None:
            return await self._real.invoke(calls, context)
        return tuple(ToolResult(call.id, call.name, text, attempts=0, size_bytes=len(text.encode())) for call in calls)

    async def close(self) -> None:
        """Nothing to release."""


def _attempt(bench: TaskBench, mutation: Mutation, case: Case, material: Material, played: Trajectory) -> Attempt:
    def success(trajectory: Trajectory) -> float:
        return components(trajectory).get(bench.runtime.success, 0.0)

    threshold = material.threshold(case, lambda each: each.reward)
    accepted = played.reward >= threshold - _CLOSE
    known = not played.masked and bench.runtime.success in components(played)
    now, low, high = (_worth(bench, each) for each in (played, material.low(case), material.oracle))
    changes = {name: now[name] - low[name] if accepted else high[name] - now[name] for name in now}
    return Attempt(
        mutation,
        case.variant,
        material.sample.id,
        shortened(" ⏎ ".join(map(_text, case.turns))),
        played.reward,
        threshold,
        None if played.masked else accepted,
        success(played) >= material.threshold(case, success) - _CLOSE if known else None,
        components(played),
        max(changes, key=changes.__getitem__),
    )


def _worth(bench: TaskBench, trajectory: Trajectory) -> dict[str, float]:
    """Each scorer's weighted part of the reward, and the environment's part."""
    found = components(trajectory)
    parts = {name: weight * found.get(name, 0.0) for name, (_, weight) in bench.runtime.scorers.items()}
    return {**parts, "the environment": sum(turn.reward for turn in trajectory.turns)}


def _text(turn: Message | str) -> str:
    if isinstance(turn, str):
        return turn or "(silence)"
    return turn_text(turn)


def shortened(text: str, most: int = _SHOWN) -> str:
    """One line with the text's beginning and end; invisible characters are shown as their code points."""
    shown = text if len(text) <= 2 * most else f"{text[:most]} … {text[-most:]}"
    line = " ".join(shown.split())
    line = "".join(sign if sign.isprintable() else f"\\u{ord(sign):04x}" for sign in line)
    if len(line) > most:
        line = f"{line[: most // 2]} … {line[-most // 2 :]}"
    return f"{line} ({len(text):,} characters)" if len(text) > most else line
