"""The teachers of on-policy distillation: each group is shown to its teacher as soon as it is played."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from rlfactory_core.algo.advantages import GAE
from rlfactory_core.algo.settings import teachers_of
from rlfactory_core.algo.stages import OPD
from rlfactory_core.clients import ServerTeacher
from rlfactory_core.engines.base import Engine, Teacher
from rlfactory_core.engines.settings import EngineSettings
from rlfactory_core.errors import BackendError, ConfigError
from rlfactory_core.training.playing import Play
from rlfactory_core.types import Fault, FaultKind, Group, Row, Sample, TrainSequence, Trajectory

SOURCE = "teacher"  # of the fault of an attempt that no teacher has seen


@dataclass(frozen=True, slots=True)
class TaughtPlay:
    """A `Play` whose trajectories have their teacher's log-probs.

    A teacher that does not answer is an infra fault of the attempts, which masks them.

    Args:
        teachers: by task; the one of the name "" has all others.
    """

    play: Play
    teachers: Mapping[str, Teacher]

    async def __call__(self, sample: Sample, **how: Any) -> Group:
        group = await self.play(sample, **how)
        rows = [_sequence(row) for each in group.trajectories if not each.masked for row in each.rows]
        if not rows:
            return group
        teacher = self.teachers.get(sample.task) or self.teachers[""]
        try:
            scored = iter(await teacher.score(rows))
        except BackendError as error:
            fault = Fault(FaultKind.INFRA, SOURCE, str(error))
            seen = [each if each.masked else _with_fault(each, fault) for each in group.trajectories]
        else:
            seen = [each if each.masked else _with_logprobs(each, scored) for each in group.trajectories]
        return replace(group, trajectories=tuple(seen))


def check_teachers(config: EngineSettings, tasks: Collection[str]) -> None:
    """Refuse a stage of on-policy distillation that contradicts itself.

    Args:
        tasks: the names of the run's tasks; the only one may have none.

    Raises:
        ConfigError: there is no teacher, or not one for each task, or a key that distillation does not go with.
    """
    train, asks = config.train, f"train.method={OPD}"
    if not train.teacher:
        raise ConfigError(
            f"{asks} needs train.teacher: a model folder, a hub id, or the address of a server that gives log-probs of "
            "prompts, such as http://127.0.0.1:8000/v1 (vLLM)."
        )
    if not isinstance(train.teacher, str) and set(train.teacher) != {*tasks} - {""}:
        raise ConfigError(
            f"train.teacher names {', '.join(train.teacher)}, and the run's tasks are "
            f"{', '.join(filter(None, tasks)) or 'one without a name'}. Give each of them a teacher, or one for all."
        )
    if config.rollout.temperature != 1.0:
        raise ConfigError(
            f"{asks} compares log-probs at temperature 1, and rollout.temperature={config.rollout.temperature:g}. "
            "Set it to 1."
        )
    if train.advantage == GAE:
        raise ConfigError(f"{asks} has no critic: train.advantage={GAE}. Use another, such as grpo.")
    if train.refill:
        raise ConfigError(f"{asks}: each group teaches something, and train.refill=true replaces those that do not.")


@asynccontextmanager
async def taught(play: Play, engine: Engine, config: EngineSettings, tokenizer: Any) -> AsyncIterator[Play]:
    """The play of a training with the teachers that ``train.teacher`` names; they are open within the context.

    Raises:
        ConfigError: a teacher has another vocabulary.
        BackendError, ModelError: a teacher cannot be had.
    """
    by_task = teachers_of(config.train.teacher)
    if not by_task:
        yield play
        return
    async with AsyncExitStack() as stack:
        opened: dict[str, Teacher] = {}
        for name in dict.fromkeys(by_task.values()):
            opened[name] = await _open(name, engine, config, tokenizer)
            stack.push_async_callback(opened[name].close)
        yield TaughtPlay(play, {task: opened[name] for task, name in by_task.items()})


async def _open(name: str, engine: Engine, config: EngineSettings, tokenizer: Any) -> Teacher:
    if not name.startswith(("http://", "https://")):
        return engine.teacher(name, config.train.teacher_device)
    teacher = ServerTeacher(name)
    try:
        await teacher.open(tokenizer, config.rollout.max_tokens)
    except BaseException:
        await teacher.close()
        raise
    return teacher


def _sequence(row: Row) -> TrainSequence:
    return TrainSequence(row.ids, row.loss_mask, (0.0,) * len(row.ids), row.logprobs, images=row.images)


def _with_fault(trajectory: Trajectory, fault: Fault) -> Trajectory:
    return replace(trajectory, faults=(*trajectory.faults, fault))


def _with_logprobs(trajectory: Trajectory, scored: Iterator[Sequence[float]]) -> Trajectory:
    """With the next log-probs of ``scored``, one sequence for each row."""
    rows = dict.fromkeys(turn.row for turn in trajectory.turns)  # in the order of `Trajectory.rows`
    left = {row: iter(next(scored)) for row in rows}
    turns = (
        replace(each, teacher_logprobs=tuple(islice(left[each.row], len(each.sampled_ids))))
        for each in trajectory.turns
    )
    return replace(trajectory, turns=tuple(turns))
