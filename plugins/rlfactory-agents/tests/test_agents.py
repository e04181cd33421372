"""Agents of the user's own: what they answer, how they fail, and that nothing of them stays."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from agent_conversations import user
from agent_plays import LONG_S, play
from conversations import CHAT, RecordingSampler, episode
from rlfactory_agents import play as play_module
from rlfactory_agents.function import FunctionAgents
from rlfactory_agents.play import play_agent
from rlfactory_agents.server import Gateway

from rlfactory_core.errors import BackendError
from rlfactory_core.gateway import Endpoint
from rlfactory_core.rollout import RolloutLimits, TokenModel
from rlfactory_core.types import FaultKind, Sample, StopReason, Trajectory


async def ask(endpoint: Endpoint, *messages: dict[str, Any]) -> str:
    headers = {"authorization": f"Bearer {endpoint.key}"}
    async with httpx.AsyncClient(trust_env=False, headers=headers, timeout=30) as client:
        response = await client.post(f"{endpoint.url}/chat/completions", json={"messages": list(messages)})
        response.raise_for_status()
        return str(response.json()["choices"][0]["message"]["content"])


def asking(then: Callable[[str], Any]) -> FunctionAgents:
    """An agent that asks once, and then does something with the answer."""

    async def agent(sample: Sample, endpoint: Endpoint) -> Any:
        return then(await ask(endpoint, user("Who?")))

    return FunctionAgents(agent)


def fail(error: BaseException) -> Callable[[str], Any]:
    def then(_: str) -> None:
        raise error

    return then


def test_what_an_agent_returns_is_the_answer() -> None:
    played = play(asking(lambda said: {"answer": said, "reward": 0.5, "metadata": {"steps": 3}}))
    assert (played.stop, played.answer, played.reward, played.info) == (
        StopReason.FINAL_ANSWER,
        "him",
        0.5,
        {"steps": 3},
    )
    assert played.num_sampled == len("him") + 1


def test_an_agent_may_block() -> None:
    def agent(sample: Sample, endpoint: Endpoint) -> str:
        headers = {"authorization": f"Bearer {endpoint.key}"}
        body = {"messages": [user("Who?")]}
        said = httpx.post(f"{endpoint.url}/chat/completions", json=body, headers=headers, trust_env=False, timeout=30)
        return str(said.json()["choices"][0]["message"]["content"])

    async def blocking(sample: Sample, endpoint: Endpoint) -> str:
        return agent(sample, endpoint)

    assert play(FunctionAgents(agent)).answer == "him"
    assert play(FunctionAgents(blocking)).answer == "him"


@pytest.mark.parametrize(
    ("then", "kind", "words"),
    [
        (fail(KeyError("town")), FaultKind.AGENT, "KeyError: 'town'"),
        (fail(SystemExit(3)), FaultKind.AGENT, "ended itself"),
        (fail(ConnectionRefusedError("no search")), FaultKind.INFRA, "no search"),
        (fail(TimeoutError("search hung")), FaultKind.INFRA, "search hung"),
        (lambda said: None, FaultKind.AGENT, "without an answer"),
        (lambda said: {"answer": said, "reward": float("nan")}, FaultKind.AGENT, "expected a finite number"),
    ],
)
def test_failures_are_the_agents_or_the_machines(then: Callable[[str], Any], kind: FaultKind, words: str) -> None:
    played = play(asking(then))
    (fault,) = played.faults
    assert (fault.kind, fault.source) == (kind, "agent")
    assert words in fault.message
    assert played.answer is None
    assert played.masked is (kind is FaultKind.INFRA)
    assert played.stop is (StopReason.FAULT if played.masked else StopReason.AGENT_FAILED)


def test_an_agent_that_never_asks_has_failed() -> None:
    async def agent(sample: Sample, endpoint: Endpoint) -> str:
        return "him"

    played = play(FunctionAgents(agent))
    assert (played.stop, played.turns, played.answer) == (StopReason.AGENT_FAILED, (), None)
    assert "never asked" in played.faults[0].message


def test_a_limit_that_ends_the_agent_is_nobodys_fault() -> None:
    async def agent(sample: Sample, endpoint: Endpoint) -> str:
        history = [user("Who?")]
        while True:
            said = await ask(endpoint, *history)
            history += [{"role": "assistant", "content": said}, user("Sure?")]

    played = play(FunctionAgents(agent), limits=RolloutLimits(3, 9, 100, 10_000))
    assert (played.stop, len(played.turns), played.faults) == (StopReason.MAX_TURNS, 3, ())


@pytest.mark.parametrize("gives_up", [True, False])
def test_an_attempt_whose_first_request_leaves_no_room_is_masked(gives_up: bool) -> None:
    async def agent(sample: Sample, endpoint: Endpoint) -> str:
        with contextlib.suppress(() if gives_up else httpx.HTTPStatusError):
            await ask(endpoint, user("Who? " * 100))
        return "him"

    played = play(FunctionAgents(agent), limits=RolloutLimits(3, 9, 100, 200))
    assert (played.masked, [fault.source for fault in played.faults]) == (True, ["prompt"])


def test_an_agent_that_goes_on_after_a_limit_is_ended_and_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not masked and played again: that would leave out the long attempts."""
    monkeypatch.setattr(play_module, "GRACE_S", 0.05)

    async def agent(sample: Sample, endpoint: Endpoint) -> str:
        while True:
            with contextlib.suppress(httpx.HTTPStatusError):
                await ask(endpoint, user("Who?"))

    played = play(FunctionAgents(agent), limits=RolloutLimits(2, 9, 100, 10_000))
    assert (played.stop, len(played.turns), played.faults) == (StopReason.MAX_TURNS, 2, ())
    assert not played.masked


