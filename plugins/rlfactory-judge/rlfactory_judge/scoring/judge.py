"""The modes that judge single attempts, and what all modes share: the service, the rubric, and failures."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from rlfactory_core.errors import VerifierError
from rlfactory_core.protocols import PoolRequest
from rlfactory_core.types import Score, Trajectory, Verdict
from rlfactory_judge.contract import BudgetError, JudgeHost, RejectedError, Reply, UnavailableError
from rlfactory_judge.forms import Form, ScoreForm, TurnScoresForm, UnreadableError
from rlfactory_judge.options import JudgeOptions
from rlfactory_judge.rubrics.injections import injections
from rlfactory_judge.service.service import JudgeService, majority, medians, poll

if TYPE_CHECKING:
    from rlfactory_core import RunContext, Task
    from rlfactory_judge.rubrics.rubric import Rubric

_SHOWN = 600  # characters of the judge's reply in a verdict


class Judge:
    """A reward from a model's replies. The subclasses define the question. Call `open` first."""

    opinion: ClassVar[bool] = True  # right answers need not get the highest score

    def __init__(self, options: JudgeOptions, rubric: Rubric, service: JudgeService) -> None:
        self.options, self.rubric, self.service = options, rubric, service
        self._run: RunContext | None = None  # that may have to stop
        self._readable: set[str] = set()  # the samples of which an attempt was judged
        # By sample, the questions without a reply.
        self._asking: defaultdict[str, set[asyncio.Future[None]]] = defaultdict(set)

    @property
    def deadline_s(self) -> float:
        """The default deadline: the time of all requests of a question, and as much to wait for a free slot."""
        return 2.0 * self.options.request_s * (self.options.retries + 1)

    @property
    def injections(self) -> tuple[str, ...]:
        """Texts that `rlfactory plugins redteam` adds to wrong answers, in addition to its own."""
        return tuple(each.text for each in injections())

    @property
    def pool(self) -> PoolRequest | None:
        """With ``placement: pool``, the GPUs on which the engine serves the judge's model."""
        if self.options.placement != "pool":
            return None
        assert self.options.model is not None  # make_judge has checked it
        return PoolRequest(self.options.model, self.options.gpus, self.options.tensor_parallel)

    def use_pool(self, urls: Sequence[str], model: str) -> None:
        """Use one of these servers, which the engine has started for `pool`. Call it before `open`.

        Each process that scores draws its own, so that all of them are used.
        """
        self.service.use_endpoint(random.SystemRandom().choice(urls), model)

    async def open(self, task: Task) -> None:
        """Connect to the judge, and measure it if the options require that.

        Raises:
            UsageError: an unknown address or model, or a judge that agrees too little with the labels.
            BackendError: the judge does not answer.
        """
        self._run = task.run
        options = self.options
        is_named = options.placement == "pool" or (options.url, options.model) != (None, None)
        if isinstance(task, JudgeHost) and not is_named:
            place = await task.serve_judge()
            self.service.use_endpoint(place.url, place.model)
            if options.labels is None:
                trust = {"labels": place.labels, "min_kappa": place.min_kappa}
                self.options = options.model_copy(update=trust)
        await self.service.open(task.run.folder)
        if self.options.labels is not None:
            from rlfactory_judge.trust.gate import check_trust

            await check_trust(self.service, self.rubric, self.options, progress=task.progress, folder=task.run.folder)

    async def close(self) -> None:
        await self.service.close()

    async def _judged(self, trajectory: Trajectory, form: Form) -> tuple[list[Reply], dict[str, float]] | Score:
        """The votes on an attempt and their cost, or its score without them.

        A policy must not be able to have its attempt masked, by an answer that is too long or that spoils the judge's
        reply. So an attempt that cannot be judged gets the lowest score once another one of the same sample was judged.
        """
        if (known := score_without_judge(trajectory)) is not None:
            return known
        question = self.rubric.question(trajectory, form)
        sample, own = trajectory.sample.id, asyncio.get_running_loop().create_future()
        self._asking[sample].add(own)
        failure: VerifierError
        try:
            found = await poll(self.service, question, self.options.votes)
            self._readable.add(sample)
            return found
        except (BudgetError, UnavailableError) as outage:
            self.stop_after(outage)
            raise
        except (UnreadableError, RejectedError) as error:
            failure = error
        finally:
            own.set_result(None)
            self._asking[sample].discard(own)
        if sample not in self._readable and self._asking[sample]:
            await asyncio.wait(list(self._asking[sample]))
        if sample not in self._readable:
            raise failure
        return Score(0.0, verdicts={"judge": alone_unreadable(failure)}, counts=failure.counts)

    def stop_after(self, failure: BudgetError | UnavailableError) -> None:
        """Stop the run, once, if `on_budget` or `on_outage` says so. The failure masks the attempts in any case."""
        options = self.options
        if isinstance(failure, BudgetError):
            way, why = options.on_budget, f"The judge's token_budget of {options.token_budget} is spent. To go on, set"
            why += " a larger one, or on_budget=mask"
        else:
            way, why = options.on_outage, f"The judge does not answer: {failure} To go on, start it again, or set"
            why += " on_outage=mask"
        if way == "stop" and self._run is not None:
            self._run.request_stop(f"{why}, among the rewards of config.yaml in the run's folder.")
            self._run = None

    def verdict(self, value: float, replies: Sequence[Reply], **data: object) -> Verdict:
        """The verdict for a score, with the judge's replies and their cost."""
        first = replies[0]
        facts: dict[str, object] = {
            "prompt_tokens": sum(reply.prompt_tokens for reply in replies),
            "sampled_tokens": sum(reply.sampled_tokens for reply in replies),
            "endpoint": first.endpoint,
            "cached": all(reply.cached for reply in replies),
            **data,
        }
        if first.reasoning:
            facts["reasoning"] = shortened(first.reasoning)
        return Verdict(value >= self.options.threshold, (shortened(first.text),), facts)


