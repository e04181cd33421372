"""The evaluation of a policy: before, between and after a training, and of a model behind a server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rlfactory_core.algo.evaluation import EvalPass, summarise
from rlfactory_core.engines.base import ALONE, Processes
from rlfactory_core.protocols import ChatFormat
from rlfactory_core.reporting.metrics import eval_metrics
from rlfactory_core.reporting.progress import Progress
from rlfactory_core.reporting.trajectories import stored
from rlfactory_core.tasks.opening import OpenTasks
from rlfactory_core.training.playing import Play
from rlfactory_core.training.record import Recorder
from rlfactory_core.training.stopping import Ended, Until
from rlfactory_core.types import Group, Sample
from rlfactory_core.utils.aio import gather_all
from rlfactory_core.utils.seeds import derive_seed


@dataclass(frozen=True, slots=True)
class HeldOut:
    """What an evaluation between steps has found, if one was due; ``ended`` and ``best`` are so in all processes.

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
    """

    tasks: OpenTasks
    play: Play
    samples: Sequence[Sample]
    seed: int
    progress: Progress
    processes: Processes = ALONE
    expect: Callable[[Iterable[str]], None] = lambda _sessions: None
    counts_samples: bool = False

    async def groups(self, how: EvalPass) -> list[Group]:
        """The groups of a pass of all processes, on rank 0; on the others none."""
        share = self.processes.share(list(enumerate(self.samples)))
        self.expect(f"{how.name}/{index}/{attempt}" for index, _ in share for attempt in range(how.attempts))
        played = await gather_all(self._played(how, index, sample) for index, sample in share)
        return [group for part in await self.processes.gather(played) for group in part]

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
            measured: passes that were played with these weights already: prefix -> groups, see `HeldOut`.
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
        """The evaluation that is due after a step: after every n-th, or ``now``; 0: never."""
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
