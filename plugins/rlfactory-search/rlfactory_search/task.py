"""The search task: answer questions with a ``search`` tool; the reward is exact match."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

from rlfactory_core import Message, Sample, Section, Task, ToolContext, tool
from rlfactory_core.errors import UsageError
from rlfactory_core.settings import File
from rlfactory_core.tiny import TinyModelRecipe
from rlfactory_search.corpus import FileCorpus
from rlfactory_search.demonstrations import next_turn
from rlfactory_search.retrievers import Retriever, make_retriever
from rlfactory_search.retrievers.base import format_hits
from rlfactory_search.tiny import recipe
from rlfactory_search.world_search import WorldSearch
from rlfactory_search.worlds import Names, World

TRAIN_WORLDS, TRAIN_SAMPLES = 8, 300  # training worlds, and questions about each
EVAL_SAMPLES = 100  # held-out questions with one search, and as many with two
TWO_HOP = 0.6  # share of the training questions that need two searches


class SearchTask(Task):
    """Questions over the user's corpus or retrieval server; without either, over built-in worlds of fictional facts."""

    class Config(Section):
        """Options: ``--corpus``, ``--retriever`` and so on, or ``task.NAME=VALUE``."""

        corpus: File | None = None
        """Your own passages, as Search-R1's JSONL: {"id", "contents"}."""
        retriever: Literal["bm25", "dense", "http"] = "bm25"
        """bm25: words. dense: embeddings (the extra ``dense``). http: a retrieval server."""
        retriever_model: str | None = None
        """For dense: a sentence-transformers folder or hub id."""
        query_prefix: str = ""
        """For dense: the text that the model expects before a query."""
        passage_prefix: str = ""
        """For dense: likewise before a passage."""
        url: str | None = None
        """For http: the address of a server with Search-R1's /retrieve."""
        deadline_s: float = 10.0
        """For http: the deadline of one request."""
        top_k: int = 3
        """Passages that a search returns."""

    config: Config
    rewards = {"exact_match": 1.0, "format": 0.1}
    defaults = {"rollout": {"max_turns": 4, "max_tool_calls": 3}}
    tiny_defaults = {
        "rollout": {"max_turn_tokens": 48, "max_tokens": 512},
        "train": {
            "steps": 120,
            "until": {"exact_match": 0.95, "sampled/exact_match": 0.9},
            "prompts_per_step": 16,
            "updates_per_step": 4,
            "lr": 1e-3,
            "muon_lr": 4e-3,
            "schedule": "linear",
        },
        "eval": {"every": 10, "limit": 200, "attempts": 2},
    }

    def __init__(self, config: Mapping[str, Any] | None = None, seed: int = 0) -> None:
        super().__init__(config, seed)
        own = self.config.corpus is not None or self.config.retriever == "http"
        self._retriever = self._make_retriever() if own else None
        self._indexed: int | None = None  # passages indexed so far; None: no index has been built
        self._worlds = WorldSearch(self.config.top_k)
        self.tools = [tool(self.search, name="search", idempotent=True, stateful=self._retriever is None)]

    def _make_retriever(self) -> Retriever:
        config = self.config
        return make_retriever(
            config.retriever,
            corpus=FileCorpus(config.corpus) if config.corpus else None,
            model=config.retriever_model,
            url=config.url,
            query_prefix=config.query_prefix,
            passage_prefix=config.passage_prefix,
            deadline_s=config.deadline_s,
            progress=self._show_index,
        )

    def _show_index(self, done: int, total: int) -> None:
        if self._indexed is None:
            self.progress.stage("build the index", total, "passage")
        self.progress.advance(done - (self._indexed or 0))
        self._indexed = done

    async def open(self) -> None:
        if self._retriever is not None:
            await self._retriever.open()

    async def close(self) -> None:
        if self._retriever is not None:
            await self._retriever.close()

    async def search(self, query: str, context: ToolContext) -> str:
        """Search the corpus.

        Args:
            query: what to look for.
        """
        if self._retriever is None:
            return self._worlds.answer(self.world(context.sample.metadata["world"]), query)
        (hits,) = await self._retriever.search([query], self.config.top_k)
        return format_hits(hits)

    async def search_nothing(self, query: str) -> str:
        """Search the corpus.

        Args:
            query: what to look for.
        """
        return format_hits(())

    def controls(self) -> Mapping[str, Sequence[Any]]:
        return {"no_results": [tool(self.search_nothing, name="search", description="Search the corpus.")]}

    def check(self, samples: Sequence[Sample]) -> None:
        strangers = [sample.id for sample in samples if "world" not in sample.metadata]
        if self._retriever is None and strangers:
            raise UsageError(
                f"There is nothing to search for sample '{strangers[0]}'. Your own data needs your own corpus "
                "(--corpus docs.jsonl) or a retrieval server (--retriever http --url http://HOST:PORT/retrieve)."
            )

    @lru_cache(maxsize=64)  # noqa: B019 - one task lives as long as its process
    def world(self, name: str) -> World:
        return World.make(Names.make(self.seed), name)

    def samples(self, split: str) -> Iterable[Sample]:
        """Training questions from several worlds; evaluation questions from another world."""
        if self._retriever is not None:
            return
        rng = random.Random(f"samples {split} {self.seed}")
        if split == "train":
            for number in range(TRAIN_WORLDS):
                yield from self.world(f"train-{number}").samples(split, rng, TRAIN_SAMPLES, TWO_HOP)
            return
        world = self.world("eval")
        kinds = [rng.sample([q for q in world.questions if q.hops == hops], EVAL_SAMPLES) for hops in (1, 2)]
        for index, pair in enumerate(zip(*kinds, strict=True)):
            for question in pair:
                yield world.sample(question, split, f"eval/{question.hops}-{index}")

    def solve(self, sample: Sample, messages: Sequence[Message]) -> Message:
        """One search for each fact in a built-in world. Over the user's corpus, the answer at once."""
        if self._retriever is not None:
            return super().solve(sample, messages)
        question = self.world(sample.metadata["world"]).question(sample.messages[-1].content)
        return next_turn(question, sum(message.role == "tool" for message in messages))

    def tiny_model(self) -> TinyModelRecipe | None:
        if self._retriever is not None:
            return None
        return recipe(Names.make(self.seed), self._worlds, self.tools[0].spec)
