"""The demo: the search task's questions and tool, and a judge that decides whether an answer is right."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack

from rlfactory_search import SearchTask

from rlfactory_core import Sample
from rlfactory_core.errors import UsageError
from rlfactory_judge.contract import JudgePlace
from rlfactory_judge.demo.judge_model import HIGH, LOW, RUBRIC, judge_model, labels_file

MIN_KAPPA = 0.6  # of the judge, before a policy is trained against it
JUDGE = {"rubric": str(RUBRIC), "low": LOW, "high": HIGH, "max_tokens": 32, "cache": "memory"}


class JudgeDemo(SearchTask):
    """The search task, rewarded by the judge's score. Exact match is measured too, with a weight of 0."""

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

    _serving: AsyncExitStack | None = None
    _place: JudgePlace | None = None

    async def serve_judge(self) -> JudgePlace:
        """See `contract.JudgeHost`: a server for this process, with the model from the cache, or trained now."""
        if self._place is None:
            from rlfactory_judge.demo.server import local_server

            folder = judge_model(self.seed, self.progress)
            self.progress.stage("start the judge's server")
            self._serving = AsyncExitStack()
            url = await self._serving.enter_async_context(local_server(folder))
            self._place = JudgePlace(url, str(folder), labels_file(self.seed), MIN_KAPPA)
        return self._place

    async def close(self) -> None:
        self._place = None
        if self._serving is not None:
            await self._serving.aclose()
        await super().close()

    def check(self, samples: Sequence[Sample]) -> None:
        strangers = [sample.id for sample in samples if "world" not in sample.metadata]
        if strangers:
            raise UsageError(
                f"The demo has no world to search for sample '{strangers[0]}': plugin 'judge' plays only questions of "
                "its own. For data of your own use the reward `judge` with another plugin, such as --plugin search."
            )
