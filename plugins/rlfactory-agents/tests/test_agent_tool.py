"""An agent as a tool: a rollout within a call, its budgets, and that it leaves nothing behind."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import pytest
from delegates import SAMPLE, ask, call, managed
from fake_openai import FakeServer, Reply, error, said, scripted, serve
from rlfactory_agents import agent_tool, model_tool
from tool_calls import echo, write

from rlfactory_core import BackendError, ToolContext, ToolError, ToolUnavailableError, tool
from rlfactory_core.errors import ConfigError
from rlfactory_core.protocols import Tool
from rlfactory_core.tools import DefaultToolManager
from rlfactory_core.types import FaultKind, ToolResult


def agent(server: FakeServer, *tools: Any, name: str = "boss", **options: Any) -> Any:
    """An agent whose model's name is its own."""
    return agent_tool(name, server.url, name, tools, **{"description": f"Ask the {name}.", **options})


def serving(*replies: Reply) -> Any:
    return serve(scripted(*replies), models=["boss"])


def by_model(**speak: Callable[[Mapping[str, Any]], Reply]) -> Any:
    """Models of these names; each says what its function makes of the conversation's last message."""

    def answer(body: Mapping[str, Any]) -> Reply:
        last = body["messages"][-1]
        return said("Hi") if body["messages"][0]["content"] == "Hello" else speak[body["model"]](last)

    return serve(answer, models=list(speak))


def asks_then_repeats(name: str) -> Callable[[Mapping[str, Any]], Reply]:
    """Calls the tool ``name`` with its own task, and then says what came back."""

    def speak(last: Mapping[str, Any]) -> Reply:
        if last["role"] == "tool":
            return said(f"<{last['content']}>")
        return said("", (name, '{"task": "deeper"}'))

    return speak


def test_it_works_with_its_tools_and_gives_back_its_last_message(caplog: pytest.LogCaptureFixture) -> None:
    script = (said("Let me see.", ("echo", '{"text": "ab", "times": 2}')), said("It is abab."))
    with serving(*script) as server, caplog.at_level(logging.DEBUG, "rlfactory_agents.tools"):
        result = call([agent(server, echo, system="Be good.")], "boss", {"task": "Say ab twice."})
    assert (result.content, result.fault) == ("It is abab.", None)
    first, second = server.chats
    assert [message["role"] for message in second["messages"]] == ["system", "user", "assistant", "tool"]
    assert second["messages"][0]["content"] == "Be good."
    assert second["messages"][1]["content"] == "Say ab twice."
    assert second["messages"][3]["content"] == "abab"
    assert [item["function"]["name"] for item in first["tools"]] == ["echo"]
    assert first["seed"] != second["seed"]
    assert "t/boss/0: 2 turns, 200 tokens read, 20 sampled" in caplog.text


def test_without_a_description_the_policy_is_told_the_agents_tools() -> None:
    async def work(manager: DefaultToolManager) -> str:
        return manager.specs[0].description

    with serving() as server:
        told = managed([agent(server, echo, description=None)], work)
    assert told == "An agent that works on a task by itself with echo and reports what it found."


def test_its_tools_see_the_sample_and_a_trajectory_of_their_own() -> None:
    seen: list[ToolContext] = []
    ended: list[str] = []

    @tool
    async def look(context: ToolContext) -> str:
        async def end() -> None:
            ended.append(context.trajectory_id)

        seen.append(context)
        context.state["mine"] = True
        context.on_end(end)
        return "nothing"

    async def work(manager: DefaultToolManager) -> ToolContext:
        context = ToolContext("t", SAMPLE)
        for _ in range(2):
            await ask(manager, "boss", context, task="look")
        return context

    with serving(*[said("", ("look", "{}")), said("Nothing.")] * 2) as server:
        outer = managed([agent(server, look)], work)
    assert [context.trajectory_id for context in seen] == ["t/boss/0", "t/boss/1"] == ended
    assert all((item.sample.answer, item.sample.metadata) == ("42", {"db": "x"}) for item in seen)
    assert "mine" not in outer.state


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "reply", "words"),
    [
        (
            {"max_turns": 2},
            said("I look.", ("echo", '{"text": "a"}')),
            "its 2 turns before it was done. Its last words: I",
        ),
        ({"max_tool_calls": 3}, said("", ("echo", '{"text": "a"}'), ("echo", '{"text": "b"}')), "its 3 tool calls"),
        ({}, said("It is", finish="length"), "its tokens before it was done. Its last words: It is"),
        ({"max_tokens": 110}, said("", ("echo", '{"text": "a"}')), "its tokens"),
        ({}, said(""), "boss gave no answer"),
    ],
)
def test_running_out_of_a_budget_or_of_words_is_the_tools_no(options: Any, reply: Reply, words: str) -> None:
    with by_model(boss=lambda last: reply) as server:
        result = call([agent(server, echo, **options)], "boss", {"task": "x"})
    assert result.fault is FaultKind.TOOL
    assert words in result.content


def test_an_endpoint_that_does_not_answer_ends_the_run_at_its_start() -> None:
    with (
        serve(lambda body: error(400, "no tool calling here"), models=["boss"]) as server,
        pytest.raises(BackendError, match=r"tool 'boss': .*Start the server with tool calling"),
    ):
        call([agent(server, echo)], "boss", {"task": "x"})


