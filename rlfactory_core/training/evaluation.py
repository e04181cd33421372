"""The evaluation of a policy: before, between and after a training, and of a model behind a server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from math import fsum
from typing import Any

from rlfactory_core.algo.evaluation import EvalPass, summarise
from rlfactory_core.algo.guard_start import Remedies
from rlfactory_core.clients import OpenAIClient
from rlfactory_core.context import RunContext
from rlfactory_core.engines.base import ALONE, Engine, EngineRun, Processes
from rlfactory_core.errors import RunStopped, UsageError
from rlfactory_core.protocols import ChatFormat
from rlfactory_core.reporting.metrics import eval_metrics
from rlfactory_core.reporting.progress import Progress
from rlfactory_core.reporting.trajectories import stored
from rlfactory_core.tasks.opening import OpenTasks, open_tasks
from rlfactory_core.training.methods.imitation import Imitation
from rlfactory_core.training.playing import Play
from rlfactory_core.training.record import Recorder, evaluation_passes
from rlfactory_core.training.sources import Source
from rlfactory_core.training.stopping import Ended, Until
from rlfactory_core.types import Group, Sample, TrainSequence
from rlfactory_core.utils.aio import gather_all
from rlfactory_core.utils.interrupt import StopRequest
from rlfactory_core.utils.seeds import derive_seed

_INTERRUPTED_S = 0.2  # between two looks for an interruption; a signal sets it
LOSS_SAMPLES = 32  # demonstrations whose loss is measured, of all processes


@dataclass(frozen=True, slots=True)
class HeldOut:
    """What an evaluation between steps has found, if one was due; ``ended`` and ``best`` are the same in all processes.

    Args:
        groups: those of all processes by the pass's prefix, on rank 0; empty lists on the others.
        metrics: of the step, on rank 0.
    """

    groups: Mapping[str, Sequence[Group]] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    ended: Ended | None = None
    best: bool = False  # the best so far


@dataclass(frozen=True, slots=True)
class Evaluator:
    """Plays the held-out samples; all processes call its methods together.

    Args:
        play: with the model that is evaluated.
        samples: of all processes.
        counts_samples: whether the display counts samples, as for a slow server, and not passes.
        stop: an interruption ends a pass, in all processes.
    """

    tasks: OpenTasks
    play: Play
    samples: Sequence[Sample]
    seed: int
    progress: Progress
    processes: Processes = ALONE
    expect: Callable[[Iterable[str]], None] = lambda _sessions: None
    counts_samples: bool = False
    stop: StopRequest = field(default_factory=StopRequest)

    async def groups(self, how: EvalPass) -> list[Group]:
        """The groups of a pass, of all processes: on rank 0; an empty list on the others.

        Raises:
            RunStopped: the run was interrupted.
        """
        share = self.processes.share(list(enumerate(self.samples)))
        self.expect(f"{how.name}/{index}/{attempt}" for index, _ in share for attempt in range(how.attempts))
        played = await self._unless_interrupted(gather_all(self._played(how, *each) for each in share))
        if await self.processes.any(played is None):
            raise RunStopped("Stopped in an evaluation; all steps before it are saved.")
        return [group for part in await self.processes.gather(played) for group in part or ()]

    async def _unless_interrupted(self, playing: Awaitable[list[Group]]) -> list[Group] | None:
        task = asyncio.ensure_future(playing)
        try:
            while not self.stop.interrupted:
                done, _ = await asyncio.wait([task], timeout=_INTERRUPTED_S)
                if done:
                    return task.result()
            return None
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def _played(self, how: EvalPass, index: int, sample: Sample) -> Group:
        group = await self.play(
            sample,
            attempts=how.attempts,
            temperature=how.temperature,
            seed=derive_seed(self.seed, how.name, index),
            session=f"{how.name}/{index}",
            manager=self.tasks.only.control_manager(how.control) if how.control else None,
        )
        if self.counts_samples:
            masked = sum(trajectory.masked for trajectory in group.trajectories)
            self.progress.advance(1, **({"masked": masked} if masked else {}))
        return group

    async def evaluate(
        self,
        title: str,
        when: str,
        passes: Sequence[EvalPass],
        recorder: Recorder | None,
        *,
        chat: ChatFormat | None = None,
        intervals: bool = False,
        measured: Mapping[str, Sequence[Group]] = {},
    ) -> dict[str, float]:
        """Play and record the passes of the evaluation ``when``. Returns the results on rank 0.

        Args:
            title: for the display, if it counts passes.
            chat: decodes the tokens, if there are any.
            measured: prefix -> groups of passes that these weights have played already, see `HeldOut`.
        """
        if not self.counts_samples:
            self.progress.stage(title, len(passes), "round")
        for how in passes:
            if self.counts_samples:
                self.progress.stage(how.name, len(self.samples), "sample")
            groups = measured.get(how.prefix)
            if groups is None:
                groups = await self.groups(how)
            if recorder is None:
                continue
            texts = stored(groups, chat.decode) if chat is not None else stored(groups)
            found = recorder.evaluated(when, how, groups, texts, intervals=intervals)
            if not self.counts_samples:
                key = f"{how.prefix}{self.tasks.success}"
                self.progress.advance(1, **{key: found.get(key, float("nan"))})
        return recorder.results[when] if recorder is not None else {}

    async def between(self, step: int, every: int, until: Until, *, now: bool = False) -> HeldOut:
        """The evaluation after a step, if one is due: after every ``every``-th step (0: never), or ``now``."""
        if not every or (step % every and not now) or not self.samples:
            return HeldOut()
        groups: dict[str, Sequence[Group]] = {}
        found: dict[str, float] = {}
        for how in until.passes(step):
            if how.prefix and not await self.processes.broadcast(until.possible(found)):
                break
            groups[how.prefix] = await self.groups(how)
            found |= summarise(groups[how.prefix], success=self.tasks.success, prefix=how.prefix)
        best = await self.processes.broadcast(until.is_best(found))
        ended = await self.processes.broadcast(until.check(step, found))
        metrics = eval_metrics(groups[""])
        metrics |= {f"eval/{name}": found[name] for name in until.goals if name in found}
        return HeldOut(groups, metrics, ended, best)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A `WholeEngine` that only evaluates: the model behind a client, which is closed after that."""

    client: OpenAIClient

    def prepare(self, config: Any) -> Any:
        return config

    def train(self, run: EngineRun) -> dict[str, Any]:
        raise UsageError("A model behind an endpoint cannot be trained. Name a model folder or a hub id.")

    def evaluate(self, run: EngineRun) -> dict[str, Any]:
        """Returns the flat map of the results, with confidence intervals.

        Raises:
            BackendError: the endpoint, or a service that the task's tools need, does not answer at the start.
            DataError: there are no samples.
        """
        return asyncio.run(self._evaluate(run))

    async def _evaluate(self, run: EngineRun) -> dict[str, Any]:
        samples, client = run.tasks.held_out(required=True), self.client
        async with AsyncExitStack() as stack:
            stack.push_async_callback(client.close)
            opening = open_tasks(run.tasks, run.progress, RunContext(run.folder.path))
            tasks = await stack.enter_async_context(opening)
            tasks.check(samples)
            run.progress.stage("reach the endpoint")
            await client.open(tasks.only.manager.specs if len(tasks.by_name) == 1 else ())
            evaluator = Evaluator(
                tasks,
                lambda sample, **how: tasks.of(sample).play(sample, client, **how),
                samples,
                run.config.seed,
                run.progress,
                counts_samples=True,
            )
            recorder = Recorder(run.folder, run.progress, tasks.success, remedies=[Remedies(served=True)])
            found = await evaluator.evaluate("", "after", evaluation_passes(run, "after"), recorder, intervals=True)
            recorder.advise("the evaluation")
            return found


