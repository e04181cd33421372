"""The training loop: roll out, score, batch and update; evaluate and save at intervals.

Every process runs this loop on its share of the prompts. Rank 0 also records, displays and saves.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NoReturn

from torch import Tensor

from rlfactory_core.algo.batch import build_batches
from rlfactory_core.algo.evaluation import EvalPass
from rlfactory_core.algo.masking import LONGEST_PAUSE_S, PAUSE_S, masking_text, too_many
from rlfactory_core.config import RunConfig
from rlfactory_core.engines.local.model.pack import Packed
from rlfactory_core.engines.local.training.rollouts import Rollouts
from rlfactory_core.engines.local.training.update import Learner, summarise
from rlfactory_core.engines.local.training.workers import Compute
from rlfactory_core.errors import RunStopped, TrainingError
from rlfactory_core.reporting.metrics import eval_metrics, group_metrics, tool_metrics
from rlfactory_core.reporting.progress import Progress
from rlfactory_core.types import Group, TrainBatch
from rlfactory_core.utils.backoff import backoff_s
from rlfactory_core.utils.interrupt import StopRequest
from rlfactory_core.utils.seeds import derive_seed


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


@dataclass(slots=True)
class Trainer:
    """The loop; `run` runs it."""

    config: RunConfig
    rollouts: Rollouts
    learner: Learner
    compute: Compute
    observer: Observer
    stop: StopRequest  # this process's; if any process requests a stop, all stop after the same step
    _skipped_in_row: int = field(default=0, init=False)

    async def run(self, first: int, last: int) -> None:
        """Steps ``first`` … ``last``.

        Raises:
            TrainingError: too many steps in a row were skipped, or a step lost too many trajectories each time.
            RunStopped: a stop was requested, perhaps before the first step.
        """
        if await self.compute.any(self.stop.requested):
            await self._stop(f"Stopped before step {first}.")
        ahead: deque[asyncio.Task[tuple[list[Group], float]]] = deque()
        next_step = first
        try:
            for step in range(first, last + 1):
                while next_step <= last and len(ahead) <= self.config.train.staleness:
                    ahead.append(asyncio.create_task(self._collect(next_step)))
                    next_step += 1
                await self._step(step, ahead[0])  # it stays in the queue meanwhile, so that it is cancelled below
                ahead.popleft()
        finally:
            for task in ahead:
                task.cancel()
            await asyncio.gather(*ahead, return_exceptions=True)

    async def _collect(self, step: int, replay: int = 0) -> tuple[list[Group], float]:
        """This process's groups of a step, and the seconds they took."""
        start = time.perf_counter()
        return await self.rollouts.train(step, replay), time.perf_counter() - start

    async def _collect_again(self, step: int, replay: int, groups: Sequence[Group]) -> tuple[list[Group], float]:
        """After a pause, since what masked so many trajectories may be over then."""
        everything = await self.compute.gather(groups)
        lost = masking_text(trajectory for part in everything for group in part for trajectory in group.trajectories)
        if await self.compute.any(self.stop.requested):
            await self._stop(f"Stopped before the update of step {step}.{await self._saved_before(step)}")
        if replay >= self.config.train.max_skipped:
            raise TrainingError(
                f"Step {step} was played {replay} times, and more than a third of it was masked each time. "
                f"The last time, {lost}. What is left is a selection, so it is not trained on. "
                f"Mend the cause, then go on with --resume.{await self._saved_before(step)}"
            )
        pause_s = backoff_s(replay, PAUSE_S, LONGEST_PAUSE_S, least=1.0)
        self.observer.progress.say(f"step {step}: {lost}. No update; it is played again in {pause_s:.0f} s.")
        end = time.monotonic() + pause_s
        while not self.stop.requested and (left := end - time.monotonic()) > 0:  # noqa: ASYNC110 - a signal sets it
            await asyncio.sleep(min(left, 0.2))
        return await self._collect(step, replay)

    async def _step(self, step: int, collecting: asyncio.Task[tuple[list[Group], float]]) -> None:
        start = time.perf_counter()
        groups, rollout_s = await collecting
        replays = 0
        while await self._lost_too_many(groups):
            replays += 1
            groups, rollout_s = await self._collect_again(step, replays, groups)
        waited = time.perf_counter() - start
        train = self.config.train
        batches = build_batches(
            groups,
            advantage=train.advantage,
            aggregation=train.aggregation,
            updates=train.updates_per_step,
            microbatch_tokens=train.microbatch_tokens,
            seed=derive_seed(self.config.seed, "batch", step, self.compute.workers.rank),
        )
        update_start = time.perf_counter()
        update, context_tokens = await self._update(batches)
        self.rollouts.sampler.decoder.weights_changed(step)
        update_s = time.perf_counter() - update_start
        every = self.config.eval.every
        evaluation = await self.rollouts.evaluate(EvalPass(f"eval-{step}")) if every and not step % every else []
        everything = await self.compute.gather((groups, evaluation))
        if self.compute.workers.first:
            all_groups = tuple(group for part, _ in everything for group in part)
            metrics = self._metrics(step, all_groups) | update | {"replays": float(replays)}
            metrics |= eval_metrics([group for _, part in everything for group in part])
            seconds = {"rollout_s": rollout_s, "rollout_wait_s": waited, "update_s": update_s}
            sampled = sum(trajectory.num_sampled for group in groups for trajectory in group.trajectories)
            metrics |= self._speed(seconds, sampled, context_tokens) | {"step_s": time.perf_counter() - start}
            self.observer.on_step(StepResult(step, all_groups, metrics))
        self._check_skipped(update, step)
        await self._save_or_stop(step)

    async def _lost_too_many(self, groups: Sequence[Group]) -> bool:
        """Whether so many trajectories of all processes are masked that the step is not trained on."""
        masked = [trajectory.masked for group in groups for trajectory in group.trajectories]
        counts = [float(sum(masked)), float(len(masked))]
        lost, total = await self.compute.run(lambda: self.compute.workers.sum(counts))
        return too_many(int(lost), int(total))

    async def _update(self, batches: Sequence[TrainBatch]) -> tuple[dict[str, float], int]:
        """``updates_per_step`` optimizer steps, even if this process has fewer batches.

        Returns:
            The metrics, and the number of all tokens that went through the model on this process.
        """
        learner, stale = self.learner, self.config.train.staleness > 0
        packed = [await self.compute.run(partial(learner.pack, batch)) for batch in batches]
        context = sum(int(p.flat_ids.numel() + p.prefix.numel()) for microbatches in packed for p in microbatches)

        def old_logprobs(microbatches: list[Packed]) -> list[Tensor | None]:
            return [learner.old_logprobs(packed) if stale else None for packed in microbatches]

        old = [await self.compute.run(partial(old_logprobs, microbatches)) for microbatches in packed]
        results = []
        for index in range(self.config.train.updates_per_step):
            here, before = (packed[index], old[index]) if index < len(packed) else ([], [])
            results.append(await self.compute.run(partial(learner.step, here, before)))
        return summarise(results), context

    def _metrics(self, step: int, groups: Sequence[Group]) -> dict[str, float]:
        trajectories = [t for group in groups for t in group.trajectories]
        lag = [step - 1 - turn.version for t in trajectories for turn in t.turns[:1]]
        return {
            **group_metrics(groups),
            **tool_metrics(trajectories),
            "lr": self.learner.optimizer.lr,
            "staleness": sum(lag) / len(lag) if lag else 0.0,
        }

    def _speed(self, seconds: Mapping[str, float], sampled: int, context: int) -> dict[str, float]:
        """Wall-clock figures of rank 0, with its own tokens; rates are scaled to all processes."""
        size = self.compute.workers.size
        return {
            **seconds,
            "sampled_tokens_s": sampled * size / max(seconds["rollout_s"], 1e-9),
            "trained_tokens_s": context * size / max(seconds["update_s"], 1e-9),
        }

    def _check_skipped(self, update: Mapping[str, float], step: int) -> None:
        whole = update["skipped"] == self.config.train.updates_per_step
        self._skipped_in_row = self._skipped_in_row + 1 if whole else 0
        if update["skipped"]:
            self.observer.progress.say(
                f"step {step}: {update['skipped']:.0f} update(s) skipped: gradient norm {update['grad_norm']:.3g} is "
                f"not finite or above train.explode_norm={self.config.train.explode_norm:g}"
            )
        if self._skipped_in_row >= self.config.train.max_skipped:
            raise TrainingError(
                f"{self._skipped_in_row} steps in a row were skipped for a NaN or exploding gradient (step {step}). "
                "The last good checkpoint is kept. Lower train.lr or raise train.warmup_steps, and go on with --resume."
            )

    async def _save_or_stop(self, step: int) -> None:
        stop = await self.compute.any(self.stop.requested)
        every = self.config.checkpoint.every
        if stop or (every and step % every == 0):
            await self._save(step)
        if stop:
            await self._stop(f"Stopped after step {step}, which is saved.")

    async def _saved_before(self, step: int) -> str:
        """Save the steps before this one, if there are any, and say so."""
        if step == 1:
            return ""
        await self._save(step - 1)
        return f" Step {step - 1} is saved."

    async def _save(self, step: int) -> None:
        if self.compute.workers.first:
            await self.compute.run(lambda: self.observer.save(step))

    async def _stop(self, what: str) -> NoReturn:
        reasons = await self.compute.gather(self.stop.reason)
        raise RunStopped(" ".join([what, *filter(None, reasons)][:2]))