def test_an_agent_that_answers_after_a_limit_has_its_answer_and_the_limit_is_why_it_ended() -> None:
    async def agent(sample: Sample, endpoint: Endpoint) -> str:
        said = await ask(endpoint, user("Who?"))
        with contextlib.suppress(Exception):
            await ask(endpoint, user("Who?"), {"role": "assistant", "content": said}, user("Sure?"))
        return "him"

    played = play(FunctionAgents(agent), limits=RolloutLimits(1, 9, 100, 10_000))
    assert (played.stop, played.answer, played.faults) == (StopReason.MAX_TURNS, "him", ())


def test_a_model_that_does_not_answer_masks() -> None:
    class Down(RecordingSampler):
        async def sample(self, *_: Any, **__: Any) -> Any:
            raise BackendError("no tokens from vLLM within 3 s")

    async def agent(sample: Sample, endpoint: Endpoint) -> str:
        try:
            return await ask(endpoint, user("Who?"))
        except httpx.HTTPStatusError:
            return "I give up."

    async def run() -> Trajectory:
        gateway, agents = Gateway(), FunctionAgents(agent)
        await gateway.open()
        try:
            return await play_agent(episode(), agents, TokenModel(CHAT, Down([])), gateway, LONG_S)
        finally:
            await agents.close()
            await gateway.close()

    played = asyncio.run(run())
    assert played.masked
    assert (played.faults[0].source, played.stop) == ("model", StopReason.FAULT)


def test_an_agent_that_hangs_is_ended() -> None:
    ended = []

    async def agent(sample: Sample, endpoint: Endpoint) -> str:
        await ask(endpoint, user("Who?"))
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)
        return ""

    played = play(FunctionAgents(agent), deadline_s=1.0)
    assert played.masked
    assert "agent.deadline_s" in played.faults[0].message
    assert ended == [True]


def test_a_function_that_hangs_in_a_blocking_call_does_not_hold_the_program(tmp_path: Path) -> None:
    """A thread cannot be ended; neither the attempt nor the interpreter's exit waits for it."""
    code = """
        import asyncio, threading, types
        from conversations import CHAT, RecordingSampler, episode
        from rlfactory_agents.function import FunctionAgents
        from rlfactory_core.rollout import TokenModel
        from rlfactory_agents.play import play_agent
        from rlfactory_agents.server import Gateway

        async def play():
            gateway, agents = Gateway(), FunctionAgents(lambda sample, endpoint: threading.Event().wait())
            await gateway.open()
            played = await play_agent(episode(), agents, TokenModel(CHAT, RecordingSampler([])), gateway, 0.5)
            await agents.close()
            await gateway.close()
            print(played.faults[0].code)

        asyncio.run(play())
        """
    file = tmp_path / "hangs.py"
    file.write_text(textwrap.dedent(code))
    support = Path(__file__).parents[3] / "tests" / "support"
    path = os.pathsep.join([str(support), *sys.path])
    done = subprocess.run(
        [sys.executable, str(file)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.strip() == "late", done.stderr
