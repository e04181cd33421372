"""The training loop: roll out, score, batch and update; evaluate and save at intervals.

Every process runs this loop on its share of the prompts. Rank 0 also records, displays and saves.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import islice
from statistics import fmean
from typing import Any, NoReturn

from torch import Tensor

from rlfactory_core.algo.advantages import Advantage, Credit
from rlfactory_core.algo.batch import build_batches
from rlfactory_core.algo.masking import LONGEST_PAUSE_S, PAUSE_S, Counts, LostAttempts, in_vain
from rlfactory_core.algo.policy_moved import Moved
from rlfactory_core.algo.prompts import outcomes, teaches_nothing
from rlfactory_core.algo.turn_advantages import turn_rewards
from rlfactory_core.algo.until import Ended, Until
from rlfactory_core.engines.local.training.critic import Estimates
from rlfactory_core.engines.local.training.evaluations import Evaluation, Evaluations
from rlfactory_core.engines.local.training.group_queue import Flight, GroupQueue
from rlfactory_core.engines.local.training.moved import PolicyMovedProof
from rlfactory_core.engines.local.training.rollouts import Rollouts
from rlfactory_core.engines.local.training.update import Learner, OptimizerStep, summarise
from rlfactory_core.engines.local.training.workers import Compute
from rlfactory_core.engines.settings import EngineSettings
from rlfactory_core.errors import RunStopped, TrainingError
from rlfactory_core.reporting.metrics import group_metrics, tool_metrics
from rlfactory_core.reporting.progress import Progress
from rlfactory_core.types import Group, TrainBatch
from rlfactory_core.utils.aio import gather_all
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
class Outcome:
    """How the loop ended, in all processes.

    Args:
        evaluation: the one after the last step; of no pass if none was due then.
        pending: see `TrainerState.pending`.
        moved: the last comparison of the policy-moved proof; None if nothing was trained.
    """

    step: int
    ended: Ended
    evaluation: Evaluation
    pending: Sequence[int]
    moved: Moved | None


@dataclass(frozen=True, slots=True)
class Observer:
    """What the loop calls on rank 0."""

    progress: Progress
    on_step: Callable[[StepResult], None]
    save: Callable[[int, Sequence[int]], None]  # steps done, and `TrainerState.pending`
    best: Callable[[int], None] = lambda _step: None  # this step is saved, and has the best held-out result so far


@dataclass(slots=True)
class Trainer:
    """The loop; `run` runs it."""

    config: EngineSettings
    advantage: Advantage | None  # None: a critic takes its place
    rollouts: Rollouts
    learner: Learner
    compute: Compute
    observer: Observer
    stop: StopRequest  # this process's; if any process requests a stop, all stop after the same step
    _advantage: Advantage = field(init=False)
    _credit: Credit = field(init=False)
    _proof: PolicyMovedProof = field(init=False)
    _queue: GroupQueue = field(init=False)
    _losses: LostAttempts = field(default_factory=LostAttempts, init=False)
    _skipped_in_row: int = field(default=0, init=False)
    _index: dict[str, int] = field(init=False)  # of the training samples by their ids
    _evaluations: Evaluations = field(init=False)
    _evaluation: Evaluation = field(default_factory=Evaluation, init=False)  # after the last step so far
    _ended: Ended | None = field(default=None, init=False)
    _pending: Sequence[int] = field(default=(), init=False)  # on rank 0, after the last step so far

    def __post_init__(self) -> None:
        train, workers, settings = self.config.train, self.compute.workers, self.config.eval
        until = Until(train.until, train.patience, self.rollouts.runtime.success, settings.attempts)
        self._advantage = self._find_advantage()
        self._credit = Credit(train.gamma, train.turn_weight)
        self._proof = PolicyMovedProof(self.learner.policy, self.rollouts.sampler, self.compute)
        self._index = {sample.id: index for index, sample in enumerate(self.rollouts.samples)}
        self._evaluations = Evaluations(self.rollouts, self.compute, until, settings.every)
        self._queue = GroupQueue(len(workers.share(range(train.prompts_per_step))), train.staleness)

    def _find_advantage(self) -> Advantage:
        """That of ``train.advantage``; a critic gets the rewards of turns in its place."""
        return self.advantage or (lambda trajectories, _credit: [turn_rewards(each) for each in trajectories])

    def state(self) -> dict[str, Any]:
        """For a checkpoint: what the loop knows besides weights and optimizer."""
        ended = asdict(self._ended) if self._ended else None
        calls = self._losses.answered, self._losses.failed
        own = {"until": self._evaluations.until.state(), "rollouts": self.rollouts.state()}
        return {**own, "ended": ended, "calls": calls}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint's state; a training that had ended has ended, unless its goals are others now."""
        self.rollouts.load(state["rollouts"])
        self._losses.answered, self._losses.failed = map(Counter, state.get("calls", ((), ())))
        same = self._evaluations.until.load(state["until"])
        self._ended = Ended(**state["ended"]) if state["ended"] and same else None

    async def run(self, first: int, last: int, pending: Sequence[int] = ()) -> Outcome:
        """Steps ``first`` … ``last``, or fewer: see `Until`.

        Args:
            pending: positions of prompts that were begun before ``first`` and not trained; they come first.

        Raises:
            TrainingError: too many steps in a row were skipped, or a step lost too many trajectories each time.
            RunStopped: a stop was requested, perhaps before the first step.
        """
        if await self.compute.any(self.stop.requested):
            await self._stop(f"Stopped before step {first}.")
        begun, step = self._batches(first, last, pending), first - 1
        try:
            while step < last and self._ended is None:
                step += 1
                for batch in islice(begun, 1 + self.config.train.staleness if step == first else 1):
                    self.rollouts.draw(batch)
                    for position in self.compute.workers.share(batch):
                        self._queue.add(position, step, self.rollouts.start(position))
                await self._step(step)
        finally:
            await self._queue.close()
        ended = self._ended or Ended("steps", f"did all {last} steps")
        return Outcome(step, ended, self._evaluation, self._pending, self._proof.found)

    def _batches(self, first: int, last: int, pending: Sequence[int]) -> Iterator[list[int]]:
        """The positions of the prompts of one step after the other, of all processes."""
        size = self.config.train.prompts_per_step
        new = range((first - 1) * size + len(pending), last * size)
        positions = [*pending, *new]
        for start in range(0, len(positions), size):
            yield positions[start : start + size]

    async def _again(self, step: int, replay: int, taken: Sequence[Flight]) -> list[Flight]:
        """After a pause, since what masked so many trajectories may be over then."""
        everything = await self.compute.gather(([each.group for each in taken], self._untrained(taken)))
        groups = [group for part, _ in everything for group in part]
        lost = self._losses.text(trajectory for group in groups for trajectory in group.trajectories)
        pending = sorted(position for _, part in everything for position in part)
        if await self.compute.any(self.stop.requested):
            await self._stop(f"Stopped before the update of step {step}.{await self._saved_before(step, pending)}")
        if wrong := in_vain(trajectory for group in groups for trajectory in group.trajectories):
            raise TrainingError(f"Step {step} cannot be trained on: {wrong}.{await self._saved_before(step, pending)}")
        if replay >= self.config.train.max_skipped:
            raise TrainingError(
                f"Step {step} was played {replay} times, and each time more than a third of it was masked, or of those "
                f"that called a tool, or a tool failed. The last time, {lost}. "
                "What is left is a selection, so it is not trained on. "
                f"Mend the cause, then go on with --resume.{await self._saved_before(step, pending)}"
            )
        pause_s = backoff_s(replay, PAUSE_S, LONGEST_PAUSE_S, least=1.0)
        self.observer.progress.say(f"step {step}: {lost}. No update; it is played again in {pause_s:.0f} s.")
        end = time.monotonic() + pause_s
        while not self.stop.requested and (left := end - time.monotonic()) > 0:  # noqa: ASYNC110 - a signal sets it
            await asyncio.sleep(min(left, 0.2))
        again = GroupQueue(len(taken), 0)
        for each in taken:
            again.add(each.position, step, self.rollouts.start(each.position, replay))
        try:
            return await again.take(step)
        finally:
            await again.close()

    def _untrained(self, taken: Sequence[Flight] = ()) -> list[int]:
        """The positions of this process that are begun and not trained, with those of the step under way."""
        return [*self._queue.positions, *(each.position for each in taken)]

    async def _step(self, step: int) -> None:
        start, idle = time.perf_counter(), self.rollouts.sampler.idle_s
        taken = await self._queue.take(step)
        replays = 0
        while await self._lost_too_many(taken):
            replays += 1
            taken = await self._again(step, replays, taken)
        groups = [*(each.group for each in taken), *await self._refill(taken)]
        waited = time.perf_counter() - start
        ended = time.perf_counter() if len(groups) > len(taken) else max(each.ended for each in taken)
        rollout_s = ended - min(each.started for each in taken)
        train = self.config.train
        batches = build_batches(
            groups,
            advantage=self._advantage,
            credit=self._credit,
            zeros=self.learner.critic is not None,
            aggregation=train.aggregation,
            max_tokens=self.config.rollout.max_tokens,
            updates=train.updates_per_step,
            microbatch_tokens=train.microbatch_tokens,
            seed=derive_seed(self.config.seed, "batch", step, self.compute.workers.rank),
        )
        await self._proof.before(batches)
        update_start = time.perf_counter()
        update, context_tokens = await self._update(step, batches)
        update_s = time.perf_counter() - update_start
        await self._proof.after(step)
        self._evaluation = await self._evaluations.after(step)
        self._ended = self._evaluation.ended
        everything = await self.compute.gather((groups, self._untrained()))
        pending = sorted(position for _, part in everything for position in part)
        self._pending = pending
        all_groups = tuple(group for part, _ in everything for group in part)
        played = outcomes(all_groups, self.rollouts.runtime.success, self._index)
        self.rollouts.finish(*await self.compute.broadcast((played, pending)))
        if self.compute.workers.first:
            metrics = self._metrics(step, all_groups) | update | {"replays": float(replays)}
            metrics |= self._evaluation.metrics
            sampled = sum(trajectory.num_sampled for group in groups for trajectory in group.trajectories)
            size = self.compute.workers.size  # this process's tokens, scaled to all
            metrics |= {
                "rollout_s": rollout_s,
                "rollout_wait_s": waited,
                "sampler_idle_s": self.rollouts.sampler.idle_s - idle,
                "update_s": update_s,
                "sampled_tokens_s": sampled * size / max(rollout_s, 1e-9),
                "trained_tokens_s": context_tokens * size / max(update_s, 1e-9),
                "step_s": time.perf_counter() - start,
            }
            self.observer.on_step(StepResult(step, all_groups, metrics))
        self._check_skipped(update, step)
        await self._save_or_stop(step, pending)

    async def _refill(self, taken: Sequence[Flight]) -> list[Group]:
        """Groups in the place of those that teach nothing, of this process."""
        train, latest, found = self.config.train, {each.position: each.group for each in taken}, list[Group]()
        for number in range(1, train.refill_factor if train.refill else 1):
            again = [
                position for position, group in latest.items() if teaches_nothing(group, self._advantage, self._credit)
            ]
            played = await gather_all(self.rollouts.start(position, refill=number) for position in again)
            latest = dict(zip(again, played, strict=True))
            found += played
        return found

    async def _lost_too_many(self, taken: Sequence[Flight]) -> bool:
        """Whether so many trajectories of all processes are masked that the step is not trained on."""
        counts = Counts.of(trajectory for each in taken for trajectory in each.group.trajectories)
        everything = sum(await self.compute.gather(counts), Counts())  # of no one, in another process than the first
        return await self.compute.broadcast(self._losses.too_many(everything))

    async def _update(self, step: int, batches: Sequence[TrainBatch]) -> tuple[dict[str, float], int]:
        """``updates_per_step`` optimizer steps, even if this process has fewer batches.

        Returns:
            The metrics, and the number of all tokens that went through the model on this process.
        """
        learner = self.learner
        decoupled = learner.options.truncate is not None
        packed = [await self.compute.run(partial(learner.pack, batch)) for batch in batches]
        context = sum(int(p.flat_ids.numel() + p.prefix.numel()) for microbatches in packed for p in microbatches)

        def old_logprobs(index: int) -> list[Tensor | None]:
            again = decoupled and index > 0  # the first optimizer step computes them itself
            return [learner.old_logprobs(each) if again else None for each in packed[index]]

        old = [await self.compute.run(partial(old_logprobs, index)) for index in range(len(packed))]
        estimates: list[list[Estimates]] = []
        critic = learner.critic
        if critic is not None:
            packed, estimates = await self.compute.run(partial(critic.estimate, packed))
        critic_losses: list[float] = []
        updates = self.config.train.updates_per_step

        def optimize(index: int) -> OptimizerStep:
            here, before = (packed[index], old[index]) if index < len(packed) else ([], [])
            if critic is not None:
                critic_losses.append(critic.step(here, estimates[index] if index < len(packed) else []))
            result = learner.step(here, before)
            if index == updates - 1:  # on the same thread, so that no token is sampled in between
                self.rollouts.sampler.decoder.weights_changed(step)
            return result

        results = [await self.compute.run(partial(optimize, index)) for index in range(updates)]
        critical = {"critic_loss": fmean(critic_losses)} if critic_losses else {}
        return summarise(results) | critical, context

    def _metrics(self, step: int, groups: Sequence[Group]) -> dict[str, float]:
        train, refilled = self.config.train, float(len(groups) - self.config.train.prompts_per_step)
        trajectories = [t for group in groups for t in group.trajectories]
        lag = [step - 1 - version for t in trajectories for turn in t.turns for version in turn.token_versions]
        return {
            **group_metrics(groups),
            **tool_metrics(trajectories),
            **({"refilled_groups": refilled, "attempts": len(trajectories)} if train.refill else {}),
            "lr": self.learner.optimizer.lr,
            "staleness": sum(lag) / len(lag) if lag else 0.0,
            "staleness_max": float(max(lag, default=0)),
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

    async def _save_or_stop(self, step: int, pending: Sequence[int]) -> None:
        stop = await self.compute.any(self.stop.requested)
        every, best = self.config.checkpoint.every, self._evaluation.best
        if stop or best or (every and step % every == 0):
            await self._save(step, pending)
        if best and self.compute.workers.first:
            await self.compute.run(lambda: self.observer.best(step))
        if stop:
            await self._stop(f"Stopped after step {step}, which is saved.")

    async def _saved_before(self, step: int, pending: Sequence[int]) -> str:
        """Save the steps before this one, if there are any, and say so."""
        if step == 1:
            return ""
        await self._save(step - 1, pending)
        return f" Step {step - 1} is saved."

    async def _save(self, step: int, pending: Sequence[int]) -> None:
        if self.compute.workers.first:
            await self.compute.run(lambda: self.observer.save(step, pending))

    async def _stop(self, what: str) -> NoReturn:
        reasons = await self.compute.gather(self.stop.reason)
        raise RunStopped(" ".join([what, *filter(None, reasons)][:2]))