@pytest.mark.slow
def test_infra_faults_within_are_infra_faults_of_the_call() -> None:
    @tool
    async def down() -> str:
        raise ToolUnavailableError("the index is away")

    with serving(said("", ("echo", '{"text": "a"}')), error(404, "gone")) as server:
        lost = call([agent(server, echo)], "boss", {"task": "x"})
    with serving(said("", ("down", "{}"))) as server:
        spoilt = call([agent(server, down)], "boss", {"task": "x"})
    assert lost.fault is spoilt.fault is FaultKind.INFRA
    assert "index" not in spoilt.content


def test_what_its_tools_refuse_is_its_own_affair() -> None:
    @tool
    async def never() -> str:
        raise ToolError("not today")

    with serving(said("", ("never", "{}"), ("nothing", "{}"), ("never", "[1")), said("I could not.")) as server:
        result = call([agent(server, never)], "boss", {"task": "x"})
    assert (result.content, result.fault) == ("I could not.", None)
    answers = [message["content"] for message in server.chats[1]["messages"] if message["role"] == "tool"]
    assert answers[0] == "Error: not today"
    assert "there is no tool" in answers[1]
    assert "not valid JSON" in answers[2]


@pytest.mark.slow
@pytest.mark.parametrize(("max_depth", "found"), [(3, "<<done>>"), (2, "too many agents"), (1, "too many agents")])
def test_agents_stand_inside_each_other_only_so_deep(max_depth: int, found: str) -> None:
    speak = {"boss": asks_then_repeats("second"), "second": asks_then_repeats("third"), "third": lambda _: said("done")}
    with by_model(**speak) as server:
        third = agent(server, name="third", max_depth=1)
        second = agent(server, third, name="second", max_depth=5)
        result = call([agent(server, second, max_depth=max_depth)], "boss", {"task": "x"})
    assert result.fault is None  # the refusal was the inner agent's to hear
    assert found in result.content
    assert {chat["model"] for chat in server.chats} == set(list(speak)[:max_depth])


class Source:
    """Counts how often it is opened and closed."""

    def __init__(self) -> None:
        self.events: list[str] = []

    async def open(self, taken: Collection[str], group: str = "") -> Sequence[Tool]:
        self.events.append("open")
        return (echo,)

    async def close(self) -> None:
        self.events.append("close")


def test_sources_within_are_opened_once_and_closed_once() -> None:
    source = Source()

    async def work(manager: DefaultToolManager) -> None:
        await asyncio.gather(*(ask(manager, "boss", task="x") for _ in range(3)))
        assert source.events == ["open"]

    with by_model(boss=lambda last: said("Yes.")) as server:
        managed([agent(server, source)], work)
    assert source.events == ["open", "close"]


def test_sources_within_are_closed_also_where_the_agent_does_not_start() -> None:
    source = Source()
    with serve(lambda body: error(401, "who?"), models=["boss"]) as server, pytest.raises(BackendError):
        call([agent(server, source)], "boss", {"task": "x"})
    assert source.events == ["open", "close"]


def test_a_model_is_a_tool_of_an_agent() -> None:
    speak = {
        "boss": lambda last: said(last["content"]) if last["role"] == "tool" else said("", ("ask", '{"what": "pi"}')),
        "toy": lambda last: said(f"{last['content']} is 3."),
    }
    with by_model(**speak) as server:
        inner = model_tool("ask", server.url, "toy", "{what}", description="Ask.")
        assert call([agent(server, inner)], "boss", {"task": "x"}).content == "pi is 3."


class Waiting:
    """A tool that waits for ever, and what became of it."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.called = asyncio.Event()

        @tool
        async def wait(context: ToolContext) -> str:
            async def end() -> None:
                self.events.append("ended")

            context.on_end(end)
            self.called.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.events.append("cancelled")
                raise
            return ""

        self.tool = wait


def test_cancelling_the_call_ends_what_goes_on_within() -> None:
    waiting = Waiting()

    async def work(manager: DefaultToolManager) -> None:
        calling = asyncio.ensure_future(ask(manager, "boss", task="x"))
        await waiting.called.wait()
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling

    with serving(said("", ("wait", "{}"))) as server:
        managed([agent(server, waiting.tool)], work)
    assert waiting.events == ["cancelled", "ended"]


def test_the_deadline_ends_what_goes_on_within() -> None:
    waiting = Waiting()
    with serving(said("", ("wait", "{}"))) as server:
        result = call([agent(server, waiting.tool, deadline_s=0.2)], "boss", {"task": "x"})
    assert result.fault is FaultKind.INFRA
    assert waiting.events == ["cancelled", "ended"]


def test_calls_of_one_turn_run_at_once_and_apart() -> None:
    async def work(manager: DefaultToolManager) -> tuple[ToolResult, ...]:
        calls = [write("boss", {"task": str(i)}, str(i)) for i in range(8)]
        return await manager.invoke(calls, ToolContext("t", SAMPLE))

    def speak(last: Mapping[str, Any]) -> Reply:
        return (
            said(last["content"]) if last["role"] == "tool" else said("", ("echo", f'{{"text": "{last["content"]}"}}'))
        )

    with by_model(boss=speak) as server:
        results = managed([agent(server, echo)], work)
    assert [result.content for result in results] == [str(i) for i in range(8)]
    assert len({chat["seed"] for chat in server.chats}) == 16


def test_its_tools_have_limits_of_their_own() -> None:
    with serving(said("", ("echo", '{"text": "word ", "times": 500}')), said("Done.")) as server:
        call([agent(server, echo, limits={"max_result_tokens": 10})], "boss", {"task": "x"})
        assert "[truncated" in server.chats[1]["messages"][-1]["content"]
        with pytest.raises(ConfigError, match="max_result_token"):
            agent(server, echo, limits={"max_result_token": 10})
