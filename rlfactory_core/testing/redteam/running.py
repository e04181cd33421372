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
from rlfactory_core.testing.policies import Policy, constant, oracle
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

    An answer counts as accepted if its reward reaches the midpoint between silence and the oracle on the same sample.
    If the oracle gets no more than silence does, the answer has to reach the oracle's reward.

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
    """The episodes of silence and of the oracle on one sample: the ends of its reward scale."""

    sample: Sample
    silent: Trajectory
    oracle: Trajectory
    frame: Frame
    accepted: tuple[str, ...]

    @property
    def threshold(self) -> float:
        """The reward from which an answer counts as accepted."""
        return _halfway(self.silent.reward, self.oracle.reward)

    def threshold_of(self, component: str) -> float:
        """The threshold for one scorer's value."""
        return _halfway(*(_components(each).get(component, 0.0) for each in (self.silent, self.oracle)))


def _halfway(low: float, high: float) -> float:
    return (low + high) / 2 if high > low else high


def _chosen(skip: Collection[str]) -> tuple[Mutation, ...]:
    known = (*WRONG, *RIGHT)
    names = [each.name for each in known]
    for name in skip:
        if name not in names:
            raise UsageError(f"There is no mutation '{name}' to skip. There are: {', '.join(names)}")
    return tuple(each for each in known if each.name not in skip)


def _bases(bench: TaskBench, rows: Sequence[Sample]) -> tuple[dict[str, _Base], dict[str, str]]:
    """The bases by sample id, and the reasons why samples are left out."""
    silent = bench.play(constant(""), rows, deadline_s=_DEADLINE_S)
    solved = bench.play(oracle(bench.task), rows, deadline_s=_DEADLINE_S)
    lowest = bench.reward_bounds[0]
    bases: dict[str, _Base] = {}
    left_out: dict[str, str] = {}
    for sample, quiet, best in zip(rows, silent, solved, strict=True):
        accepted = known_answers(sample)
        frame = Frame.of(best.turns[-1].message, accepted) if best.turns else None
        if best.masked or quiet.masked:
            left_out[sample.id] = f"the episode is masked by {masking_fault(best) or masking_fault(quiet)}"
        elif frame is None or not frame.answer.strip():
            left_out[sample.id] = "the oracle's last message holds no answer"
        elif best.reward <= lowest:
            left_out[sample.id] = f"the oracle gets only {best.reward:g}"
        else:
            truths = dict.fromkeys([frame.answer.strip(), *accepted])
            bases[sample.id] = _Base(sample, quiet, best, frame, tuple(truths))
    return bases, left_out


def _materials(bench: TaskBench, bases: Mapping[str, _Base], seed: int) -> dict[str, Material]:
    own = [traits.injections for traits in bench.runtime.rewards.traits.values()]
    per_sample = distributed(all_injections(*own, bench.task.injections), len(bases), _INJECTIONS)
    pool = list(dict.fromkeys(base.frame.answer.strip() for base in bases.values()))
    found: dict[str, Material] = {}
    for base, injections in zip(bases.values(), per_sample, strict=True):
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
    """The first cases of all samples, by sample id, then the second ones, and so on. Each round is played at once."""
    made = {name: list(mutation.make(material)) for name, material in materials.items()}
    rows = zip_longest(*made.values())
    return [{name: case for name, case in zip(made, row, strict=True) if case is not None} for row in rows]


def _play(bench: TaskBench, mutation: Mutation, cases: Mapping[str, Case], bases: Mapping[str, _Base]) -> list[Attempt]:
    """Play one case on each of some samples: first those with real tools, then those with fixed observations."""
    replayed = {name: bases[name].oracle.turns[:-1] if case.replays else () for name, case in cases.items()}
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
        base.threshold,
        None if played.masked else played.reward >= base.threshold - _CLOSE,
        None if played.masked or worth is None else worth >= base.threshold_of(success) - _CLOSE,
        components,
        _decisive_scorer(bench, played, base),
    )


def _components(trajectory: Trajectory) -> Mapping[str, float]:
    return trajectory.score.components if trajectory.score else {}


def _decisive_scorer(bench: TaskBench, played: Trajectory, base: _Base) -> str:
    """The scorer that changed the reward most: upwards from silence's if accepted, else downwards from the oracle's."""
    low, high = _worth(bench, base.silent), _worth(bench, base.oracle)
    now = _worth(bench, played)
    up = played.reward >= base.threshold - _CLOSE
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