def alone_unreadable(failure: object) -> Verdict:
    """The verdict on an attempt that cannot be judged, while others at the same sample can."""
    why = f"other attempts at this sample could be judged, and this one not: {failure}"
    return Verdict(passed=False, reasons=(why,))


def score_without_judge(trajectory: Trajectory) -> Score | None:
    """The score of an attempt that is masked already, or wrote nothing and so failed; None: ask the judge."""
    messages = [turn.message for turn in trajectory.turns]
    if trajectory.masked:
        verdict = Verdict(passed=None, reasons=("not asked: a fault has masked the attempt already",))
    elif not any(one.content.strip() or one.reasoning.strip() or one.tool_calls for one in messages):
        verdict = Verdict(passed=False, reasons=("not asked: the attempt wrote nothing",))
    else:
        return None
    return Score(0.0, verdicts={"judge": verdict})


def shortened(text: str) -> str:
    """The beginning and end of a text in one line; a model's conclusion is usually at the end."""
    line = " ".join(text.split())
    half = _SHOWN // 2
    return line if len(line) <= _SHOWN else f"{line[:half]} … {line[-half:]}"


class OutcomeJudge(Judge):
    """Mode ``outcome``: scores an attempt as a whole by the median vote; it passes if most reach the threshold."""

    async def verify(self, trajectory: Trajectory) -> Verdict:
        """See `protocols.Verifier`."""
        return (await self.score(trajectory)).verdicts["judge"]

    async def score(self, trajectory: Trajectory) -> Score:
        """See `protocols.RewardScorer`."""
        found = await self._judged(trajectory, ScoreForm(self.options.low, self.options.high))
        if isinstance(found, Score):
            return found
        votes, counts = found
        (value,) = medians(votes)
        each = [vote.values[0] for vote in votes]
        verdict = self.verdict(value, votes, raw=self.options.on_scale(value), votes=each)
        verdict = replace(verdict, passed=majority(votes, self.options.threshold))
        spread = {"spread": max(each) - min(each)} if self.options.votes > 1 else {}
        return Score(value, spread, verdicts={"judge": verdict}, counts=counts)


class ProcessJudge(Judge):
    """Mode ``process``: one question about all turns.

    A turn's reward is its score in [0, 1] divided by the number of turns. The sum is the mean, so that longer attempts
    do not get more reward for their length.
    """

    async def score(self, trajectory: Trajectory) -> Score:
        """See `protocols.RewardScorer`."""
        form = TurnScoresForm(len(trajectory.turns), self.options.low, self.options.high)
        found = await self._judged(trajectory, form)
        if isinstance(found, Score):
            return found
        votes, counts = found
        values = medians(votes)
        rewards = tuple(value / len(values) for value in values)
        verdict = self.verdict(sum(values) / len(values), votes, turns=values)
        return Score(0.0, turn_rewards=rewards, verdicts={"judge": verdict}, counts=counts)
