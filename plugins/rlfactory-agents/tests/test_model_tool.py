"""A model as a tool: what it is asked, what comes back, and whose fault a failure is."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any

import pytest
from delegates import ask, call, managed
from fake_openai import Reply, error, said, scripted, serve
from rlfactory_agents import model_tool

from rlfactory_core import BackendError, ToolContext, UsageError
from rlfactory_core.tools import DefaultToolManager
from rlfactory_core.types import FaultKind, Sample, ToolResult


def summarise(url: str, **options: Any) -> Any:
    options = {"description": "Say it shorter.", **options}
    return model_tool("summarise", url, "toy", "Summarise {text} for {who}.", **options)


ASKED = {"text": "{who} said {0}", "who": "me"}


def test_it_asks_the_model_and_gives_back_what_it_says() -> None:
    with serve(scripted(said("Short."))) as server:
        tool = summarise(server.url, system="Be brief.", max_tokens=9, api_key="k", parameters={"who": "the reader"})

        async def work(manager: DefaultToolManager) -> ToolResult:
            (spec,) = manager.specs
            assert (spec.name, spec.description) == ("summarise", "Say it shorter.")
            assert spec.parameters["properties"]["who"]["description"] == "the reader"
            return await ask(manager, "summarise", **ASKED)

        result = managed([tool], work)
    assert (result.content, result.fault) == ("Short.", None)
    (asked,) = server.chats
    assert asked["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Summarise {who} said {0} for me."},
    ]
    assert (asked["max_tokens"], asked["temperature"]) == (9, 0.7)
    assert set(server.authorizations) == {"Bearer k"}


def test_without_a_description_the_policy_is_told_the_prompt() -> None:
    async def work(manager: DefaultToolManager) -> str:
        return manager.specs[0].description

    with serve(scripted(said("Short."))) as server:
        told = managed([summarise(server.url, description=None)], work)
    assert told == "Ask a language model: Summarise {text} for {who}."


def test_missing_arguments_do_not_reach_the_model() -> None:
    with serve(scripted()) as server:
        result = call([summarise(server.url)], "summarise", {"text": "long"})
    assert result.fault is FaultKind.POLICY
    assert "'who'" in result.content
    assert server.chats == []


def test_sampled_answers_differ_by_trajectory_and_call_and_come_again_in_a_second_run() -> None:
    async def work(manager: DefaultToolManager) -> None:
        for trajectory in ("a", "b"):
            context = ToolContext(trajectory, Sample("s", "?"))
            for _ in range(2):
                await ask(manager, "summarise", context, **ASKED)

    runs = []
    for _ in range(2):
        with serve(lambda body: said("Short.")) as server:
            managed([summarise(server.url)], work, cache="memory")
        runs.append([chat["seed"] for chat in server.chats])
    assert len(set(runs[0])) == 4
    assert runs[0] == runs[1]


def test_greedy_answers_may_be_cached() -> None:
    async def work(manager: DefaultToolManager) -> tuple[ToolResult, ToolResult]:
        return await ask(manager, "summarise", **ASKED), await ask(manager, "summarise", **ASKED)

    with serve(scripted(said("Short."))) as server:
        first, second = managed([summarise(server.url, temperature=0)], work, cache="memory")
    assert (first.cached, second.cached, second.content) == (False, True, "Short.")


def test_another_prompt_or_model_is_another_version() -> None:
    async def version(url: str, model: str, prompt: str) -> str:
        source = model_tool("m", url, model, prompt, description="")
        try:
            (tool,) = await source.open(())
            return tool.version
        finally:
            await source.close()

    with serve(scripted(), models=["toy", "other"]) as server:
        cases = [("toy", "Say {a}"), ("toy", "Say {a}"), ("other", "Say {a}"), ("toy", "Do {a}")]
        versions = [asyncio.run(version(server.url, *case)) for case in cases]
    assert versions[0] == versions[1]
    assert len(set(versions)) == 3


def test_an_endpoint_that_does_not_answer_ends_the_run_at_its_start() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound, not listening
        dead = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(BackendError, match=r"tool 'summarise': .* cannot be reached"):
            call([summarise(dead)], "summarise", ASKED)
    with (
        serve(lambda body: error(404, "no such model"), models=["toys"]) as server,
        pytest.raises(BackendError, match=r"tool 'summarise': .*Did you mean 'toys'"),
    ):
        call([summarise(server.url)], "summarise", ASKED)
    with pytest.raises(UsageError, match=r"tool 'summarise': .*not an http address"):
        call([summarise("localhost:1")], "summarise", ASKED)


@pytest.mark.parametrize("reply", [error(503, "busy"), error(404, "gone"), Reply(0), Reply(body=b"<html>")])
def test_an_endpoint_that_fails_in_mid_run_is_an_infra_fault(reply: Reply) -> None:
    def answer(body: Any) -> Reply:
        return said("Hi") if body["messages"][0]["content"] == "Hello" else reply

    with serve(answer) as server:
        result = call([summarise(server.url, deadline_s=0.3)], "summarise", ASKED)
    assert result.fault is FaultKind.INFRA
    assert server.url not in result.content


def test_a_slow_answer_is_cut_by_the_deadline() -> None:
    late = threading.Event()

    def answer(body: Any) -> Reply:
        if body["messages"][0]["content"] != "Hello":
            late.wait(60)
        return said("Short.")

    with serve(answer) as server:
        try:
            result = call([summarise(server.url, deadline_s=0.2)], "summarise", ASKED)
        finally:
            late.set()
    assert result.fault is FaultKind.INFRA
    assert result.latency_s < 20


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (said(None, refusal="I won't."), "summarise gave no answer"),
        (said("", finish="length"), "no answer within 512 tokens"),
        (said("<think>Hm.</think>"), "gave no answer"),
        (error(400, "the context length is 10"), "more text than summarise can read"),
    ],
)
def test_no_answer_is_the_tools_no(reply: Reply, words: str) -> None:
    with serve(scripted(reply)) as server:
        result = call([summarise(server.url)], "summarise", ASKED)
    assert result.fault is FaultKind.TOOL
    assert words in result.content


def test_a_cut_answer_says_so() -> None:
    with serve(scripted(said("Once upon", finish="length"))) as server:
        result = call([summarise(server.url, max_tokens=2)], "summarise", ASKED)
    assert (result.fault, result.content) == (None, "Once upon\n[cut after 2 tokens]")
