"""Every family in the real loop: calls run, a malformed one is answered with its reason, and the trajectory goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from chat_families import TEMPLATES, call, make_format

from rlfactory_core.chat.proof import appended
from rlfactory_core.context import ToolContext
from rlfactory_core.rollout import Episode, RolloutLimits, TokenModel, ToolEnv, rollout
from rlfactory_core.tools import DefaultToolManager, tool
from rlfactory_core.types import FaultKind, Message, Sample, SampledTokens, SamplingParams, StopReason

pytest.importorskip("transformers")

SAMPLE = Sample("s", "Who?\n")
LIMITS = RolloutLimits(max_turns=4, max_tool_calls=4, max_turn_tokens=1000, max_tokens=10_000)
# How a model of the family spoils a call: a quote, a bracket or a closing tag is missing.
SPOILS = {
    "qwen3-coder": ("</parameter>", ""),
    "glm-4.5": ("</arg_value>", ""),
    "minimax-m2": ("</parameter>", ""),
    "deepseek-v3.2": ("</\uff5cDSML\uff5cparameter>", ""),
    "hunyuan-v3": ("</arg_value:opensource>", ""),
    "seed-oss": ("</parameter>", ""),
    "lfm2": (")]", "]"),
    "gemma-4": ('<|"|>}', "}"),
}


@tool
async def look(where: str) -> str:
    return f"nothing {where} <|im_end|></s>"


class Saying:
    """A sampler that gives the ids of texts, their stop tokens included."""

    def __init__(self, texts: Sequence[tuple[int, ...]]) -> None:
        self.texts = list(texts)

    async def sample(self, ids: Sequence[int], params: SamplingParams, *, session: str) -> SampledTokens:
        said = self.texts.pop(0)
        assert said[-1] in params.stop_token_ids
        return SampledTokens(said, (-0.5,) * len(said), "stop")

    async def release(self, session: str) -> None: ...


@pytest.mark.parametrize(("name", "template_name"), TEMPLATES)
def test_a_rollout_with_a_good_and_a_spoilt_call(name: str, template_name: str) -> None:
    chat = make_format(template_name)
    asked = Message(
        "assistant", "", reasoning="hm" if chat.thinking else "", tool_calls=(call(0, "look", where="left"),)
    )
    later = (
        asked
        if chat.thinking_open or not chat.opens_thinking
        else Message("assistant", "", tool_calls=asked.tool_calls)
    )
    answer = Message("assistant", "<answer>him</answer>", reasoning=later.reasoning)
    before, after = SPOILS.get(name, ('"left"', '"left'))
    good, bad, last = chat.written(asked), chat.written(later).replace(before, after), chat.written(answer)
    assert bad != chat.written(later)
    texts = [chat.encode(text) for text in (good, bad, last)]

    def env(sample: Sample, context: ToolContext) -> ToolEnv:
        return ToolEnv(sample, DefaultToolManager([look]), context)

    played = asyncio.run(rollout(Episode(SAMPLE, env, LIMITS, "x"), TokenModel(chat, Saying(texts))))
    first, second, third = played.turns
    assert played.stop is StopReason.FINAL_ANSWER
    assert [turn.sampled_ids for turn in played.turns] == texts
    assert [result.content for result in first.results] == ["nothing left <|im_end|></s>"]
    (refused,) = second.results
    assert refused.fault is FaultKind.POLICY
    assert "Invalid tool call" in refused.content
    assert "Invalid tool call" in chat.decode(third.context_ids)
    assert third.message == answer
    observed = Message("tool", "nothing left <|im_end|></s>", name="look", tool_call_id=first.message.tool_calls[0].id)
    whole = appended(chat, [*SAMPLE.messages, asked, observed], [look.spec])
    assert first.context_ids + first.sampled_ids + second.context_ids == whole.ids
    assert sum(played.loss_mask) == sum(map(len, texts))
