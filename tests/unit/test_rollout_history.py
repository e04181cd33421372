"""`rollout.context`: what later turns see, in rows with exact ids."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from chat_tokenizers import make_tokenizer, published
from conversations import CHAT, RecordingSampler, calling, check_exact

from rlfactory_core.chat.families.qwen3 import Qwen3Format
from rlfactory_core.protocols import ChatFormat, Env
from rlfactory_core.reporting.conversations import conversations
from rlfactory_core.rollout import Episode, RolloutLimits, TokenModel, ToolEnv, rollout
from rlfactory_core.rollout.history import REMOVED, History
from rlfactory_core.rollout.settings import RolloutConfig
from rlfactory_core.tools import DefaultToolManager, tool
from rlfactory_core.types import Message, Sample, SampledTokens, SamplingParams, StopReason, Trajectory

LIMITS = RolloutLimits(8, 16, 400, 4000)
ANSWER = "<answer>him</answer>"


@tool
async def search(query: str) -> str:
    """Search."""
    return f"what is known about {query}: " + "much " * 60


def play(sampler: Any, chat: ChatFormat, history: History, limits: RolloutLimits = LIMITS) -> Trajectory:
    manager = DefaultToolManager([search])

    def make_env(sample: Sample, context: Any) -> Env:
        return ToolEnv(sample, manager, context)

    episode = Episode(Sample("s", "Who?"), make_env, limits, "run/0/0", history=history)
    return asyncio.run(rollout(episode, TokenModel(chat, sampler)))


def texts(trajectory: Trajectory, chat: ChatFormat) -> list[str]:
    """What the model saw before each turn."""
    rows: dict[int, list[int]] = {}
    seen = []
    for turn in trajectory.turns:
        ids = rows.setdefault(turn.row, [])
        ids += turn.context_ids
        seen.append(chat.decode(ids))
        ids += turn.sampled_ids
    return seen


def test_compact_removes_the_oldest_results_first() -> None:
    sampler = RecordingSampler([calling(query="a"), calling(query="b"), calling(query="c"), ANSWER])
    played = play(sampler, CHAT, History("compact", tokens=800))
    assert [(turn.row, turn.fork) for turn in played.turns] == [(0, ""), (0, ""), (1, "compacted"), (2, "compacted")]
    seen = texts(played, CHAT)
    assert "about a:" in seen[1]
    assert REMOVED in seen[2]
    assert "about a:" not in seen[2]
    assert "about b:" in seen[2]
    assert "about b:" not in seen[3]
    assert "about c:" in seen[3]
    assert all(len(context) <= 800 for context, _ in sampler.calls)
    check_exact(played.turns, sampler)
    assert sampler.live == set()


def test_a_task_may_compact_in_its_own_way() -> None:
    def forget(sample: Sample, messages: Sequence[Message]) -> Sequence[Message]:
        return (*sample.messages, Message("user", f"You have made {len(messages) // 2} calls."))

    sampler = RecordingSampler([calling(query="a"), calling(query="b"), ANSWER])
    played = play(sampler, CHAT, History("compact", tokens=800, compact=forget))
    assert "You have made 2 calls." in texts(played, CHAT)[2]
    check_exact(played.turns, sampler)


def test_what_cannot_be_made_shorter_ends_with_length() -> None:
    sampler = RecordingSampler([calling(query="a" * 100), ANSWER])
    played = play(sampler, CHAT, History("compact", tokens=100), RolloutLimits(8, 16, 400, 420))
    assert (played.stop, len(played.turns)) == (StopReason.LENGTH, 1)


def test_the_model_writes_a_summary_which_takes_the_place_of_the_history() -> None:
    sampler = RecordingSampler(
        [calling(query="a"), calling(query="b"), f"a is blue {calling(query='lost')}", calling(query="c"), ANSWER]
    )
    played = play(sampler, CHAT, History("summarize", tokens=800))
    rows = [(turn.row, turn.fork) for turn in played.turns]
    assert rows[:4] == [(0, ""), (0, ""), (0, ""), (1, "summarized")]
    summary, after = texts(played, CHAT)[2:4]
    assert "about b:" in summary
    assert "Write down what you need" in summary
    assert "Who?" in after
    assert "a is blue" in after
    assert "about a:" not in after
    assert [len(turn.results) for turn in played.turns[:4]] == [1, 1, 0, 1]  # the call in the summary is not made
    assert not played.turns[2].message.tool_calls
    check_exact(played.turns, sampler)
    found = conversations(played)
    assert [len(each.learnt) for each in found] == [3, len(played.turns) - 3]
    for turn, each in zip((played.turns[0], played.turns[3]), found, strict=True):
        asked = each.messages[: next(n for n, message in enumerate(each.messages) if message.role == "assistant")]
        assert turn.context_ids == CHAT.initial_ids(asked, each.tools)
    assert (played.stop, sampler.live) == (StopReason.FINAL_ANSWER, set())


def test_a_summary_that_does_not_fit_ends_with_length() -> None:
    sampler = RecordingSampler([calling(query="a" * 100), "a summary", ANSWER])
    played = play(sampler, CHAT, History("summarize", tokens=100), RolloutLimits(8, 16, 400, 420))
    assert (played.stop, len(played.turns)) == (StopReason.LENGTH, 1)


class QwenSampler:
    """Thinks before each call, in the ids of Qwen3."""

    def __init__(self, chat: Qwen3Format, turns: Sequence[str]) -> None:
        self._chat, self._turns = chat, iter(turns)

    async def sample(self, ids: Sequence[int], params: SamplingParams, *, session: str) -> SampledTokens:
        said = self._chat.encode(next(self._turns) + "<|im_end|>")
        return SampledTokens(said, (-0.5,) * len(said), "stop")

    async def release(self, session: str) -> None:
        pass


class TwoQuestions(ToolEnv):
    """Asks another question after the first answer, so that Qwen3's template drops the thinking before it."""

    asked = False

    async def step(self, message: Message) -> Any:
        step = await super().step(message)
        if step.stop is None or self.asked:
            return step
        self.asked = True
        return type(step)((Message("user", "And she?"),))


