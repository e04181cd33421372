"""The demo: the search task's questions and tool, and a judge that decides whether an answer is right."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

from rlfactory_search import SearchTask

from rlfactory_core import Message, Sample, Section, Task
from rlfactory_core.errors import UsageError
from rlfactory_core.tiny import TinyModelRecipe
from rlfactory_judge.contract import JudgePlace
from rlfactory_judge.demo.judge_model import HIGH, LOW, RUBRIC, judge_model, labels_file

MIN_KAPPA = 0.6  # of the judge, before a policy is trained against it
JUDGE = {"rubric": str(RUBRIC), "low": LOW, "high": HIGH, "max_tokens": 32, "cache": "memory"}


class JudgeDemo(Task):
    """The search task, rewarded by the judge's score. Exact match is measured too, with a weight of 0."""

    class Config(Section):
        """The demo has no options of its own."""

    rewards = {"judge": 1.0, "format": 0.1, "exact_match": 0.0}
    defaults = {
        **SearchTask.defaults,
        "rewards": [
            {"name": "judge", "weight": 1.0, "deadline_s": 300.0, **JUDGE},
            {"name": "format", "weight": 0.1},
            {"name": "exact_match", "weight": 0.0},
        ],
    }
    tiny_defaults = {
        "rollout": SearchTask.tiny_defaults["rollout"],
        "train": {
            "steps": 60,
            "until": {"exact_match": 0.97, "sampled/exact_match": 0.9},
            "prompts_per_step": 8,
            "updates_per_step": 4,
            "lr": 1e-3,
            "muon_lr": 4e-3,
            "schedule": "linear",
            "workers": 2,  # each has its own judge's server
        },
        "eval": {"every": 10, "limit": 100, "attempts": 1},
    }

    def __init__(self, config: Mapping[str, Any] | None = None, seed: int = 0) -> None:
        super().__init__(config, seed)
        self._search = SearchTask(seed=seed)
        self.tools = self._search.tools
        self._serving = AsyncExitStack()
        self._place: JudgePlace | None = None

    async def serve_judge(self) -> JudgePlace:
        """See `contract.JudgeHost`: a server for this process, with the model from the cache, or trained now."""
        if self._place is None:
            from rlfactory_judge.demo.server import local_server

            folder = judge_model(self.seed, self.progress)
            self.progress.stage("start the judge's server")
            url = await self._serving.enter_async_context(local_server(folder))
            self._place = JudgePlace(url, str(folder), labels_file(self.seed), MIN_KAPPA)
        return self._place

    async def close(self) -> None:
        self._place = None
        await self._serving.aclose()

    def controls(self) -> Mapping[str, Sequence[Any]]:
        return self._search.controls()

    def check(self, samples: Sequence[Sample]) -> None:
        strangers = [sample.id for sample in samples if "world" not in sample.metadata]
        if strangers:
            raise UsageError(
                f"The demo has no world to search for sample '{strangers[0]}': plugin 'judge' plays only questions of "
                "its own. For data of your own use the reward `judge` with another plugin, such as --plugin search."
            )

    def samples(self, split: str) -> Iterable[Sample]:
        return self._search.samples(split)

    def solve(self, sample: Sample, messages: Sequence[Message]) -> Message:
        return self._search.solve(sample, messages)

    def tiny_model(self) -> TinyModelRecipe | None:
        return self._search.tiny_model()
