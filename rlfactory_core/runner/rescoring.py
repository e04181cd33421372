"""Scores the stored trajectories of a run or an evaluation anew, without sampling, and says what changed."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from rlfactory_core.algo.evaluation import summarise
from rlfactory_core.context import RunContext
from rlfactory_core.errors import RlfactoryError, UsageError
from rlfactory_core.plugins.registry import Registry
from rlfactory_core.reporting.folder import RunFolder
from rlfactory_core.reporting.metrics import group_metrics, tool_metrics
from rlfactory_core.reporting.progress import Progress, count_text
from rlfactory_core.reporting.report import plugin_sections, write_report
from rlfactory_core.reporting.rescored import Comparison, RescoredAttempt
from rlfactory_core.reporting.trajectories import StoredTrajectory, json_text, sample_data
from rlfactory_core.reporting.where import Where
from rlfactory_core.rewards.layer import RewardLayer, unscored
from rlfactory_core.runner.folders import lock_plugins, plugin_changes, removed_if_empty, save_config
from rlfactory_core.runner.resolved import Resolved
from rlfactory_core.runner.resolving import given_keys, read, resolve
from rlfactory_core.tasks.opening import open_tasks
from rlfactory_core.tasks.setup import Tasks, TaskSetup
from rlfactory_core.training.record import run_facts
from rlfactory_core.types import FaultKind, Group, Sample, Trajectory
from rlfactory_core.utils.aio import gather_all

AT_ONCE = 16  # groups; the deadline of a scorer counts from its call, so a longer queue would use it up
RESCORED = "rescored"  # the end of the folder's name, and the key in its summary.json


@dataclass(frozen=True, slots=True)
class Rescoring:
    """What was scored anew.

    Args:
        folder: like a run's, with the trajectories as they are scored now.
        source: the run or evaluation.
    """

    folder: RunFolder
    source: RunFolder
    rewards: Mapping[str, float]  # the weights by name
    comparison: Comparison


def rescore_run(
    name: str,
    overrides: Sequence[str | Mapping[str, Any]],
    progress: Progress,
    *,
    file: Path | None = None,
    judge: str | None = None,
    where: str = "",
    out: Path | None = None,
) -> Rescoring:
    """Score the trajectories of a run or an evaluation with its own configuration, overlaid by what is given.

    Args:
        name: the run's folder, or its name under ``runs/``.
        overrides, file, judge: as for `prepare`.
        where: which attempts, see `Where`; a scorer of groups compares them with the whole group.
        out: the folder to write; None: a new one within the run's.

    Raises:
        UsageError: there is no such run, no such trajectory, or a scorer cannot score stored trajectories.
        BackendError: a service that a scorer needs does not answer.
    """
    started, source, chosen, registry = time.perf_counter(), RunFolder.open(name), Where(where), Registry()
    base = _base(source, given_keys(file, overrides))
    resolved = resolve(registry, read(file, [*overrides], base), judge)
    for change in plugin_changes(registry, source):
        progress.say(change)
    folder = RunFolder.create(RESCORED, out, root=source.path)
    with removed_if_empty(folder):
        save_config(resolved.config, registry, folder)
        lock_plugins(registry, folder)
        done = asyncio.run(_rescore(resolved, source, chosen, folder, progress))
        facts = {"source": str(source.path.resolve()), "where": where, **done.comparison.record}
        seconds = round(time.perf_counter() - started, 3)
        folder.write_summary({**folder.read_summary(), "seconds": seconds, RESCORED: facts})
        write_report(folder, plugin_sections(registry.registered("report_section")))
    return done


def _base(source: RunFolder, given: Mapping[str, Any]) -> dict[str, Any]:
    """The run's configuration; rewards that are given replace those of each of several tasks."""
    base = source.read_config()
    if given.get("rewards") and base.get("tasks"):
        shares = base["tasks"].items()
        base["tasks"] = {name: {k: v for k, v in share.items() if k != "rewards"} for name, share in shares}
    return {**base, "out": None}


