"""Tools that an environment offers later: they begin a row whose prompt is the whole conversation with them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from chat_families import make_format
from conversations import CHAT, RecordingSampler, check_exact
from rlfactory_devkit import TaskBench
from scripted_env import Steps

from rlfactory_core import EnvStart, EnvStep, Message, Sample, StopReason, ToolSpec
from rlfactory_core.errors import ConfigError, PluginError
from rlfactory_core.protocols import Request
from rlfactory_core.reporting.conversations import conversations
from rlfactory_core.reporting.metrics import tool_metrics
from rlfactory_core.rollout import Episode, RolloutLimits, TokenModel, WrittenModel, rollout
from rlfactory_core.rollout.history import History
from rlfactory_core.types import ToolCall, ToolResult, Trajectory

LIMITS = RolloutLimits(8, 16, 400, 4000)
SEARCH = ToolSpec("search", "Search.", {"type": "object", "properties": {"query": {"type": "string"}}})
OPEN = ToolSpec("open", "Open.", {"type": "object", "properties": {"page": {"type": "integer"}}})
NEWS = (Message("user", "You may also open pages."),)


class Later(Steps):
    """Offers another tool with its first step."""

    def __init__(self) -> None:
        results = (ToolResult("call_0", "open", "page 1"),)
        more = EnvStep((results[0].message,), results=results)
        super().__init__(EnvStep(NEWS, tools=(SEARCH, OPEN)), more, EnvStep(stop=StopReason.ENV_DONE))

    async def start(self) -> EnvStart:
        return EnvStart((Message("user", "Go."),), (SEARCH,))


def play(sampler: RecordingSampler, history: History | None = None) -> Trajectory:
    episode = Episode(Sample("s", "Go."), lambda *_: Later(), LIMITS, "run/0/0", history=history or History())
    return asyncio.run(rollout(episode, TokenModel(CHAT, sampler)))


def test_the_model_sees_the_tools_from_the_next_turn_on_in_a_row_of_its_own() -> None:
    sampler = RecordingSampler(["Hm.", '<tool_call>{"name": "open", "arguments": {"page": 1}}</tool_call>', "Done."])
    played = play(sampler)
    first, second, third = played.turns
    assert [(turn.row, turn.fork) for turn in played.turns] == [(0, ""), (1, "changed_tools"), (1, "")]
    assert [turn.tools for turn in played.turns] == [None, (SEARCH, OPEN), (SEARCH, OPEN)]
    assert played.tools == (SEARCH,)
    messages = (Message("user", "Go."), first.message, *NEWS)
    assert second.context_ids == CHAT.initial_ids(messages, (SEARCH, OPEN))
    assert "open" not in CHAT.decode(first.context_ids)
    assert third.context_ids == CHAT.observation_ids([Message("tool", "page 1")])
    check_exact(played.turns, sampler)
    assert sampler.live == set()
    assert tool_metrics([played])["tool/open/calls"] == 1
    one, two = conversations(played)
    assert ([len(one.tools), len(two.tools)], one.learnt, two.learnt) == ([1, 2], [True], [False, True, True])


def test_a_server_is_asked_with_the_new_tools() -> None:
    asked: list[tuple[int, int]] = []

    def write(request: Request) -> Message:
        asked.append((len(request.messages), len(request.tools)))
        return Message("assistant", "Hm.")

    played = asyncio.run(
        rollout(Episode(Sample("s", "Go."), lambda *_: Later(), LIMITS, "run/0/0"), WrittenModel(write))
    )
    assert asked == [(1, 1), (3, 2), (5, 2)]
    assert [(turn.row, turn.tools) for turn in played.turns] == [(0, None), (1, (SEARCH, OPEN)), (1, (SEARCH, OPEN))]


@pytest.mark.parametrize("mode", ["compact", "summarize"])
def test_a_history_that_is_changed_as_well_has_the_new_tools(mode: Any) -> None:
    sampler = RecordingSampler(lambda number: "Fine." if number else "Hm." * 60)
    played = play(sampler, History(mode, tokens=200, compact=lambda *_: (Message("user", "Short."),)))
    before, *_, after = (turn for turn in played.turns if turn.row <= 1)
    assert before.tools is None
    assert after.tools == (SEARCH, OPEN)
    assert "open" in CHAT.decode(next(turn for turn in played.turns if turn.row == 1).context_ids)
    check_exact(played.turns, sampler)


@pytest.mark.parametrize("template", ["own_qwen3", "own_glm-4.5", "lfm2_2_5", "gemma4_v5", "mistral_v3"])
def test_a_conversation_with_a_broken_call_can_be_written_anew(template: str) -> None:
    chat = make_format(template)
    broken = ToolCall("call_0", "search", '{"query": ', None, "no JSON")
    said = Message("assistant", "", tool_calls=(broken,))
    result = Message("tool", "It is no JSON.", tool_call_id="call_0", name="search")
    messages = (Message("user", "Go."), said, result, Message("assistant", "I see."), *NEWS)
    text = chat.decode(chat.initial_ids(messages, (SEARCH, OPEN)))
    assert all(part in text for part in ("Go.", "search", "It is no JSON.", "I see.", "You may also open pages."))


TASK = """
from rlfactory_core import *

class Later:
    async def start(self):
        return EnvStart((Message("user", "Go."),))

    async def step(self, message):
        tools = (ToolSpec("open", "Open.", {{"type": "object", "properties": {{}}}}),)
        return EnvStep((Message("user", "More."),), tools=tools)

    async def close(self):
        pass

class Changing(Task):
    changes_tools = {declared}

    def samples(self, split):
        yield Sample("s", "Go.", "Done.", split=split)

    def make_env(self, sample, manager, context):
        return Later()

@hookimpl
def rlfactory_tasks(register):
    register("changing", Changing)
"""


def test_a_task_declares_that_its_tools_change(tmp_path: Path) -> None:
    (tmp_path / "silent.py").write_text(TASK.format(declared=False), encoding="utf-8")
    (tmp_path / "open.py").write_text(TASK.format(declared=True), encoding="utf-8")
    with TaskBench(f"{tmp_path}/silent.py") as bench, pytest.raises(PluginError, match="changes_tools = True"):
        bench.play(lambda *_: Message("assistant", "Done."), bench.samples(limit=1))
    with pytest.raises(ConfigError, match="tools change within an episode"):
        TaskBench(f"{tmp_path}/open.py", ["rollout.deterministic=true"])
