"""The red team at work: right and wrong answers, made out of the oracle's, are played in the task and scored."""

from __future__ import annotations

import random
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from rlfactory_core.errors import UsageError, VerifierError
from rlfactory_core.protocols import ToolManager
from rlfactory_core.reporting.progress import NullProgress, Progress
from rlfactory_core.rewards.scorers import accepted_answers
from rlfactory_core.testing.bench import TaskBench
from rlfactory_core.testing.policies import Policy, constant, oracle
from rlfactory_core.testing.redteam.frame import Frame
from rlfactory_core.testing.redteam.injections import all_injections, dealt
from rlfactory_core.testing.redteam.mutation import Case, Material, Mutation, certainly_wrong
from rlfactory_core.testing.redteam.result import Attempt, RedTeamResult
from rlfactory_core.testing.redteam.right import right_mutations
from rlfactory_core.testing.redteam.wrong import wrong_mutations
from rlfactory_core.tool_context import ToolContext
from rlfactory_core.types import FaultKind, Message, Sample, ToolCall, ToolResult, ToolSpec, Trajectory

SAMPLES = 12
MADE_UP = ("zyxwv qjutsr", "9876543210123", "mumble grumble")  # answers to nothing
_WRONG = 40  # answers of other samples that one is attacked with
_INJECTIONS = 4  # at least, in each sample's wrong answer
_DEADLINE_S = 600.0  # of one case in all samples; a scorer's own deadlines are shorter
_SHOWN = 240  # characters of what was said
_CLOSE = 1e-9


def run_redteam(
    bench: TaskBench,
    *,
    samples: int = SAMPLES,
    seed: int = 0,
    skip: Collection[str] = (),
    progress: Progress | None = None,
) -> RedTeamResult:
    """Attack the reward of an open task.

    Accepted is what gets at least the middle between what saying nothing gets and what the oracle gets, on the same
    sample; where the oracle gets no more than silence, what gets as much as it.

    Args:
        samples: of the training data that are attacked.
        seed: of the choice of wrong answers.
        skip: names of mutations that are left out.

    Raises:
        UsageError: a mutation that there is not, or a task whose oracle has no answer that can be changed.
    """
    started, progress = time.perf_counter(), progress or NullProgress()
    mutations = _chosen(skip)
    rows = bench.samples("train", samples)
    bases, left_out = _bases(bench, rows)
    materials = _materials(bench, bases, seed)
    if not materials:
        reasons = "; ".join(dict.fromkeys(left_out.values()))
        raise UsageError(
            f"There is no right answer to start from: {reasons}. The red team changes what the oracle says: see "
            f"`rlfactory plugins check {bench.plugin}`, and let the task's solve() give the right answer."
        )
    rounds = [(each, cases) for each in mutations for cases in _rounds(each, materials)]
    progress.stage("attack the reward", sum(len(cases) for _, cases in rounds), "answer")
    attempts: list[Attempt] = []
    for mutation, cases in rounds:
        attempts += _play(bench, mutation, cases, bases)
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


@dataclass(frozen=True, slots=True)
class _Base:
    """A sample's own scale: what silence and what the oracle get on it."""

    sample: Sample
    silent: Trajectory
    oracle: Trajectory
    frame: Frame
    accepted: tuple[str, ...]

    @property
    def threshold(self) -> float:
        """From which a reward counts as accepted."""
        return _halfway(self.silent.reward, self.oracle.reward)

    def threshold_of(self, component: str) -> float:
        """The same of one scorer."""
        return _halfway(*(_components(each).get(component, 0.0) for each in (self.silent, self.oracle)))


def _halfway(low: float, high: float) -> float:
    return (low + high) / 2 if high > low else high


def _chosen(skip: Collection[str]) -> tuple[Mutation, ...]:
    known = (*wrong_mutations(), *right_mutations())
    names = [each.name for each in known]
    for name in skip:
        if name not in names:
            raise UsageError(f"There is no mutation '{name}' to skip. There are: {', '.join(names)}")
    return tuple(each for each in known if each.name not in skip)


