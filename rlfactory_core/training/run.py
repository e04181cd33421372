"""Opens all parts of a run in each of an engine's processes, and trains, evaluates or converses with them."""

from __future__ import annotations

import asyncio
import shlex
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, closing
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from math import inf
from typing import Any

from rlfactory_core.algo.distillation import TeacherCredit
from rlfactory_core.algo.stages import OPD, STAGE_METHODS
from rlfactory_core.context import RunContext
from rlfactory_core.engines.base import (
    Checkpoint,
    Conversation,
    Engine,
    EngineRun,
    EngineStart,
    EngineTraits,
    OpenModel,
    Settings,
    Stage,
)
from rlfactory_core.engines.tiny import TinyModel
from rlfactory_core.errors import ConfigError, UsageError
from rlfactory_core.plugins.attributes import optional_attributes
from rlfactory_core.protocols import ChatFormat, Sampler
from rlfactory_core.reporting.folder import RunFolder, replace_link
from rlfactory_core.reporting.loggers import open_loggers
from rlfactory_core.reporting.where import Where
from rlfactory_core.tasks.opening import OpenTasks
from rlfactory_core.tasks.room import CheckedPrompts, check_prompts
from rlfactory_core.training.checkpoints import LATEST, checkpoints, newest_readable, none_yet, roll_back, saved
from rlfactory_core.training.evaluation import Evaluator, HeldOutLoss
from rlfactory_core.training.loop import Loop
from rlfactory_core.training.methods import GroupComparison, Imitation, Method
from rlfactory_core.training.methods.grpo import rewards_of_turns
from rlfactory_core.training.place import Place
from rlfactory_core.training.playing import Play, Playing
from rlfactory_core.training.proof import PolicyMovedProof
from rlfactory_core.training.record import Recorder, evaluation_passes, remedies, run_facts
from rlfactory_core.training.sources import open_source
from rlfactory_core.training.stopping import Ended, Stopping, Until
from rlfactory_core.training.teachers import taught
from rlfactory_core.types import Group, Sample, Trajectory
from rlfactory_core.utils.garbage import collect_rarely

PREFIX_SAMPLES = 64  # of each task and split, whose prompts show the engine how prompts begin


class Training:
    """Makes a `WholeEngine` of an `Engine`."""

    uses_algorithms = True
    methods = tuple(STAGE_METHODS)

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.trains_stages = type(engine).stage is not Engine.stage
        traits = optional_attributes(engine, EngineTraits, f"The engine {type(engine).__name__}")
        for trait in (each.name for each in fields(EngineTraits) if hasattr(engine, each.name)):
            setattr(self, trait, getattr(traits, trait))

    def prepare(self, config: Settings) -> Settings:
        stages = [self.engine.prepare(each) for each in config.by_stage()]
        if not self.engine.compares_likely and any(each.train.likely for each in stages):
            raise ConfigError("train.method=opd: this engine compares sampled tokens alone. Set train.teacher_top=0.")
        if len(config.stage_keys) == 1 and not config.stages:
            return stages[0]
        workers = min(each.train.workers for each in stages)
        own = {"train": config.train.model_copy(update={"workers": workers})}
        return stages[0].model_copy(update={**own, "warm_start": config.warm_start, "stages": config.stages})

    def train(self, run: EngineRun) -> dict[str, Any]:
        return self._in_processes(train, run)

    def evaluate(self, run: EngineRun) -> dict[str, Any]:
        return self._in_processes(evaluate, run)

    def converse(self, run: EngineRun, conversation: Conversation) -> None:
        async def talk(engine: Engine, run: EngineRun) -> None:
            async with opened(engine, run, training=False) as parts:
                await conversation(parts.tasks, parts.sampler)

        asyncio.run(_stoppable(talk, self.engine, run))

    def roll_back(self, folder: RunFolder, step: int) -> int | None:
        return roll_back(folder.checkpoints, step)

    def _in_processes(self, use: Use, run: EngineRun) -> dict[str, Any]:
        with self.engine.joined(run.config, partial(_elsewhere, use, run.again)):
            return asyncio.run(_stoppable(use, self.engine, run))


Use = Callable[[Engine, EngineRun], Awaitable[Any]]


def _elsewhere(use: Use, again: Callable[[], EngineRun], engine: Engine) -> None:
    """In another process of the engine."""
    asyncio.run(_stoppable(use, engine, again()))


