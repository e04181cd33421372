"""Mutated model text through every parser and on through the tool manager: nothing raises, results keep their order."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from parser_cases import read_cases
from parser_texts import COMMON, SYNTAXES, hostile, problems
from tool_calls import CONTEXT, echo, manage

from rlfactory_core.context import ToolContext
from rlfactory_core.tools import DefaultToolManager
from rlfactory_core.types import FaultKind, ToolCall, ToolResult, ToolSpec

NUM_TEXTS = 60_000 if os.environ.get("RLFACTORY_CAMPAIGN") == "1" else 15_000
SEED = 20_260
PIECES = tuple(dict.fromkeys([*COMMON, *(piece for syntax in SYNTAXES.values() for piece in syntax.pieces)]))
ODD = (
    "\x00",
    "\u2028",
    "é",
    "𝄞",
    "\\u0000",
    "\\ud800",
    "\\",
    "\r",
    "\t",
    "\ufffd",
    "1e999",
    "-0",
    "NaN",
    "9" * 30,
    "[" * 70,
)


class Answering:
    """A tool of a recorded case: says what it was called with."""

    idempotent = False
    stateful = False
    version = ""
    deadline_s = None

    def __init__(self, spec: ToolSpec) -> None:
        self.spec = spec

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        return json.dumps(dict(arguments))

    async def close(self) -> None: ...


def recorded() -> tuple[list[str], list[ToolSpec]]:
    """Texts with calls and the tools that they are for: the recorded cases', where they are, and our own."""
    texts = [case.text for case in read_cases()]
    specs = {spec.name: spec for case in read_cases() for spec in case.tools}
    for syntax in SYNTAXES.values():
        texts += [syntax.write("echo", word) * count for word in ("hello", "[1, 2]", "3") for count in (1, 2, 5)]
        texts += [text for _, text in hostile(syntax, 240)]
    return texts, list(specs.values())


def mutated(texts: Sequence[str], rng: random.Random) -> Iterator[str]:
    """Every text first as it is, then mutants of all of them in turn."""
    for index in range(NUM_TEXTS):
        text = texts[index % len(texts)]
        for _ in range(rng.choice((1, 1, 2, 4, 12)) if index >= len(texts) else 0):
            text = mutate(text, rng, texts)
        yield text


def mutate(text: str, rng: random.Random, texts: Sequence[str]) -> str:
    first, second = sorted(rng.randint(0, len(text)) for _ in range(2))
    near = min(second, first + rng.randint(1, 6))
    match rng.randrange(9):
        case 0:
            return text[:first] + text[near:]
        case 1:
            return text[:first] + text[second:]
        case 2:
            return text[:second] + text[first:]
        case 3:
            return text[:first] + text[second:] + text[first:second]
        case 4:
            return text[:first]
        case 5:
            return text[:first] + rng.choice(PIECES) + text[first:]
        case 6:
            return text[:first] + rng.choice(PIECES) + text[near:]
        case 7:
            return text[:first] + rng.choice(ODD) + text[near:]
        case _:
            other = rng.choice(texts)
            return text[:first] + other[rng.randint(0, len(other)) :][:400]


@pytest.mark.slow
def test_mutated_texts_through_all_parsers_and_the_tool_manager() -> None:
    texts, specs = recorded()
    rng = random.Random(SEED)
    seen = {"ran": 0, "refused": 0, "errors": 0}

    async def work(manager: DefaultToolManager) -> None:
        for text in mutated(texts, rng):
            for name, syntax in SYNTAXES.items():
                message = syntax.parse(text, manager.specs, thinking_open=rng.random() < 0.1)
                assert problems(message) == [], (name, text)
                if message.tool_calls:
                    check(message.tool_calls, await manager.invoke(message.tool_calls, CONTEXT), (name, text))

    def check(calls: Sequence[ToolCall], results: Sequence[ToolResult], where: object) -> None:
        assert [(result.call_id, result.name) for result in results] == [(call.id, call.name) for call in calls], where
        for call, result in zip(calls, results, strict=True):
            json.dumps([result.name, result.content], ensure_ascii=False).encode()  # no lone surrogates
            assert result.fault in (None, FaultKind.POLICY), (where, result)
            assert result.attempts == (0 if result.fault else 1), (where, result)
            seen["errors"] += call.error is not None
            seen["refused"] += call.error is None and result.fault is not None
            seen["ran"] += result.fault is None
            if call.error is not None:
                assert call.error in result.content, where

    manage(work, echo, *(Answering(spec) for spec in specs), max_result_tokens=100_000)
    assert min(seen.values()) > NUM_TEXTS // 20, seen
