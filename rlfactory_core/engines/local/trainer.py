"""The training loop: roll out, score, batch, update; evaluate and save now and then.

Every process runs this same loop on its share of the prompts. Rank 0 also writes, shows and saves.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import NoReturn, TypeVar

from torch import Tensor

from rlfactory_core.batch import BatchStats, build_batches
from rlfactory_core.config import RunConfig
from rlfactory_core.engines.local.evaluate import evaluate
from rlfactory_core.engines.local.pack import Packed
from rlfactory_core.engines.local.sampler import LocalSampler
from rlfactory_core.engines.local.update import Learner, UpdateMetrics, summarise
from rlfactory_core.engines.local.workers import Workers
from rlfactory_core.errors import RunStopped, TrainingError
from rlfactory_core.evaluation import EvalPass
from rlfactory_core.reporting.metrics import eval_metrics, group_metrics
from rlfactory_core.reporting.progress import Progress
from rlfactory_core.reporting.tool_metrics import tool_metrics
from rlfactory_core.rollout import derive_seed
from rlfactory_core.schedule import PromptSchedule
from rlfactory_core.stopping import StopButton
from rlfactory_core.task_runtime import TaskRuntime
from rlfactory_core.types import Group, Sample, TrainBatch

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StepResult:
    """One step, as rank 0 sees it; ``groups`` are those of all processes."""

    step: int
    groups: tuple[Group, ...]
    metrics: dict[str, float]


@dataclass(frozen=True, slots=True)
class Observer:
    """What the loop calls on rank 0."""

    progress: Progress
    on_step: Callable[[StepResult], None]
    save: Callable[[int], None]  # steps done


class Trainer:
    """Holds the parts; `run` is the loop.

    Args:
        compute: runs one thing at a time: decoding, updates and collectives.
        stop: of this process; asked in any of them, all stop after the same step.
        eval_samples: of the evaluations every ``eval.every`` steps; none: no such evaluations.
    """

    def __init__(
        self,
        config: RunConfig,
        runtime: TaskRuntime,
        sampler: LocalSampler,
        learner: Learner,
        workers: Workers,
        compute: Executor,
        observer: Observer,
        stop: StopButton,
        samples: Sequence[Sample],
        eval_samples: Sequence[Sample],
    ) -> None:
        self.config, self.runtime, self.sampler, self.learner = config, runtime, sampler, learner
        self.workers, self.observer, self.stop = workers, observer, stop
        self.samples, self.eval_samples = samples, eval_samples
        self._compute = compute
        self._skipped_in_row = 0
        self._schedule = PromptSchedule(len(samples), config.train.prompts_per_step, config.seed)

    async def on_compute(self, work: Callable[[], T]) -> T:
        """Run on the compute thread, where all collectives stand in the same order in every process."""
        return await asyncio.get_running_loop().run_in_executor(self._compute, work)

    async def run(self, first: int, last: int) -> None:
        """Steps ``first`` … ``last``.

        Raises:
            TrainingError: too many steps in a row were skipped.
            RunStopped: a stop was asked for, perhaps before the first step.
        """
        if await self._stop_asked():
            await self._stop(f"Stopped before step {first}.")
        ahead: deque[asyncio.Task[tuple[list[Group], float]]] = deque()
        next_step = first
        try:
            for step in range(first, last + 1):
                while next_step <= last and len(ahead) <= self.config.train.staleness:
                    ahead.append(asyncio.create_task(self._collect(next_step)))
                    next_step += 1
                await self._step(step, ahead[0])  # which stays there until then, so that it is cancelled below
                ahead.popleft()
        finally:
            for task in ahead:
                task.cancel()
            await asyncio.gather(*ahead, return_exceptions=True)

    async def _collect(self, step: int) -> tuple[list[Group], float]:
        """Roll out and score this process's share of the step's prompts; also the seconds it took."""
        start = time.perf_counter()
        size = self.config.train.group_size
        share = self.workers.share([(i, self.samples[at]) for i, at in enumerate(self._schedule.step(step))])
        self.sampler.expect(f"{step}/{index}/{attempt}" for index, _ in share for attempt in range(size))
        plays = [
            self.runtime.play(
                sample,
                self.sampler,
                attempts=size,
                temperature=self.config.rollout.temperature,
                seed=derive_seed(self.config.seed, "train", step, index),
                session=f"{step}/{index}",
            )
            for index, sample in share
        ]
        return list(await asyncio.gather(*plays)), time.perf_counter() - start

    async def _step(self, step: int, collecting: asyncio.Task[tuple[list[Group], float]]) -> None:
        start = time.perf_counter()
        groups, rollout_s = await collecting
        waited = time.perf_counter() - start
        train = self.config.train
        batches, stats = build_batches(
            groups,
            advantage=train.advantage,
            updates=train.updates_per_step,
            microbatch_tokens=train.microbatch_tokens,
            seed=derive_seed(self.config.seed, "batch", step, self.workers.rank),
        )
        update_start = time.perf_counter()
        update = await self._update(batches)
        self.sampler.decoder.weights_changed(step)
        update_s = time.perf_counter() - update_start
        evaluation = await self._evaluate(step)
        everything = await self.on_compute(lambda: self.workers.gather((groups, stats, evaluation)))
        if self.workers.first:
            metrics = self._metrics(step, [g for part, _, _ in everything for g in part], update)
            metrics |= eval_metrics([g for _, _, part in everything for g in part])
            metrics |= self._speed(everything[0][1], update, waited, rollout_s, update_s, time.perf_counter() - start)
            all_groups = tuple(g for part, _, _ in everything for g in part)
            self.observer.on_step(StepResult(step, all_groups, metrics))
        self._check_skipped(update, step)
        await self._save_or_stop(step)

    async def _update(self, batches: Sequence[TrainBatch]) -> UpdateMetrics:
        """``updates_per_step`` optimizer steps, also where this process has fewer batches."""
        learner, stale = self.learner, self.config.train.staleness > 0
        packed = [await self.on_compute(partial(learner.pack, batch)) for batch in batches]
        context = sum(int(p.flat_ids.numel() + p.prefix.numel()) for microbatches in packed for p in microbatches)

        def old_logprobs(microbatches: list[Packed]) -> list[Tensor | None]:
            return [learner.old_logprobs(packed) if stale else None for packed in microbatches]

        old = [await self.on_compute(partial(old_logprobs, microbatches)) for microbatches in packed]
        results = []
        for index in range(self.config.train.updates_per_step):
            here, before = (packed[index], old[index]) if index < len(packed) else ([], [])
            results.append(await self.on_compute(partial(learner.step, here, before)))
        return summarise(results, context)

    async def _evaluate(self, step: int) -> list[Group]:
        every = self.config.eval.every
        if not every or step % every or not self.eval_samples:
            return []
        how = EvalPass(f"eval-{step}")
        return await evaluate(self.eval_samples, how, self.runtime, self.sampler, self.workers, self.config.seed)

    def _metrics(self, step: int, groups: list[Group], update: UpdateMetrics) -> dict[str, float]:
        trajectories = [t for group in groups for t in group.trajectories]
        versions = [turn.version for t in trajectories for turn in t.turns[:1]]
        lag = [step - 1 - version for version in versions]
        return {
            **group_metrics(groups),
            **tool_metrics(trajectories),
            "loss": update.loss,
            "kl": update.kl,
            "grad_norm": update.grad_norm,
            "clip_fraction": update.clip_fraction,
            "entropy": update.entropy,
            "mismatch_kl": update.mismatch_kl,
            "importance_weight": update.mean_weight,
            "lr": self.learner.optimizer.lr,
            "staleness": sum(lag) / len(lag) if lag else 0.0,
            "skipped": float(update.skipped),
            "trained_tokens": float(update.trained_tokens),
        }

    def _speed(
        self, stats: BatchStats, update: UpdateMetrics, waited: float, rollout_s: float, update_s: float, step_s: float
    ) -> dict[str, float]:
        """Wall-clock figures of rank 0, rates scaled to all processes."""
        size = self.workers.size
        return {
            "rollout_s": rollout_s,
            "rollout_wait_s": waited,
            "update_s": update_s,
            "step_s": step_s,
            "sampled_tokens_s": stats.sampled_tokens * size / max(rollout_s, 1e-9),
            "trained_tokens_s": update.context_tokens * size / max(update_s, 1e-9),
        }

    def _check_skipped(self, update: UpdateMetrics, step: int) -> None:
        whole = update.skipped == self.config.train.updates_per_step
        self._skipped_in_row = self._skipped_in_row + 1 if whole else 0
        if update.skipped:
            self.observer.progress.say(
                f"step {step}: {update.skipped} update(s) skipped: gradient norm {update.grad_norm:.3g} is not finite "
                f"or above train.explode_norm={self.config.train.explode_norm:g}"
            )
        if self._skipped_in_row >= self.config.train.max_skipped:
            raise TrainingError(
                f"{self._skipped_in_row} steps in a row were skipped for a NaN or exploding gradient (step {step}). "
                "The last good checkpoint is kept. Lower train.lr or raise train.warmup_steps, and go on with --resume."
            )

    async def _save_or_stop(self, step: int) -> None:
        stop = await self._stop_asked()
        every = self.config.checkpoint.every
        if self.workers.first and (stop or (every and step % every == 0)):
            await self.on_compute(lambda: self.observer.save(step))
        if stop:
            await self._stop(f"Stopped after step {step}, which is saved.")

    async def _stop_asked(self) -> bool:
        """Whether somebody wants a stop; the same answer in all processes."""
        return (await self.on_compute(lambda: self.workers.sum([float(self.stop.asked)])))[0] > 0

    async def _stop(self, what: str) -> NoReturn:
        reasons = await self.on_compute(lambda: self.workers.gather(self.stop.reason))
        raise RunStopped(" ".join([what, *filter(None, reasons)][:2]))