def _bases(bench: TaskBench, rows: Sequence[Sample]) -> tuple[dict[str, _Base], dict[str, str]]:
    """What is known of each sample, and why nothing is known of the others, by their ids."""
    silent = bench.play(constant(""), rows, deadline_s=_DEADLINE_S)
    solved = bench.play(oracle(bench.task), rows, deadline_s=_DEADLINE_S)
    lowest = bench.reward_bounds[0]
    bases: dict[str, _Base] = {}
    left_out: dict[str, str] = {}
    for sample, quiet, best in zip(rows, silent, solved, strict=True):
        accepted = _accepted(sample)
        frame = Frame.of(best.turns[-1].message, accepted) if best.turns else None
        spoilt = next((fault.message for fault in (*best.faults, *quiet.faults) if _masks(fault.kind)), "")
        if best.masked or quiet.masked:
            left_out[sample.id] = f"a fault has spoilt the oracle's episode ({spoilt})"
        elif frame is None or not frame.answer.strip():
            left_out[sample.id] = "the oracle's last message holds no answer"
        elif best.reward <= lowest:
            left_out[sample.id] = f"the oracle gets only {best.reward:g}"
        else:
            truths = dict.fromkeys([frame.answer.strip(), *accepted])
            bases[sample.id] = _Base(sample, quiet, best, frame, tuple(truths))
    return bases, left_out


def _masks(kind: FaultKind) -> bool:
    return kind in (FaultKind.INFRA, FaultKind.VERIFIER)


def _accepted(sample: Sample) -> tuple[str, ...]:
    try:
        return accepted_answers(sample)
    except VerifierError:
        return ()  # its reward knows better what is right; the oracle's own answer is


def _materials(bench: TaskBench, bases: Mapping[str, _Base], seed: int) -> dict[str, Material]:
    scorers = [scorer for scorer, _ in bench.runtime.scorers.values()]
    hands = dealt(all_injections([*scorers, bench.task]), len(bases), _INJECTIONS)
    pool = list(dict.fromkeys(base.frame.answer.strip() for base in bases.values()))
    found: dict[str, Material] = {}
    for base, injections in zip(bases.values(), hands, strict=True):
        others = random.Random(f"{seed} {base.sample.id}").sample(pool, len(pool))
        wrong = [text for text in others if certainly_wrong(text, base.accepted)][:_WRONG]
        found[base.sample.id] = Material(
            base.sample,
            base.frame,
            base.accepted,
            tuple([*wrong, *MADE_UP] if len(wrong) < len(MADE_UP) else wrong),
            base.oracle.tools,
            base.oracle.num_tool_calls,
            injections,
        )
    return found


def _rounds(mutation: Mutation, materials: Mapping[str, Material]) -> list[dict[str, Case]]:
    """The first cases of all samples, by their ids, then the second ones, …: what is played at once."""
    made = {name: list(mutation.make(material)) for name, material in materials.items()}
    rows = zip_longest(*made.values())
    return [{name: case for name, case in zip(made, row, strict=True) if case is not None} for row in rows]


def _play(bench: TaskBench, mutation: Mutation, cases: Mapping[str, Case], bases: Mapping[str, _Base]) -> list[Attempt]:
    """One case in each of some samples; those with and without tools of their own apart."""
    scripts = {name: _script(case, bases[name].oracle) for name, case in cases.items()}
    echoing = {name: case.observed for name, case in cases.items() if case.observed is not None}
    attempts: list[Attempt] = []
    for manager, names in (
        (None, cases.keys() - echoing.keys()),
        (_Echo(bench.runtime.manager, echoing), set(echoing)),
    ):
        played = [bases[name].sample for name in cases if name in names]
        if played:
            found = bench.play(_speaker(scripts), played, manager=manager, deadline_s=_DEADLINE_S)
            attempts += [
                _attempt(bench, mutation, cases[each.sample.id], bases[each.sample.id], each) for each in found
            ]
    return attempts


