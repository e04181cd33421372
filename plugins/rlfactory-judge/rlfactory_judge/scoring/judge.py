"""What all modes of the judge have in common: its service, its rubric, its pool, and the start of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from rlfactory_core.protocols import PoolRequest
from rlfactory_core.types import Score, Trajectory, Verdict
from rlfactory_judge.contract import JudgeHost, Reply
from rlfactory_judge.options import JudgeOptions
from rlfactory_judge.rubrics.injections import injections
from rlfactory_judge.scoring.otherwise import Otherwise
from rlfactory_judge.service.service import JudgeService, RunPlace

if TYPE_CHECKING:
    from rlfactory_core.task import Task
    from rlfactory_judge.rubrics.rubric import Rubric

_SHOWN = 600  # characters of the judge's own words that a verdict holds


class Judge:
    """A reward that asks a model; see the subclasses for what it asks. `open` it before.

    Args:
        service: who is asked.
        rubric: what is asked.
    """

    opinion: ClassVar[bool] = True  # what is right is not certain to get the most

    def __init__(self, options: JudgeOptions, rubric: Rubric, service: JudgeService) -> None:
        self.options, self.rubric, self.service = options, rubric, service
        self._otherwise = Otherwise(options)

    @property
    def deadline_s(self) -> float:
        """Where the configuration gives the reward none: all requests of a question, and as long for a free place.

        The service bounds its requests itself. What is late here waits for a judge that cannot keep up.
        """
        return 2.0 * self.options.request_s * (self.options.retries + 1)

    @property
    def injections(self) -> tuple[str, ...]:
        """What `rlfactory plugins redteam` puts around wrong answers, beside texts of its own."""
        return tuple(each.text for each in injections())

    @property
    def pool(self) -> PoolRequest | None:
        """With ``placement: pool``, the GPUs that the engine is to serve the judge's model on."""
        if self.options.placement != "pool":
            return None
        assert self.options.model is not None  # make_judge has looked
        return PoolRequest(self.options.model, self.options.gpus, self.options.tensor_parallel)

    def use_pool(self, urls: Sequence[str], model: str) -> None:
        """Ask these servers, which the engine has started for `pool`; before `open`."""
        self.service.use_endpoints(urls, model)

    async def open(self, task: Task) -> None:
        """Reach the judge, and measure it where the options demand it.

        Raises:
            UsageError: an address or a model that there is not, or a judge that agrees too little with the labels.
            BackendError: no endpoint answers.
        """
        self._otherwise.use(task.run)
        if self._is_unnamed and isinstance(task, JudgeHost):
            place = await task.serve_judge()
            self.service.use_endpoints([place.url], place.model)
        await self.service.open(RunPlace(task.run.folder), task.progress.say)
        if self.options.labels is not None:
            from rlfactory_judge.trust.gate import check_trust

            say, folder = task.progress.say, task.run.folder
            await check_trust(self.service, self.rubric, self.options, say=say, folder=folder)

    async def close(self) -> None:
        await self.service.close()

    @property
    def _is_unnamed(self) -> bool:
        """Whether the options say nothing about who judges."""
        named = (self.options.url, self.options.endpoints, self.options.model)
        return self.options.placement == "endpoint" and named == (None, None, None)

    def verdict(self, value: float, replies: Sequence[Reply], **data: object) -> Verdict:
        """Passed from the threshold on, with the judge's words and what they cost."""
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


def unasked(trajectory: Trajectory) -> Score | None:
    """The score of an attempt about which there is nothing to ask; None: ask.

    One that is masked already costs the judge nothing: its number changes no update. One that wrote nothing has failed.
    """
    if trajectory.masked:
        return Score(
            0.0,
            verdicts={"judge": Verdict(passed=None, reasons=("not asked: a fault has masked the attempt already",))},
        )
    if not trajectory.turns:
        return Score(0.0, verdicts={"judge": Verdict(passed=False, reasons=("not asked: the attempt wrote nothing",))})
    return None


def shortened(text: str) -> str:
    """Its beginning and its end, in one line: what a model concludes stands at the end."""
    line = " ".join(text.split())
    half = _SHOWN // 2
    return line if len(line) <= _SHOWN else f"{line[:half]} … {line[-half:]}"
