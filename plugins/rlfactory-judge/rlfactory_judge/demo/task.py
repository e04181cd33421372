"""The demo: a catalogue with a ``look_up`` tool, and a judge that decides whether an answer is right."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import lru_cache
from typing import Any

from rlfactory_core import Message, Sample, Section, Task, ToolContext, tool
from rlfactory_core.errors import UsageError
from rlfactory_core.tiny import TinyModelRecipe
from rlfactory_judge.contract import JudgePlace
from rlfactory_judge.demo.judge_model import HIGH, LOW, RUBRIC, judge_model, labels_file
from rlfactory_judge.demo.policy import next_turn, recipe
from rlfactory_judge.demo.world import NOTHING, Catalogue, Names

TRAIN_CATALOGUES, TRAIN_SAMPLES = 12, 100  # catalogues that GRPO trains on, and questions about each
EVAL_SAMPLES = 96  # questions about one more
MIN_KAPPA = 0.6  # of the judge, before a policy is trained against it
TWO_HOP = 0.6  # share of the questions that need two records
DESCRIPTION = "Look up one record of the catalogue."
JUDGE = {"rubric": str(RUBRIC), "low": LOW, "high": HIGH, "max_tokens": 32, "cache": "memory"}


class JudgeDemo(Task):
    """The judge's score is the reward. Exact match is measured too, with a weight of 0."""

    class Config(Section):
        """The demo has no options of its own."""

    rewards = {"judge": 1.0, "format": 0.1, "exact_match": 0.0}
    defaults = {
        "rewards": [
            {"name": "judge", "weight": 1.0, "deadline_s": 300.0, **JUDGE},
            {"name": "format", "weight": 0.1},
            {"name": "exact_match", "weight": 0.0},
        ],
        "rollout": {"max_turns": 4, "max_tool_calls": 3},
    }
    tiny_defaults = {
        "rollout": {"max_turn_tokens": 40, "max_tokens": 448},
        "train": {
            "steps": 50,
            "until": {"exact_match": 0.97, "sampled/exact_match": 0.9},
            "prompts_per_step": 8,
            "updates_per_step": 4,
            "lr": 1e-3,
            "muon_lr": 4e-3,
            "schedule": "linear",
            "workers": 2,  # each has its own judge's server
        },
        "eval": {"every": 10, "limit": 200, "attempts": 1},
    }

    def __init__(self, config: Mapping[str, Any] | None = None, seed: int = 0) -> None:
        super().__init__(config, seed)
        self.tools = [tool(self.look_up, name="look_up", description=DESCRIPTION, idempotent=True, stateful=True)]
        self._serving = AsyncExitStack()
        self._place: JudgePlace | None = None

    async def serve_judge(self) -> JudgePlace:
        """See `contract.JudgeHost`: a server for this process, with the model from the cache, or trained now."""
        if self._place is None:
            from rlfactory_judge.serving.servers import local_server

            folder = judge_model(self.seed, self.progress)
            self.progress.stage("start the judge's server")
            server = await self._serving.enter_async_context(local_server(folder))
            self._place = JudgePlace(server.url, server.model, labels_file(self.seed), MIN_KAPPA)
        return self._place

    async def close(self) -> None:
        self._place = None
        await self._serving.aclose()

    async def look_up(self, name: str, context: ToolContext) -> str:
        """Find a record.

        Args:
            name: whose record.
        """
        return self.catalogue(context.sample.metadata["catalogue"]).look_up(name)

    async def look_up_nothing(self, name: str) -> str:
        """Find no record.

        Args:
            name: whose record.
        """
        return NOTHING

    def controls(self) -> Mapping[str, Sequence[Any]]:
        return {"empty_catalogue": [tool(self.look_up_nothing, name="look_up", description=DESCRIPTION)]}

    def check(self, samples: Sequence[Sample]) -> None:
        strangers = [sample.id for sample in samples if "catalogue" not in sample.metadata]
        if strangers:
            raise UsageError(
                f"The demo's tool has no catalogue for sample '{strangers[0]}': plugin 'judge' plays only questions of "
                "its own. For data of your own use the reward `judge` with another plugin, such as --plugin search."
            )

    @lru_cache(maxsize=64)  # noqa: B019 - one task lives as long as its process
    def catalogue(self, name: str) -> Catalogue:
        return Catalogue.make(Names.make(self.seed), name)

    def samples(self, split: str) -> Iterable[Sample]:
        """Training questions about several catalogues; evaluation questions about a separate one."""
        rng = random.Random(f"samples {split} {self.seed}")
        names, count = ["eval"], EVAL_SAMPLES
        if split == "train":
            names, count = [f"train-{number}" for number in range(TRAIN_CATALOGUES)], TRAIN_SAMPLES
        for name in names:
            yield from self.catalogue(name).samples(split, rng, count, TWO_HOP)

    def solve(self, sample: Sample, messages: Sequence[Message]) -> Message:
        question = self.catalogue(sample.metadata["catalogue"]).question(sample.messages[-1].content)
        return next_turn(question, sum(message.role == "tool" for message in messages))

    def tiny_model(self) -> TinyModelRecipe | None:
        return recipe(Names.make(self.seed), self.tools[0].spec)
