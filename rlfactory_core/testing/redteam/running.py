"""Runs the red team. It makes right and wrong answers from the oracle's, plays them in the task and scores them."""

from __future__ import annotations

import random
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from rlfactory_core.context import ToolContext
from rlfactory_core.errors import UsageError
from rlfactory_core.protocols import ToolManager
from rlfactory_core.reporting.progress import NullProgress, Progress
from rlfactory_core.testing.bench import TaskBench
from rlfactory_core.testing.policies import Policy, oracle
from rlfactory_core.testing.redteam.episodes import EPISODES, STEPS
from rlfactory_core.testing.redteam.frame import Frame
from rlfactory_core.testing.redteam.mutation import Case, Material, Mutation, certainly_wrong
from rlfactory_core.testing.redteam.result import Attempt, RedTeamResult
from rlfactory_core.testing.redteam.right import RIGHT
from rlfactory_core.testing.redteam.wrong import WRONG, all_injections, distributed
from rlfactory_core.testing.rewards import known_answers, masking_fault
from rlfactory_core.types import Message, Sample, ToolCall, ToolResult, ToolSpec, Trajectory

SAMPLES = 12
MADE_UP = ("zyxwv qjutsr", "9876543210123", "mumble grumble")  # wrong answers for tasks with few samples
_WRONG = 40  # most answers of other samples that are tried on one
_INJECTIONS = 4  # least injections that are tried on one sample
_DEADLINE_S = 600.0  # of one case on all samples; a scorer's own deadlines are shorter
_SHOWN = 240  # characters of an answer
_CLOSE, _MORE = 1e-9, 1e-6


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
        UsageError: there is no such mutation, or the task's oracle has no answer that can be changed.
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
    rounds = [(each, cases) for each in mutations for cases in _rounds(each, materials, bases)]
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
    """The oracle's episode on one sample, and those that fall silent early: the ends of its reward scale."""

    sample: Sample
    silent: Mapping[int, Trajectory]  # falls silent after so many turns of the oracle
    oracle: Trajectory
    frame: Frame
    accepted: tuple[str, ...]

    def low(self, case: Case) -> Trajectory:
        """Silence after the oracle's turns that a case is credited with."""
        return self.silent[self.turns_before(case) if case.credited is None else case.credited]

    def turns_before(self, case: Case) -> int:
        """How many of the oracle's turns come first."""
        return len(self.oracle.turns) - 1 if case.after is None else case.after

    @property
    def answers(self) -> bool:
        """Whether the last turn matters: the sample has an answer, or the reward depends on this turn."""
        return bool(known_answers(self.sample)) or self.silent[len(self.oracle.turns) - 1].reward < self.oracle.reward

    def threshold(self, case: Case) -> float:
        """The reward from which a case counts as accepted."""
        return _threshold(case, self.low(case).reward, self.oracle.reward)

    def threshold_of(self, component: str, case: Case) -> float:
        """The threshold for one scorer's value."""
        low, high = (_components(each).get(component, 0.0) for each in (self.low(case), self.oracle))
        return _threshold(case, low, high)


def _threshold(case: Case, low: float, high: float) -> float:
    if high > low:
        return (low + high) / 2
    return low + _MORE if case.adds else high


def _chosen(skip: Collection[str]) -> tuple[Mutation, ...]:
    known = (*WRONG, *EPISODES, *RIGHT)
    names = [each.name for each in known]
    for name in skip:
        if name not in names:
            raise UsageError(f"There is no mutation '{name}' to skip. There are: {', '.join(names)}")
    return tuple(each for each in known if each.name not in skip)


def _bases(bench: TaskBench, rows: Sequence[Sample]) -> tuple[dict[str, _Base], dict[str, str]]:
    """The bases by sample id, and the reasons why samples are left out."""
    solved = bench.play(oracle(bench.task), rows, deadline_s=_DEADLINE_S)
    silent = _silences(bench, solved)
    lowest = bench.reward_bounds[0]
    bases: dict[str, _Base] = {}
    left_out: dict[str, str] = {}
    for sample, best in zip(rows, solved, strict=True):
        early = silent[sample.id]
        masked = next((each for each in (best, *early.values()) if each.masked), None)
        accepted = known_answers(sample)
        frame = Frame.of(best.turns[-1].message, accepted) if best.turns else None
        if masked is not None:
            left_out[sample.id] = f"the episode is masked by {masking_fault(masked)}"
        elif frame is None or not frame.answer.strip():
            left_out[sample.id] = "the oracle's last message holds no answer"
        elif best.reward <= lowest:
            left_out[sample.id] = f"the oracle gets only {best.reward:g}"
        else:
            truths = dict.fromkeys([frame.answer.strip(), *accepted])
            bases[sample.id] = _Base(sample, early, best, frame, tuple(truths))
    return bases, left_out


def _silences(bench: TaskBench, solved: Sequence[Trajectory]) -> dict[str, dict[int, Trajectory]]:
    """By sample id, the episodes that fall silent after some of the oracle's turns; see `_Base`."""
    found: dict[str, dict[int, Trajectory]] = {each.sample.id: {} for each in solved}
    for number in range(max((len(each.turns) for each in solved), default=0)):
        played = [each for each in solved if number in {*range(STEPS + 1), len(each.turns) - 1}]
        scripts: dict[str, list[Message | str]] = {
            each.sample.id: [*(turn.message for turn in each.turns[:number]), ""] for each in played
        }
        for early in bench.play(_speaker(scripts), [each.sample for each in played], deadline_s=_DEADLINE_S):
            found[early.sample.id][number] = early
    return found