def _script(case: Case, solved: Trajectory) -> tuple[Message | str, ...]:
    replayed = [turn.message for turn in solved.turns[:-1]] if case.replays else []
    return (*replayed, *case.said)


def _speaker(scripts: Mapping[str, Sequence[Message | str]]) -> Policy:
    """Says each sample's script, for one episode each; where that goes on, the last line again and again."""
    said: dict[str, int] = {}

    def policy(
        sample: Sample, messages: Sequence[Message], tools: Sequence[ToolSpec], rng: random.Random
    ) -> Message | str:
        lines, turn = scripts[sample.id], said.get(sample.id, 0)
        said[sample.id] = turn + 1
        return lines[min(turn, len(lines) - 1)]

    return policy


class _Echo:
    """A `ToolManager` whose tools all answer what they are told, for each sample another text."""

    def __init__(self, real: ToolManager, texts: Mapping[str, str]) -> None:
        self._real, self._texts = real, texts

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return self._real.specs

    async def invoke(self, calls: Sequence[ToolCall], context: ToolContext) -> tuple[ToolResult, ...]:
        text = self._texts[context.sample.id]
        return tuple(ToolResult(call.id, call.name, text, attempts=0, size_bytes=len(text.encode())) for call in calls)

    async def close(self) -> None:
        """It holds nothing."""


def _attempt(bench: TaskBench, mutation: Mutation, case: Case, base: _Base, played: Trajectory) -> Attempt:
    success = bench.runtime.success
    components = _components(played)
    worth = components.get(success)
    return Attempt(
        mutation,
        case.variant,
        base.sample.id,
        shortened(" ⏎ ".join(map(_text, case.said))),
        played.reward,
        base.threshold,
        None if played.masked else played.reward >= base.threshold - _CLOSE,
        None if played.masked or worth is None else worth >= base.threshold_of(success) - _CLOSE,
        components,
        _due_to(bench, played, base),
    )


def _components(trajectory: Trajectory) -> Mapping[str, float]:
    return trajectory.score.components if trajectory.score else {}


def _due_to(bench: TaskBench, played: Trajectory, base: _Base) -> str:
    """Which scorer moved it most: up from silence where it is accepted, else down from the oracle."""
    low, high = _worth(bench, base.silent), _worth(bench, base.oracle)
    now = _worth(bench, played)
    up = played.reward >= base.threshold - _CLOSE
    moved = {name: now[name] - low[name] if up else high[name] - now[name] for name in now}
    return max(moved, key=lambda name: moved[name])


def _worth(bench: TaskBench, trajectory: Trajectory) -> dict[str, float]:
    """The weighted part of each scorer in the reward, and that of the environment."""
    components = _components(trajectory)
    parts = {name: weight * components.get(name, 0.0) for name, (_, weight) in bench.runtime.scorers.items()}
    return {**parts, "the environment": sum(turn.reward for turn in trajectory.turns)}


def _text(said: Message | str) -> str:
    if isinstance(said, str):
        return said or "(silence)"
    calls = (f"{call.name}({call.arguments_text})" for call in said.tool_calls)
    return " ".join([said.content, *calls]).strip()


def shortened(text: str, most: int = _SHOWN) -> str:
    """In one line, its beginning and its end; invisible signs as their numbers."""
    shown = text if len(text) <= 2 * most else f"{text[:most]} … {text[-most:]}"
    line = " ".join(shown.split())
    line = "".join(sign if sign.isprintable() else f"\\u{ord(sign):04x}" for sign in line)
    if len(line) > most:
        line = f"{line[: most // 2]} … {line[-most // 2 :]}"
    return f"{line} ({len(text):,} characters)" if len(text) > most else line
