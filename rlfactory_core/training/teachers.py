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
from rlfactory_core.types import Fault, FaultKind, Group, Row, Sample, TaughtToken, TrainSequence, Trajectory

SOURCE = "teacher"  # `Fault.source` where the teacher did not answer


@dataclass(frozen=True, slots=True)
class TaughtPlay:
    """A `Play` whose trajectories have the log-probs of their teacher.

    A teacher that does not answer is an infra fault of the attempts, which masks them.

    Args:
        teachers: by the name of the task; "" stands for all other tasks.
    """

    play: Play
    teachers: Mapping[str, Teacher]
    likely: int = 0  # ids that they name at each sampled token

    async def __call__(self, sample: Sample, **how: Any) -> Group:
        group = await self.play(sample, **how)
        rows = [_sequence(row) for each in group.trajectories if not each.masked for row in each.rows]
        if not rows:
            return group
        teacher = self.teachers.get(sample.task) or self.teachers[""]
        try:
            scored = iter(await teacher.score(rows, self.likely))
        except BackendError as error:
            fault = Fault(FaultKind.INFRA, SOURCE, str(error))
            seen = [each if each.masked else _with_fault(each, fault) for each in group.trajectories]
        else:
            seen = [each if each.masked else _taught(each, scored) for each in group.trajectories]
        return replace(group, trajectories=tuple(seen))


def check_teachers(config: EngineSettings, tasks: Collection[str]) -> None:
    """Refuse keys that on-policy distillation cannot use.

    Args:
        tasks: the names of the run's tasks; the only one may have none.

    Raises:
        ConfigError: no teacher, not one for each task, or a key that distillation cannot use.
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
    if train.teacher_top and (train.teacher_discount or train.aggregation != "token"):
        other = f"aggregation={train.aggregation}"
        other = f"teacher_discount={train.teacher_discount:g}" if train.teacher_discount else other
        raise ConfigError(
            f"train.teacher_top={train.teacher_top} compares each place alone, and each counts the same: "
            f"train.{other} has no meaning. Drop it, or compare sampled tokens alone: train.teacher_top=0"
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
        BackendError, ModelError: a teacher cannot be loaded or reached.
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
        yield TaughtPlay(play, {task: opened[name] for task, name in by_task.items()}, config.train.likely)


async def _open(name: str, engine: Engine, config: EngineSettings, tokenizer: Any) -> Teacher:
    if not name.startswith(("http://", "https://")):
        return engine.teacher(name, config.train.teacher_device)
    teacher = ServerTeacher(name)
    try:
        await teacher.open(tokenizer, config.rollout.max_tokens, config.train.likely)
    except BaseException:
        await teacher.close()
        raise
    return teacher


def _sequence(row: Row) -> TrainSequence:
    return TrainSequence(row.ids, row.loss_mask, (0.0,) * len(row.ids), row.logprobs, images=row.images)


def _with_fault(trajectory: Trajectory, fault: Fault) -> Trajectory:
    return replace(trajectory, faults=(*trajectory.faults, fault))


def _taught(trajectory: Trajectory, scored: Iterator[Sequence[TaughtToken]]) -> Trajectory:
    """With the next tokens of ``scored``, one sequence for each row."""
    rows = dict.fromkeys(turn.row for turn in trajectory.turns)  # in the order of `Trajectory.rows`
    left = {row: iter(next(scored)) for row in rows}
    turns = []
    for each in trajectory.turns:
        tokens = tuple(islice(left[each.row], len(each.sampled_ids)))
        logprobs = tuple(token.logprob for token in tokens)
        turns.append(replace(each, teacher_logprobs=logprobs, taught=tokens if tokens and tokens[0].likely else ()))
    return replace(trajectory, turns=tuple(turns))