def _materials(bench: TaskBench, bases: Mapping[str, _Base], seed: int) -> dict[str, Material]:
    own = [traits.injections for traits in bench.runtime.rewards.traits.values()]
    per_sample = distributed(all_injections(*own, bench.task.injections), len(bases), _INJECTIONS)
    pool = list(dict.fromkeys(base.frame.answer.strip() for base in bases.values()))
    turns = {name: tuple(turn.message for turn in base.oracle.turns) for name, base in bases.items()}
    calls = {
        f"{each.name}({each.arguments_text})": each
        for said in turns.values()
        for turn in said
        for each in turn.tool_calls
    }
    found: dict[str, Material] = {}
    for base, injections in zip(bases.values(), per_sample, strict=True):
        others = random.Random(f"{seed} {base.sample.id}").sample(pool, len(pool))
        wrong = [text for text in others if certainly_wrong(text, base.accepted)][:_WRONG]
        found[base.sample.id] = Material(
            base.sample,
            base.frame,
            turns[base.sample.id],
            base.accepted,
            tuple([*wrong, *MADE_UP] if len(wrong) < len(MADE_UP) else wrong),
            base.oracle.tools,
            tuple(calls.values()),
            tuple(turns[other.sample.id] for other in bases.values() if other.frame.answer.strip() in wrong),
            bool(known_answers(base.sample)),
            injections,
        )
    return found


def _rounds(mutation: Mutation, materials: Mapping[str, Material], bases: Mapping[str, _Base]) -> list[dict[str, Case]]:
    """The first cases of all samples, by sample id, then the second ones, and so on. Each round is played at once.

    A last turn on which nothing depends is not changed.
    """
    made = {
        name: [case for case in mutation.make(material) if case.after is not None or bases[name].answers]
        for name, material in materials.items()
    }
    rows = zip_longest(*made.values())
    return [{name: case for name, case in zip(made, row, strict=True) if case is not None} for row in rows]


def _play(bench: TaskBench, mutation: Mutation, cases: Mapping[str, Case], bases: Mapping[str, _Base]) -> list[Attempt]:
    """Play one case on each of some samples: first those with real tools, then those with fixed observations."""
    replayed = {name: bases[name].oracle.turns[: bases[name].turns_before(case)] for name, case in cases.items()}
    scripts = {name: (*(turn.message for turn in replayed[name]), *case.said) for name, case in cases.items()}
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


def _speaker(scripts: Mapping[str, Sequence[Message | str]]) -> Policy:
    """A policy that says the script of its sample. The last line is repeated if the episode goes on."""
    said: dict[str, int] = {}

    def policy(sample: Sample, *_: object) -> Message | str:
        lines, turn = scripts[sample.id], said.get(sample.id, 0)
        said[sample.id] = turn + 1
        return lines[min(turn, len(lines) - 1)]

    return policy


class _Echo:
    """A `ToolManager` whose tools all answer with a fixed text for each sample."""

    def __init__(self, real: ToolManager, texts: Mapping[str, str]) -> None:
        self._real, self._texts = real, texts

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return self._real.specs

    async def invoke(self, calls: Sequence[ToolCall], context: ToolContext) -> tuple[ToolResult, ...]:
        text = self._texts[context.sample.id]
        return tuple(ToolResult(call.id, call.name, text, attempts=0, size_bytes=len(text.encode())) for call in calls)

    async def close(self) -> None:
        """Nothing to release."""


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
        base.threshold(case),
        None if played.masked else played.reward >= base.threshold(case) - _CLOSE,
        None if played.masked or worth is None else worth >= base.threshold_of(success, case) - _CLOSE,
        components,
        _decisive_scorer(bench, played, base, case),
    )


def _components(trajectory: Trajectory) -> Mapping[str, float]:
    return trajectory.score.components if trajectory.score else {}


def _decisive_scorer(bench: TaskBench, played: Trajectory, base: _Base, case: Case) -> str:
    """The scorer that changed the reward most: upwards from silence's if accepted, else downwards from the oracle's."""
    low, high = _worth(bench, base.low(case)), _worth(bench, base.oracle)
    now = _worth(bench, played)
    up = played.reward >= base.threshold(case) - _CLOSE
    moved = {name: now[name] - low[name] if up else high[name] - now[name] for name in now}
    return max(moved, key=lambda name: moved[name])


def _worth(bench: TaskBench, trajectory: Trajectory) -> dict[str, float]:
    """Each scorer's weighted part of the reward, and the environment's part."""
    components = _components(trajectory)
    parts = {name: weight * components.get(name, 0.0) for name, (_, weight) in bench.runtime.scorers.items()}
    return {**parts, "the environment": sum(turn.reward for turn in trajectory.turns)}


def _text(said: Message | str) -> str:
    if isinstance(said, str):
        return said or "(silence)"
    calls = (f"{call.name}({call.arguments_text})" for call in said.tool_calls)
    return " ".join([said.content, *calls]).strip()


def shortened(text: str, most: int = _SHOWN) -> str:
    """One line with the text's beginning and end; invisible characters are shown as their code points."""
    shown = text if len(text) <= 2 * most else f"{text[:most]} … {text[-most:]}"
    line = " ".join(shown.split())
    line = "".join(sign if sign.isprintable() else f"\\u{ord(sign):04x}" for sign in line)
    if len(line) > most:
        line = f"{line[: most // 2]} … {line[-most // 2 :]}"
    return f"{line} ({len(text):,} characters)" if len(text) > most else line