async def _rescore(
    resolved: Resolved, source: RunFolder, where: Where, folder: RunFolder, progress: Progress
) -> Rescoring:
    tasks, attempts = resolved.tasks, list[RescoredAttempt]()
    faults, results = Counter[str](), defaultdict[str, dict[str, float]](dict)
    metrics: dict[int, dict[str, float]] = {}
    folder.link_images(source)
    async with open_tasks(tasks, progress, RunContext(folder.path)) as opened:
        layers = {name: task.rewards for name, task in opened.by_name.items()}
        rescorer = Rescorer(source, tasks, layers, where, progress)
        async for file in rescorer.files():
            folder.write_stored(file.name, file.stored)
            attempts += file.attempts
            faults.update(fault.kind.value for each in file.trajectories for fault in each.faults)
            if isinstance(file.name, int):
                metrics[file.name] = {**group_metrics(file.groups), **tool_metrics(file.trajectories)}
            else:
                when, prefix = _pass(file.name)
                results[when] |= summarise(file.groups, success=tasks.success, prefix=prefix)
    for step, row in metrics.items():
        folder.append_metrics(step, row)
    counts = {"steps": max(metrics, default=0), "trajectories": len(attempts), "faults": dict(faults)}
    evaluations = {"success": tasks.success, "eval": dict(results)}
    folder.write_summary({**run_facts(resolved.config), **counts, **evaluations})
    return Rescoring(folder, source, tasks.scorers.weights, Comparison(attempts, rescorer.today.notes))


def _pass(name: str) -> tuple[str, str]:
    """Of an evaluation's file: "before" or "after", and the prefix of its results."""
    kind, _, rest = name.partition("-")
    if kind == "control":
        return "after", f"control/{rest}/"
    when, _, sampled = rest.partition("-")
    return when, f"{sampled}/" if sampled else ""


@dataclass(frozen=True, slots=True)
class RescoredFile:
    """A file of trajectories, scored anew.

    Args:
        name: as of `RunFolder.trajectory_names`.
        before: those that were chosen.
        groups: the same trajectories as they are scored now, those of a group together.
    """

    name: int | str
    before: Sequence[StoredTrajectory]
    groups: Sequence[Group]

    @property
    def trajectories(self) -> list[Trajectory]:
        return list(chain.from_iterable(group.trajectories for group in self.groups))

    @property
    def stored(self) -> list[StoredTrajectory]:
        pairs = zip(self.before, self.trajectories, strict=True)
        return [StoredTrajectory(after, before.texts) for before, after in pairs]

    @property
    def attempts(self) -> list[RescoredAttempt]:
        both = zip(self.before, self.trajectories, strict=True)
        return [RescoredAttempt.of(self.name, before.trajectory, after) for before, after in both]


@dataclass(slots=True)
class Rescorer:
    """Scores the trajectories of a run or an evaluation anew.

    Args:
        layers: by the name of the task; their scorers are open.
    """

    source: RunFolder
    tasks: Tasks
    layers: Mapping[str, RewardLayer]
    where: Where = field(default_factory=Where)
    progress: Progress = field(default_factory=Progress)
    today: TodaysSamples = field(init=False)

    def __post_init__(self) -> None:
        self.today = TodaysSamples(self.tasks, self.progress)

    async def comparison(self) -> Comparison:
        """What changed; raises as `files`."""
        attempts = [attempt async for file in self.files() for attempt in file.attempts]
        return Comparison(attempts, self.today.notes)

    async def files(self) -> AsyncIterator[RescoredFile]:
        """Yields each file that has chosen trajectories.

        Raises:
            UsageError: there is no chosen trajectory, or a scorer cannot score stored ones.
        """
        for layer in self.layers.values():
            refuse_live(layer)
        names, room, failing = self.source.trajectory_names(), asyncio.Semaphore(AT_ONCE), FailingScorers()
        self.progress.stage("score anew", sum(map(self.source.count_trajectories, names)), "attempt")
        some = False
        for name in names:
            groups = _groups(self.source.read_trajectories(name))
            kept = await gather_all(self._scored(name, members, room) for members in groups)
            for before, group in kept:
                failing.add(before, group)
            failing.check(last=False)
            if before := [each for members, _ in kept for each in members]:
                some = True
                yield RescoredFile(name, before, [group for _, group in kept if group.trajectories])
        failing.check(last=True)
        if not some:
            chosen = f" that --where {self.where.text!r} chooses" if self.where.text else ""
            raise UsageError(f"{self.source.path} has no trajectories{chosen}: there is nothing to score.")

    async def _scored(
        self, file: int | str, members: Sequence[StoredTrajectory], room: asyncio.Semaphore
    ) -> tuple[Sequence[StoredTrajectory], Group]:
        """The chosen members of a group; and the same, scored anew."""
        chosen = {at for at, each in enumerate(members) if self.where.holds(each.trajectory)}
        sample = self.today.of(members[0].trajectory.sample, file)
        layer = self.layers[sample.task]
        asked = range(len(members)) if layer.group_scorers and chosen else sorted(chosen)
        played = [replace(unscored(members[at].trajectory), sample=sample) for at in asked]
        async with room:
            scored = (await layer.score_group(Group(sample, tuple(played)))).trajectories if played else ()
        self.progress.advance(len(members))
        pairs = [(members[at], after) for at, after in zip(asked, scored, strict=True) if at in chosen]
        return [before for before, _ in pairs], Group(sample, tuple(after for _, after in pairs))