async def _stoppable(use: Use, engine: Engine, run: EngineRun) -> Any:
    run.stop.task = asyncio.current_task()
    return await use(engine, run)


async def train(engine: Engine, run: EngineRun) -> dict[str, Any]:
    """Returns the summary in the first process, an empty one in the others."""
    async with opened(engine, run, training=True) as parts:
        recorder = parts.recorder
        if not parts.step:
            await parts.evaluate("before")
            if recorder is not None:
                recorder.advise("before training")
                run.folder.write_summary({**parts.facts(), **recorder.summary()})
        run.stop.armed = True
        loop, step, place = await _train_stages(parts)
        did = f"{step} steps" if place.stages == 1 else f"{place.stages} stages"
        ended = loop.stopping.ended or Ended("steps", f"did all {did}")
        await parts.evaluate("after", measured=loop.held_out.groups)
        if recorder is None:
            return {}
        recorder.moved = loop.proof.found
        stages = {"stages": [asdict(each) for each in place.done]} if place.stages > 1 else {}
        return {**parts.facts(), **recorder.summary(step, ended), **stages}


async def _train_stages(parts: OpenRun) -> tuple[Loop, int, Place]:
    """Train the stages that are left. Returns the last one's loop, the last step, and the place after it."""
    run, step, place, loop = parts.run, parts.step, parts.place, None
    while place.number < place.stages:
        begins, steps = loop is not None, run.stages[place.number].config.train.steps
        async with parts.taught(place.number) as play:
            loop = parts.loop(place, play, loop)
            method = loop.config.train.method
            title = f"{method} (stage {place.number + 1} of {place.stages})" if place.stages > 1 else "train"
            run.progress.stage(title, steps, "step")
            run.progress.advance(step + 1 - place.first)
            pending = () if begins else parts.resumed.get("pending", ())
            step = await loop.run(step + 1, place.last(steps), pending)
        ended = loop.stopping.ended or Ended("steps", f"did all {steps} steps")
        if ended.by != "steps":
            run.progress.say(f"{title} ended: {ended.text}" if place.stages > 1 else f"training ended: {ended.text}")
        place = place.after(method, step, ended.text)
    assert loop is not None
    return loop, step, place


