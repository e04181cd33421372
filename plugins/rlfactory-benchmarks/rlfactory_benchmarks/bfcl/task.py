"""The task ``bfcl``: the questions of the leaderboard's categories, whose calls its own checker compares."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, zip_longest
from typing import Any, Literal

from rlfactory_benchmarks.bfcl.answers import accepted_calls, expected_calls
from rlfactory_benchmarks.bfcl.conversation import Conversation
from rlfactory_benchmarks.bfcl.data import Entry, categories, entries, entry, in_split
from rlfactory_benchmarks.bfcl.official import official
from rlfactory_benchmarks.bfcl.table import leaderboard, measured
from rlfactory_benchmarks.packages import version
from rlfactory_core import Group, Message, Sample, Section, Task, ToolContext
from rlfactory_core.errors import ConfigError
from rlfactory_core.protocols import Env, ToolManager
from rlfactory_core.reporting import EvalTable

__all__ = ["Bfcl"]


_CONVERSATIONS = {"max_turns": 200, "max_tool_calls": 1000, "max_turn_tokens": 1024, "max_tokens": 32768}


class Bfcl(Task):
    """One question, functions, and the calls that answer it."""

    class Config(Section):
        """Which questions are played."""

        categories: str = "simple_python,multiple,parallel,parallel_multiple"
        """Categories of the leaderboard or its names of several (live, non_live, single_turn, multi_turn), with commas
        between them."""
        questions: Literal["held_out", "all"] = "held_out"
        """Which are evaluated. held_out: the quarter that is never trained on. all: all, as the leaderboard does, and
        there is no training data."""

    config: Config
    rewards: Mapping[str, float] = {"bfcl": 1.0, "bfcl_known_functions": 0.2}

    def __init__(self, config: Mapping[str, Any] | None = None, seed: int = 0) -> None:
        super().__init__(config, seed)
        self.changes_tools = "multi_turn" in self.config.categories
        rollout = _CONVERSATIONS if self.changes_tools else {"max_turns": 1}
        evaluation = {"limit": 0} if self.config.questions == "all" else {}
        self.defaults = {"rollout": rollout, "eval": evaluation}  # type: ignore[misc] # read from the object

    @property
    def categories(self) -> Sequence[str]:
        """
        Raises:
            ConfigError: there is no such category.
        """
        groups, known = official().runner.TEST_COLLECTION_MAPPING, categories()
        given = [name.strip() for name in self.config.categories.split(",") if name.strip()]
        names = list(dict.fromkeys(each for name in given for each in groups.get(name, (name,))))
        unknown = [name for name in names if name not in known]
        if unknown or not names:
            raise ConfigError(f"task.categories={self.config.categories!r}: {unknown} is none of {', '.join(known)}.")
        return names

    def _chosen(self, split: str) -> Sequence[Sequence[Entry]]:
        """The questions of a split, by category."""
        everything = self.config.questions == "all"
        return [
            [each for each in entries(category).values() if (split == "eval" if everything else in_split(each, split))]
            for category in self.categories
        ]

    def samples(self, split: str) -> Iterable[Sample]:
        chosen = self._chosen(split)
        # In turn for an evaluation, of which eval.limit takes the first: some of each category.
        for each in filter(None, chain.from_iterable(zip_longest(*chosen) if split == "eval" else chosen)):
            about = {"category": each.category}
            yield Sample(each.id, each.turns[0], json.dumps(each.truth), about, split, slice=each.category)

    def make_env(self, sample: Sample, manager: ToolManager, context: ToolContext) -> Env:
        return Conversation(entry(sample.id))

    def eval_tables(self, passes: Mapping[str, Sequence[Group]]) -> Sequence[EvalTable]:
        which = "questions" if self.config.questions == "all" else "held-out questions"
        number = sum(map(len, self._chosen("eval")))
        package = f"bfcl-eval {version('bfcl-eval')}, its own checkers; no system message"
        return [
            leaderboard(f"bfcl, {name}", measured(groups), [f"{len(groups):,} of {number:,} {which}; {package}"])
            for name, groups in passes.items()
        ]

    def solve(self, sample: Sample, messages: Sequence[Message]) -> Message:
        question = entry(sample.id)
        calls = expected_calls(question, messages) if question.conversation else accepted_calls(question)
        otherwise = "That is all that I can do now." if question.conversation else "None of the functions can do this."
        return Message("assistant", "" if calls else otherwise, tool_calls=tuple(calls))
