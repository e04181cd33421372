"""The training loop: play groups of attempts, give their tokens credit, update, publish, record, evaluate, save.

Every process of a run executes it on its share of the prompts; the first also records, shows and saves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from rlfactory_core.algo.prompts import outcomes
from rlfactory_core.engines.base import Engine
from rlfactory_core.engines.settings import EngineSettings
from rlfactory_core.errors import RunStopped
from rlfactory_core.reporting.trajectories import stored
from rlfactory_core.training.checkpoints import BEST, mark_best, save_checkpoint
from rlfactory_core.training.evaluation import Evaluator, HeldOut, HeldOutLoss
from rlfactory_core.training.methods import Method
from rlfactory_core.training.place import Place
from rlfactory_core.training.playing import GroupInFlight, Playing
from rlfactory_core.training.proof import PolicyMovedProof
from rlfactory_core.training.record import Recorder, StepClock, step_metrics
from rlfactory_core.training.stopping import Stopping
from rlfactory_core.types import Group


@dataclass(slots=True)
class Loop:
    """A training whose parts are all open.

    Args:
        decode: gives the text of ids.
        folder: of the checkpoints.
        place: among the run's stages, of which this training is one.
        recorder: in the first process only.
        loss: on held-out demonstrations, measured in each evaluation; None: there are none.
    """

    engine: Engine
    config: EngineSettings
    method: Method
    playing: Playing
    evaluator: Evaluator
    proof: PolicyMovedProof
    stopping: Stopping
    decode: Callable[[Sequence[int]], str]
    folder: Path
    place: Place
    recorder: Recorder | None
    loss: HeldOutLoss | None = None
    held_out: HeldOut = field(default_factory=HeldOut, init=False)  # after the last step so far
    _postponed: bool = field(default=False, init=False)  # the evaluation after the last step was interrupted
    _pending: Sequence[int] = field(default=(), init=False)  # positions begun and not trained, in the first process

    async def run(self, first: int, last: int, pending: Sequence[int] = ()) -> int:
        """Train steps ``first`` … ``last``, or fewer: see `Stopping`. Returns the last one that is done, and saved.

        Args:
            pending: positions of prompts that were begun before ``first`` and not trained; they come first.

        Raises:
            TrainingError: too many steps in a row were skipped, or a step lost too many trajectories each time.
            RunStopped: a stop was requested, perhaps before the first step.
        """
        if await self.stopping.requested():
            await self.stopping.stop(f"Stopped before step {first}.")
        if self._postponed:
            await self._evaluate_late(first - 1)
        self.playing.plan(first, last, pending)
        step = first - 1
        try:
            while step < last and self.stopping.ended is None:
                step += 1
                self.playing.begin(step)
                await self._step(step)
        finally:
            await self.playing.queue.close()
        if step >= first and not self._is_saved(step):
            await self._save(step, self._pending)
        return step

    async def _step(self, step: int) -> None:
        clock = StepClock()
        taken, replays = await self._played(step)
        groups = [*(each.group for each in taken), *await self.playing.refill(taken, self.method.teaches_nothing)]
        clock.played(taken, groups)
        batches = self.method.batches(groups, step)
        await self.proof.before(batches)
        with clock.update():
            update = await self.engine.update(batches)
            await self.engine.publish(step)
        await self.proof.after(step)
        held_out = await self._evaluate(step)
        everything, self._pending = await self._everything(groups, self.playing.untrained())
        played = outcomes(everything, self.evaluator.tasks.success, self.playing.index)
        self.playing.finish(*await self.engine.processes.broadcast((played, self._pending)))
        if self.recorder is not None:
            played_by = step_metrics(step, everything, self.config.train) if self.method.plays else {}
            numbers = {**played_by, **self.method.metrics(everything), **update, **held_out}
            numbers |= {"replays": float(replays), **clock.metrics(groups, self.engine.processes.size)}
            self.stopping.left_out(step, everything, self.method.left_out(everything))
            self.stopping.guard(self.recorder.step(step, everything, numbers, stored(everything, self.decode)))
        self.stopping.check_skipped(update, step)
        await self._save_or_stop(step)

    async def _evaluate(self, step: int) -> Mapping[str, float]:
        """The held-out metrics after a step, if they are due, in the first process; an interruption postpones them."""
        ends = not self.place.is_last and step == self.place.last(self.config.train.steps)
        try:
            self.held_out = await self.evaluator.between(step, self.config.eval.every, self.stopping.until, now=ends)
        except RunStopped:
            self.held_out, self._postponed = HeldOut(), True
            return {}
        self._postponed, self.stopping.ended = False, self.held_out.ended
        loss = await self.loss.metrics() if self.loss is not None and self.held_out.groups else {}
        return {**self.held_out.metrics, **loss}

    async def _evaluate_late(self, step: int) -> None:
        """The evaluation after a step that was saved without it."""
        metrics = await self._evaluate(step)
        if self._postponed:
            await self.stopping.stop(f"Stopped in the evaluation after step {step}, which is saved.")
        if self.recorder is not None:
            self.recorder.evaluated_late(step, metrics)
        await self._mark_best(step)

    async def _mark_best(self, step: int) -> None:
        if self.held_out.best and self.recorder is not None:
            await self.engine.processes.run(lambda: mark_best(self.folder, step, keep=self._keep))
            self.recorder.progress.say(f"step {step} has the best held-out result so far: {self.folder / BEST}")

    async def _played(self, step: int) -> tuple[list[GroupInFlight], int]:
        """A step's groups; it is played again while it has lost too many of its attempts, here so many times."""
        taken, replays = await self.playing.queue.take(step), 0
        while await self.stopping.lost_too_many([each.group for each in taken]):
            replays += 1
            groups, pending = await self._everything([each.group for each in taken], self.playing.untrained(taken))
            await self.stopping.before_replay(step, replays, groups, partial(self._saved_before, step, pending))
            taken = await self.playing.again(taken, step, replays)
        return taken, replays

    async def _everything(self, groups: Sequence[Group], untrained: Sequence[int]) -> tuple[list[Group], list[int]]:
        """The groups of all processes, and their positions that are begun and not trained, in the first."""
        parts = await self.engine.processes.gather((groups, untrained))
        return [group for part, _ in parts for group in part], sorted(each for _, part in parts for each in part)

    def _is_saved(self, step: int) -> bool:
        every = self.config.checkpoint.every
        return self.held_out.best or bool(every and step % every == 0)

    async def _save_or_stop(self, step: int) -> None:
        stop = await self.stopping.requested()
        if stop or self._is_saved(step):
            await self._save(step, self._pending)
        await self._mark_best(step)
        if stop:
            await self.stopping.stop(f"Stopped after step {step}, which is saved.")

    async def _saved_before(self, step: int, pending: Sequence[int]) -> str:
        """Save the steps before this one, if there are any, and say so."""
        if step == 1:
            return ""
        await self._save(step - 1, pending)
        return f" Step {step - 1} is saved."

    @property
    def _keep(self) -> int:
        """Checkpoints to keep; the one of a stop is of no use if the run is rolled back."""
        return self.config.checkpoint.keep + (self.config.train.guard == "rollback")

    async def _save(self, step: int, pending: Sequence[int]) -> None:
        if self.recorder is not None:
            loop = {**self.stopping.state(), "rollouts": self.playing.state(), "postponed": self._postponed}
            run = {"step": step, "totals": self.recorder.totals_now(), "pending": list(pending), "loop": loop}
            run |= self.place.state()
            save = partial(save_checkpoint, self.folder, step, self.engine, run, keep=self._keep)
            await self.engine.processes.run(save)

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint's state."""
        if state:
            self.playing.load(state["rollouts"])
            self.stopping.load(state)
            self._postponed = state.get("postponed", False)
