"""What all kinds of environments share: samples made of seeds, the text of an action, and the text of an observation.

An environment's prompt is known only after its reset, so a sample's own prompt merely names it, and the episode begins
with what the environment says (`EnvStart.messages`). Rewards are given with each step (`EnvStep.reward`), so a task of
these kinds has ``rewards = ENV_REWARDS``, which shows their sum as a metric; a user can add scorers.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from rlfactory_core.types import FaultKind, Message, Sample, ToolCall, ToolResult

ENV_REWARDS: Mapping[str, float] = {"env_reward": 0.0}  # steps' rewards count without a scorer; this one shows them
EVAL_SEEDS = 2**30  # the first seed of evaluation; training begins at 1, because some environments take 0 for no seed


def seed_samples(split: str, count: int, name: str) -> Iterator[Sample]:
    """Samples that differ by ``metadata["seed"]``; the seeds of training and of evaluation are disjoint.

    Args:
        name: of the environment, for the sample's prompt.
    """
    first = EVAL_SEEDS if split == "eval" else 1
    for seed in range(first, first + count):
        yield Sample(f"{split}-{seed - first}", f"{name}, seed {seed}", metadata={"seed": seed}, split=split)


def action_text(message: Message) -> str:
    """The action of an environment whose actions are texts: what the model says, without its thinking."""
    return message.content.strip()


def observation_text(observation: Any, fields: Collection[str] = ()) -> str:
    """An observation for the model: a text as it is, a mapping with one text as this text, and all else as JSON.

    Args:
        fields: the keys of a mapping that are shown; empty: all.
    """
    if isinstance(observation, Mapping):
        kept = {key: value for key, value in observation.items() if not fields or key in fields}
        filled = [value for value in kept.values() if value not in (None, "", [], {})]
        observation = filled[0] if len(filled) == 1 and isinstance(filled[0], str) else kept
    return observation if isinstance(observation, str) else json.dumps(observation, ensure_ascii=False, default=str)


def refused_call(call: ToolCall, problem: str, fault: FaultKind = FaultKind.POLICY) -> ToolResult:
    """The result of a call that was not made; the model reads the problem."""
    return ToolResult(call.id, call.name, f"Error: {problem}", fault, attempts=0)


def result_message(result: ToolResult) -> Message:
    """What the model sees of a result."""
    return Message("tool", result.content, tool_call_id=result.call_id, name=result.name)
