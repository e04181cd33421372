"""The leaderboard's questions, functions and accepted calls, as the package's own code reads them."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from typing import Any

from rlfactory_benchmarks.bfcl.official import official
from rlfactory_core import Message, ToolSpec
from rlfactory_core.errors import UsageError

__all__ = ["UNANSWERABLE", "Entry", "categories", "entries", "entry", "in_split"]

UNANSWERABLE = (  # in bfcl-eval 2026.3.23 its checker accepts nothing
    "simple_java_36", "simple_java_65", "live_simple_106-63-0", "live_simple_112-68-0", "live_multiple_862-181-3",
    "live_multiple_964-207-0",
)  # fmt: skip
_HELD_OUT = 4  # one scenario of so many is for evaluation


@dataclass(frozen=True, slots=True)
class Entry:
    """A question, or a conversation."""

    id: str
    category: str
    row: Mapping[str, Any]  # as the checker reads it
    truth: tuple[Any, ...]  # the accepted values of each call; of a conversation: the calls of each turn, as texts

    @property
    def conversation(self) -> bool:
        """Whether it has several turns, and its functions are called."""
        return "multi_turn" in self.category

    @property
    def shown(self) -> tuple[ToolSpec, ...]:
        """Its functions, as the model sees them: with hints, without dots, with the types of JSON schema."""
        copied = deepcopy({"id": self.id, "function": self.row["function"]})
        (hinted,) = official().runner.add_language_specific_hint_to_function_doc([copied])
        return _tools(hinted["function"])

    @property
    def turns(self) -> Sequence[tuple[Message, ...]]:
        """What is said to the model, turn by turn; nothing where functions are added instead."""
        return [tuple(Message(each["role"], each["content"]) for each in turn) for turn in self.row["question"]]

    @property
    def late(self) -> Mapping[int, tuple[ToolSpec, ...]]:
        """The functions that are offered from a later turn on."""
        return {int(turn): _tools(functions) for turn, functions in self.row.get("missed_function", {}).items()}


def categories() -> Sequence[str]:
    """Those of the leaderboard, but for the agentic ones."""
    code = official().runner
    return (*code.SINGLE_TURN_CATEGORY, *code.MULTI_TURN_CATEGORY)


@cache
def entries(category: str) -> Mapping[str, Entry]:
    """The questions of a category by their ids, in the order of its file."""
    code = official().runner
    rows = code.load_dataset_entry(category, include_language_specific_hint=False)
    answers = [] if code.is_relevance_or_irrelevance(category) else code.load_ground_truth_entry(category)
    truths = {row["id"]: tuple(row["ground_truth"]) for row in answers}
    return {row["id"]: Entry(row["id"], category, row, truths.get(row["id"], ())) for row in rows}


def entry(name: str) -> Entry:
    """A question by its id.

    Raises:
        UsageError: there is no such question.
    """
    category = official().runner.extract_test_category_from_id(name)
    if category not in categories():
        raise UsageError(f"'{name}' is no question of a known category; expected an id such as simple_python_0.")
    if (found := entries(category).get(name)) is None:
        raise UsageError(f"The category {category} has no question '{name}'.")
    return found


def in_split(question: Entry, split: str) -> bool:
    """Whether a question is of a split: no scenario is in both, since categories share them."""
    held_out = _held_out(question)
    if split == "eval" or held_out:
        return split == "eval" and held_out
    return question.id not in UNANSWERABLE and _words(question) not in _held_out_words(question.conversation)


def _held_out(question: Entry) -> bool:
    """By a hash of the scenario: a conversation's state, a live question's functions, or the words."""
    if question.conversation:  # a few share a state, which the other categories change a little
        base = entry(f"multi_turn_base_{question.id.rpartition('_')[2]}")
        scenario = json.dumps(base.row["initial_config"], sort_keys=True)
    elif "live" in question.category and question.row["function"]:
        scenario = " ".join(sorted(each["name"] for each in question.row["function"]))
    else:
        scenario = _words(question)
    return zlib.crc32(scenario.encode()) % _HELD_OUT == 0


def _words(question: Entry) -> str:
    return " ".join(re.findall(r"\w+", question.turns[0][-1].content.lower()))


@cache
def _held_out_words(conversations: bool) -> frozenset[str]:
    """What held-out questions ask. Some come in several categories and with several sets of functions."""
    code = official().runner
    names = code.MULTI_TURN_CATEGORY if conversations else code.SINGLE_TURN_CATEGORY
    found = (each for name in names for each in entries(name).values())
    return frozenset(_words(each) for each in found if _held_out(each))


def _tools(functions: Sequence[Mapping[str, Any]]) -> tuple[ToolSpec, ...]:
    code = official().handling
    made = code.convert_to_tool(list(functions), code.GORILLA_TO_OPENAPI, code.ModelStyle.OPENAI_COMPLETIONS)
    found = (each["function"] for each in made)
    return tuple(ToolSpec(each["name"], each["description"], each["parameters"]) for each in found)