@pytest.mark.parametrize("mode", ["keep", "drop_thinking"])
def test_thinking_is_dropped_where_the_template_drops_it(mode: Any) -> None:
    chat = Qwen3Format(make_tokenizer(published("qwen3")))
    thought = "<think>\nI should look.\n</think>\n\n"
    turns = [f"{thought}{calling(query='a')}", f"{thought}{ANSWER}", f"{thought}{ANSWER}"]
    manager = DefaultToolManager([search])
    episode = Episode(
        Sample("s", "Who?"), lambda s, c: TwoQuestions(s, manager, c), LIMITS, "run/0/0", history=History(mode)
    )
    played = asyncio.run(rollout(episode, TokenModel(chat, QwenSampler(chat, turns))))
    dropped = mode == "drop_thinking"
    # Within one question the template keeps the thinking, so nothing changes there.
    assert [turn.fork for turn in played.turns] == ["", "", "dropped_thinking" if dropped else ""]
    assert ("I should look." in texts(played, chat)[2]) is not dropped
    said = [turn.message for turn in played.turns]
    heard = [Message("tool", played.turns[0].results[0].content, tool_call_id="call_0", name="search")]
    messages = (Message("user", "Who?"), said[0], *heard, said[1], Message("user", "And she?"))
    if dropped:
        assert played.turns[2].context_ids == chat.initial_ids(messages, manager.specs)
    (one,) = conversations(played)
    assert (one.messages, one.learnt) == ([*messages, said[2]], [True, True, True])


def test_the_configuration_has_the_budget() -> None:
    assert History.of(RolloutConfig(context="compact", max_tokens=3000)).tokens == 1500
    assert History.of(RolloutConfig(context="summarize", context_tokens=700)).tokens == 700