@dataclass(slots=True)
class HeldOutLoss:
    """Plays a source's held-out demonstrations once, and then scores them each time; in all processes together."""

    engine: Engine
    source: Source
    method: Imitation
    _rows: Sequence[TrainSequence] | None = field(default=None, init=False)  # this process's share

    async def metrics(self) -> Mapping[str, float]:
        """``eval/nll``, the mean over all tokens, in the first process; empty if there is none."""
        if self._rows is None:
            self._rows = await self._play()
        found = [logprobs for part in self._parts() for logprobs in await self.engine.score(part)]
        shares = await self.engine.processes.gather((fsum(map(fsum, found)), sum(map(len, found))))
        tokens = sum(count for _, count in shares)
        return {"eval/nll": -fsum(total for total, _ in shares) / tokens} if tokens else {}

    async def _play(self) -> Sequence[TrainSequence]:
        samples = self.engine.processes.share(self.source.held_out[:LOSS_SAMPLES])
        how = {"attempts": 1, "temperature": 0.0, "seed": 0}
        groups = await gather_all(
            self.source.play(sample, session=f"held-out/{number}", **how) for number, sample in enumerate(samples)
        )
        return [row for batch in self.method.batches(groups, 0)[:1] for row in batch.sequences]

    def _parts(self) -> Iterator[list[TrainSequence]]:
        """The rows, in parts that fit a micro-batch."""
        part: list[TrainSequence] = []
        for row in self._rows or ():
            if part and sum(len(each.ids) for each in (*part, row)) > self.method.train.microbatch_tokens:
                yield part
                part = []
            part.append(row)
        if part:
            yield part