async def evaluate(engine: Engine, run: EngineRun) -> dict[str, float]:
    """Returns the results in the first process, with confidence intervals."""
    async with opened(engine, run, training=False) as parts:
        found = await parts.evaluate("after", intervals=True)
        if parts.recorder is not None:
            parts.recorder.advise("the evaluation")
        return found


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A run whose parts are all open, in one process.

    Args:
        prompts: those that leave room for an answer.
        resumed: what the checkpoint has of the run, if it is resumed.
        recorder: in the first process only.
    """

    engine: Engine
    run: EngineRun
    tasks: OpenTasks
    chat: ChatFormat
    sampler: Sampler
    prompts: CheckedPrompts
    resumed: dict[str, Any]
    recorder: Recorder | None
    tokenizer: Any

    @property
    def step(self) -> int:
        """The number of finished steps."""
        return int(self.resumed.get("step", 0))

    @property
    def play(self) -> Play:
        models = {name: task.model(self.sampler) for name, task in self.tasks.by_name.items()}
        return lambda sample, **how: self.tasks.of(sample).play(sample, models[sample.task], **how)

    @property
    def evaluator(self) -> Evaluator:
        engine, run = self.engine, self.run
        held_out, processes = self.prompts.held_out, engine.processes
        return Evaluator(
            self.tasks, self.play, held_out, run.config.seed, run.progress, processes, engine.expect, stop=run.stop
        )

    async def evaluate(
        self, when: str, *, intervals: bool = False, measured: Mapping[str, Sequence[Group]] = {}
    ) -> dict[str, float]:
        """Greedy, sampled and, after training, with the task's controls; nothing without held-out samples."""
        if not self.prompts.held_out:
            return {}
        passes = evaluation_passes(self.run, when)
        title = f"evaluate {when}" if self.prompts.train else "evaluate"
        return await self.evaluator.evaluate(
            title, when, passes, self.recorder, chat=self.chat, intervals=intervals, measured=measured
        )

    @property
    def place(self) -> Place:
        """Where the training stands."""
        return Place.of(len(self.run.stages), self.resumed)

    def taught(self, number: int) -> AbstractAsyncContextManager[Play]:
        """The play of a stage, with its teachers."""
        return taught(self.play, self.engine, self.run.stages[number].config, self.tokenizer)

    def loop(self, place: Place, play: Play, before: Loop | None = None) -> Loop:
        """The training of a stage: of one that begins after another one's loop, or of the one that is resumed."""
        engine, run, stage = self.engine, self.run, self.run.stages[place.number]
        config, train, processes = stage.config, stage.config.train, engine.processes
        if place.stages > 1:
            engine.stage(_start(run, place.number), fresh=before is not None)
        if self.recorder is not None:
            self.recorder.stage = place.number
        method, samples, play, loss = self._method(stage, play)
        further = place.further(each.config.train for each in run.stages)
        top = before.stopping.until.top if before is not None else -inf
        until = Until(train.until, train.patience, self.tasks.success, config.eval.attempts, top=top)
        loop = Loop(
            engine,
            config,
            method,
            Playing(engine, play, config, samples, stage.make_prompts(samples), further),
            self.evaluator,
            PolicyMovedProof(engine, self.sampler),
            Stopping(train, until, processes, run.stop, run.progress),
            self.chat.decode,
            run.folder.checkpoints,
            place,
            self.recorder,
            loss,
        )
        if before is None:
            loop.load(self.resumed.get("loop", {}))
        return loop

    def _method(self, stage: Stage, play: Play) -> tuple[Method, Sequence[Sample], Play, HeldOutLoss | None]:
        """The method of a stage, what it plays, and its loss on demonstrations that it is not trained on."""
        config, train, rank = stage.config, stage.config.train, self.engine.processes.rank
        if not STAGE_METHODS[train.method].imitates:
            advantage = stage.advantage or rewards_of_turns
            if train.method == OPD:
                advantage = TeacherCredit(train.teacher_discount, advantage, train.reward_weight, train.likely > 0)
            method = GroupComparison(train, advantage, config.rollout.max_tokens, config.seed, rank)
            return method, self.prompts.train, play, None
        if STAGE_METHODS[train.method].plays:
            worth = Where(train.where).holds if train.where else self._succeeds
            return Imitation(train, worth, train.winners, config.seed, rank), self.prompts.train, play, None
        say = self.run.progress.say if self.engine.processes.first else _silent
        source = open_source(train, self.tasks, self.prompts.train, self.prompts.held_out, say)
        imitation = Imitation(train, source.worth, 0, config.seed, rank)
        return imitation, source.samples, source.play, HeldOutLoss(self.engine, source, imitation)

    def _succeeds(self, trajectory: Trajectory) -> bool:
        """Whether an attempt has the highest score that means success, or if it has none, the highest reward."""
        scores = trajectory.score.components if trajectory.score is not None else {}
        if self.tasks.success in scores:
            return scores[self.tasks.success] >= 1.0
        top = self.run.tasks.top_reward
        return trajectory.reward > 0 and (top is None or trajectory.reward >= top)

    def facts(self) -> dict[str, Any]:
        """The part of the summary that follows from the configuration and the engine."""
        return {**run_facts(self.run.config), "workers": self.engine.processes.size, **self.engine.facts}


def _silent(_: str) -> None:
    """The first process speaks for all."""


@asynccontextmanager
async def opened(engine: Engine, run: EngineRun, *, training: bool) -> AsyncIterator[OpenRun]:
    """Open a run's parts. What can fail because of the user's input fails here, the cheap checks first."""
    config = run.config
    async with AsyncExitStack() as stack:
        samples = run.tasks.samples("train") if training else []
        eval_samples = run.tasks.held_out(required=not training)
        tasks = OpenTasks(run.tasks, str(run.folder.path.resolve()) if config.train.workers > 1 else "")
        stack.push_async_callback(tasks.close)
        await tasks.open(run.progress, RunContext(run.folder.path, run.stop.request))
        tasks.check([*samples, *eval_samples])
        stack.push_async_callback(engine.close)
        model, resumed = _open_model(engine, run)
        chat = run.make_chat(model.tokenizer, images=model.sees_images)
        tasks.use_chat(chat)
        prompts = check_prompts(tasks, samples, eval_samples, model.positions)
        shown = _beginnings(tasks, [*prompts.train, *prompts.held_out])
        sampler = await engine.sampler(chat, shown, int(resumed.get("step", 0)))
        stack.callback(collect_rarely())
        recorder = None
        if engine.processes.first:
            recorder = _recorder(run, tasks, resumed, stack, training=training)
            recorder.left_out = prompts.left_out
            for note in prompts.notes:
                run.progress.say(note)
        parts = OpenRun(engine, run, tasks, chat, sampler, prompts, resumed, recorder, model.tokenizer)
        for number in range(parts.place.number, len(run.stages) if training else 0):
            async with parts.taught(number):
                pass  # a teacher that cannot be had is an error now
        yield parts