@dataclass(slots=True)
class TodaysSamples:
    """The tasks' samples as they are made today, which scorers see if they ask what the stored ones ask.

    They have the types that JSON loses, such as tuples, and answers that were corrected since.
    """

    tasks: Tasks
    progress: Progress
    _made: dict[tuple[str, str], Mapping[str, Sample]] = field(default_factory=dict)
    _corrected: Counter[str] = field(default_factory=Counter)
    _other: Counter[str] = field(default_factory=Counter)

    def of(self, stored: Sample, file: int | str) -> Sample:
        split = "train" if isinstance(file, int) else "eval"
        setup = self.tasks.by_name.get(stored.task)
        if setup is None:
            raise UsageError(f"A stored trajectory is of the task '{stored.task}', which the configuration has not.")
        if (stored.task, split) not in self._made:
            self._made[stored.task, split] = self._samples(setup, split)
        made = self._made[stored.task, split]
        if not made:
            return stored
        own = made.get(stored.id)
        now, then = ({} if each is None else json.loads(json_text(sample_data(each))) for each in (own, stored))
        if own is None or now.get("prompt") != then.get("prompt"):
            self._other[stored.id] += 1
            return stored
        if any(now.get(key) != then.get(key) for key in ("answer", "metadata")):
            self._corrected[stored.id] += 1
        return replace(stored, answer=own.answer, metadata=own.metadata)

    def _samples(self, setup: TaskSetup, split: str) -> Mapping[str, Sample]:
        try:
            return {sample.id: sample for sample in setup.samples(split)}
        except RlfactoryError as error:
            self.progress.say(
                f"The samples are those of the stored trajectories, because today's cannot be had: {error}"
            )
            return {}

    @property
    def notes(self) -> list[str]:
        texts = {
            "The task's data has another answer or other metadata today for {}, such as '{}': today's count.": (
                self._corrected
            ),
            "The task's data does not have {} as asked here, such as '{}': they are as they were stored.": self._other,
        }
        return [text.format(count_text(len(ids), "sample"), next(iter(ids))) for text, ids in texts.items() if ids]


def _groups(stored: Iterable[StoredTrajectory]) -> list[list[StoredTrajectory]]:
    """The attempts of each group; a file may have several groups of one sample."""
    groups: defaultdict[tuple[str, str, str], list[list[StoredTrajectory]]] = defaultdict(list)
    order: list[list[StoredTrajectory]] = []
    for each in stored:
        sample, attempt = each.trajectory.sample, each.trajectory.attempt
        same = groups[sample.task, sample.split, sample.id]
        open_ = next((group for group in same if all(one.trajectory.attempt != attempt for one in group)), None)
        if open_ is None:
            same.append(open_ := [])
            order.append(open_)
        open_.append(each)
    return order


class FailingScorers:
    """Finds scorers that give no score for any stored trajectory."""

    def __init__(self) -> None:
        self._scored: set[str] = set()  # scorers with a score now
        self._failed: Counter[str] = Counter()  # attempts without one
        self._had: set[str] = set()  # scorers that had scored some of these
        self._why: dict[str, str] = {}

    def add(self, before: Sequence[StoredTrajectory], group: Group) -> None:
        for stored, now in zip(before, group.trajectories, strict=True):
            self._scored |= now.score.components.keys() if now.score else set()
            for fault in (each for each in now.faults if each.kind is FaultKind.VERIFIER):
                self._failed[fault.source] += 1
                self._why[fault.source] = fault.message
                if stored.trajectory.score and fault.source in stored.trajectory.score.components:
                    self._had.add(fault.source)

    def check(self, *, last: bool) -> None:
        """Raises a `UsageError` if there is one; before the last file, if it had scored them before."""
        for name, count in self._failed.items():
            if name not in self._scored and (last or name in self._had):
                raise UsageError(
                    f"The reward '{name}' gives no score for any of {count_text(count, 'stored attempt')}: "
                    f"{self._why[name]}. A stored trajectory has its messages, tokens, tools' results, `info` and its "
                    "sample, as JSON; it has no state of a live environment or of the task. Mend the reward, or score "
                    "without it: --reward NAME"
                )


def refuse_live(layer: RewardLayer) -> None:
    """Raise a `UsageError` if a scorer says that it reads what no stored trajectory has."""
    for name in (name for name, traits in layer.traits.items() if traits.live_state):
        raise UsageError(
            f"The reward '{name}' reads the state of a live environment, which a stored trajectory does not have: it "
            "cannot be scored anew. Score without it: --reward NAME"
        )
