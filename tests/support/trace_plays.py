"""Plays traces as they are trained on, with the tokenizer of a published family."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Any

from chat_tokenizers import QWEN, make_tokenizer

from rlfactory_core.chat.families.qwen3 import QWEN3_TEMPLATE, Qwen3Format
from rlfactory_core.rollout.episode import Episode, RolloutLimits
from rlfactory_core.rollout.loop import rollout
from rlfactory_core.rollout.written import RecordedEnv, WrittenModel
from rlfactory_core.tasks.traces import Trace
from rlfactory_core.types import Sample, Trajectory

UNLIMITED = RolloutLimits(10**6, 10**6, 10**9, 10**9)


@cache
def qwen() -> Any:
    return Qwen3Format(make_tokenizer(QWEN3_TEMPLATE, QWEN))


def play(trace: Trace, chat: Any = None) -> Trajectory:
    """The trajectory of a trace."""
    turns = iter(trace.turns)
    episode = Episode(
        Sample("trace", trace.prompt), lambda *_: RecordedEnv(trace.messages, trace.tools or ()), UNLIMITED, "trace"
    )
    return asyncio.run(rollout(episode, WrittenModel(lambda _: next(turns), chat or qwen())))


def transcript(trace: Trace) -> str:
    """What the model sees and, in brackets, what it learns."""
    chat = qwen()
    parts = []
    for turn in play(trace, chat).turns:
        parts += [chat.decode(turn.context_ids), f"[[{chat.decode(turn.sampled_ids)}]]"]
    return "".join(parts)