def _open_model(engine: Engine, run: EngineRun) -> tuple[OpenModel, dict[str, Any]]:
    """A new run's model, or that of the newest checkpoint that can be read with what the checkpoint has of the run.

    Raises:
        CheckpointError: none can be read.
        UsageError: the run is resumed and has done more steps than it should.
    """
    folder = run.folder.checkpoints

    def start(checkpoint: Checkpoint | None) -> EngineStart:
        return replace(_start(run, 0), checkpoint=checkpoint)

    if not run.resume:
        return engine.open(start(None)), {}

    def load(found: Checkpoint) -> tuple[OpenModel, dict[str, Any]]:
        return engine.open(start(found)), dict(engine.load(found))

    found = [saved(path) for path in checkpoints(folder)]
    if not found:
        raise none_yet(folder)
    checkpoint, (model, resumed) = newest_readable(found, load, run.progress.say)
    if checkpoint != found[0] and engine.processes.first:
        replace_link(folder / LATEST, checkpoint.folder.name)
    _check_place(run, resumed)
    return model, resumed


def _start(run: EngineRun, number: int) -> EngineStart:
    """What the engine trains a stage with, from its number."""
    stage = run.stages[number]

    def make_tiny() -> TinyModel:
        return TinyModel.of(run.config, run.tasks.only, run.fingerprints, run.make_chat)

    return EngineStart(stage.config, run.progress, make_tiny, loss=stage.loss, stage=number)


def _check_place(run: EngineRun, resumed: Mapping[str, Any]) -> None:
    place, step = Place.of(len(run.stages), resumed), int(resumed["step"])
    if place.number >= place.stages:
        raise UsageError(
            f"The run is in stage {place.number + 1}, and there are now {place.stages}. Leave the stages as they were."
        )
    steps = run.stages[place.number].config.train.steps
    if step > place.last(steps) and place.is_last:
        least = step + 1 - place.first
        raise UsageError(
            f"The run has done {least} steps of its last stage, more than train.steps={steps}. "
            f"Give more, for example: --steps {2 * least}"
            if place.stages > 1
            else f"The run has done {step} steps, more than train.steps={steps}. "
            f"Give more, for example: --steps {2 * step}"
        )


def _recorder(
    run: EngineRun, tasks: OpenTasks, resumed: dict[str, Any], stack: AsyncExitStack, *, training: bool
) -> Recorder:
    names, shown = run.config.loggers if training else (), run.config.model_dump(mode="json")
    loggers = open_loggers(names, run.folder, shown, resumed.get("step"), run.progress.say)
    stack.enter_context(closing(loggers))
    scores = (run.tasks.scorers.weights, run.tasks.scorers.opinions, run.tasks.top_reward)
    stages, totals = [stage.config for stage in run.stages], resumed.get("totals")
    command = run.command or f"rlfactory run --config {shlex.quote(str(run.folder.config))}"
    methods, advice = [each.train.method for each in stages], remedies(stages, run.tasks, command)
    if not training:  # the policy is that after the last stage
        methods, advice = methods[-1:], advice[-1:]
    return Recorder(run.folder, run.progress, tasks.success, loggers, totals, *scores, methods=methods, remedies=advice)


def _beginnings(tasks: OpenTasks, samples: Sequence[Sample]) -> list[tuple[int, ...]] | None:
    """Some prompts of each task and split; None: an agent's prompts are not known before it asks."""
    kinds: defaultdict[tuple[str, str], list[Sample]] = defaultdict(list)
    for sample in samples:
        kinds[sample.task, sample.split].append(sample)
    prompts = [tasks.of(sample).prompt_ids(sample) for kind in kinds.values() for sample in kind[:PREFIX_SAMPLES]]
    known = [ids for ids in prompts if ids is not None]
    return known if len(known) == len(prompts) else None
