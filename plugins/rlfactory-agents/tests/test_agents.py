"""Agents of the user's own: what they answer, how they fail, and that nothing of them stays."""

from __future__ import annotations

import asyncio
import contextlib
import json
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
from conversations import CHAT, LIMITS, RecordingSampler, episode
from process_tree import is_running
from rlfactory_agents import play as play_module
from rlfactory_agents.function import FunctionAgents
from rlfactory_agents.play import play_agent
from rlfactory_agents.program import MAX_OUTPUT, ProgramAgents
from rlfactory_agents.server import Gateway

from rlfactory_core.errors import BackendError, ConfigError
from rlfactory_core.gateway import Endpoint
from rlfactory_core.gateway.models import TokenModel
from rlfactory_core.rollout import RolloutLimits
from rlfactory_core.types import FaultKind, Message, Sample, StopReason, Trajectory

LONG_S = 60.0
SAMPLE = Sample("s", (Message("system", "Short."), Message("user", "Who?")), "him", {"town": "Ransta"})


def play(
    agent: Any, script: list[str] | None = None, limits: RolloutLimits = LIMITS, deadline_s: float = LONG_S
) -> Trajectory:
    async def run() -> Trajectory:
        gateway = Gateway()
        await gateway.open()
        model = TokenModel(CHAT, RecordingSampler(script or ["him"] * 10))
        try:
            return await play_agent(episode(limits, SAMPLE), agent, model, gateway, deadline_s)
        finally:
            await agent.close()
            await gateway.close()

    return asyncio.run(run())


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


# --- programs ---------------------------------------------------------------------------------------------------------


def program(tmp_path: Path, code: str, **options: Any) -> ProgramAgents:
    """An agent that is a Python program; ``ask(text)`` in it asks the model."""
    head = """
        import json, os, subprocess, sys, time, urllib.request

        def ask(text, environment=os.environ):
            body = json.dumps({"messages": [{"role": "user", "content": text}]}).encode()
            key = {"authorization": "Bearer " + environment["OPENAI_API_KEY"], "content-type": "application/json"}
            request = urllib.request.Request(environment["OPENAI_BASE_URL"] + "/chat/completions", body, key)
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            return json.load(opener.open(request))["choices"][0]["message"]["content"]
        """
    file = tmp_path / "agent.py"
    file.write_text(textwrap.dedent(head) + textwrap.dedent(code))
    return ProgramAgents(f"{sys.executable} {file}", **options)


def test_a_program_answers_on_its_last_line(tmp_path: Path) -> None:
    code = """
        sample = json.load(sys.stdin)
        assert sample == json.load(open(os.environ["RLFACTORY_SAMPLE"]))
        print("looking …")
        print(json.dumps({"answer": ask(sample["prompt"]), "metadata": sample}))
        """
    played = play(program(tmp_path, code))
    assert (played.answer, played.stop) == ("him", StopReason.FINAL_ANSWER)
    messages = [{"role": "system", "content": "Short."}, {"role": "user", "content": "Who?"}]
    assert played.info == {"id": "s", "prompt": "Who?", "messages": messages, "metadata": {"town": "Ransta"}}


def test_a_program_sees_no_secrets_but_those_that_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_PASSWORD", "hidden")
    monkeypatch.setenv("SEARCH_KEY", "named")
    code = 'ask("?"); print(json.dumps({"answer": "x", "metadata": dict(os.environ)}))'
    seen = play(program(tmp_path, code, environment=["SEARCH_KEY"])).info
    assert seen["SEARCH_KEY"] == "named"
    assert "DATABASE_PASSWORD" not in seen
    assert seen["ANTHROPIC_BASE_URL"] + "/v1" == seen["OPENAI_BASE_URL"]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ('ask("?"); sys.exit("no such town")', "exited with status 1: no such town"),
        ('ask("?"); print("\\x1b[2J", file=sys.stderr); sys.exit(4)', r"exited with status 4: \x1b[2J"),
        ('ask("?"); os.kill(os.getpid(), 9)', "was ended by SIGKILL"),
        ('ask("?")', "without an answer"),
        ('print("him")', "never asked"),
        (f'ask("?"); sys.stdout.write("x" * {2 * MAX_OUTPUT})', "bytes to its standard output"),
    ],
)
def test_a_program_that_fails(tmp_path: Path, code: str, words: str) -> None:
    played = play(program(tmp_path, code))
    assert played.stop is StopReason.AGENT_FAILED
    assert words in played.faults[0].message


@pytest.mark.slow
def test_a_program_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    code = """
        import signal
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        open(sys.argv[0] + ".pids", "w").write(f"{os.getpid()} {child.pid}")
        ask("?")
        time.sleep(600)
        """
    agent = program(tmp_path, code)
    played = play(agent, deadline_s=5.0)
    assert played.masked
    pids = map(int, (tmp_path / "agent.py.pids").read_text().split())
    assert not list(filter(is_running, pids))


def test_a_child_that_outlives_the_program_does_not_hold_the_attempt(tmp_path: Path) -> None:
    code = """
        print(ask("?"), flush=True)
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        open(sys.argv[0] + ".pid", "w").write(str(child.pid))
        """
    assert play(program(tmp_path, code)).answer == "him"
    assert not is_running(int((tmp_path / "agent.py.pid").read_text()))


def test_a_pool_of_programs_plays_one_attempt_after_the_other(tmp_path: Path) -> None:
    code = """
        for line in sys.stdin:
            sample = json.loads(line)
            said = ask(sample["prompt"], sample["environment"])
            if said == "die":
                sys.exit("dead")
            print(json.dumps({"answer": said, "metadata": {"pid": os.getpid()}}), flush=True)
        """
    agent = program(tmp_path, code, workers=1)

    async def run() -> list[Trajectory]:
        gateway = Gateway()
        await gateway.open()
        found = []
        for text in ("one", "two", "die", "three"):
            model = TokenModel(CHAT, RecordingSampler([text]))
            found.append(await play_agent(episode(), agent, model, gateway, LONG_S))
        await agent.close()
        await gateway.close()
        return found

    one, two, dead, three = asyncio.run(run())
    assert [each.answer for each in (one, two, dead, three)] == ["one", "two", None, "three"]
    assert one.info["pid"] == two.info["pid"] != three.info["pid"]
    assert not is_running(three.info["pid"])
    assert "dead" in dead.faults[0].message


@pytest.mark.parametrize(
    ("command", "options", "words"),
    [
        ('python "agent.py', {}, "cannot be read"),
        ("", {}, "is empty"),
        ("agent", {"environment": ["RLFACTORY_NOT_SET"]}, "RLFACTORY_NOT_SET"),
    ],
)
def test_a_command_that_cannot_be_used_is_refused(command: str, options: Any, words: str) -> None:
    assert "RLFACTORY_NOT_SET" not in os.environ
    with pytest.raises(ConfigError, match=words):
        ProgramAgents(command, **options)


def test_a_program_that_is_not_there_fails_the_attempt(tmp_path: Path) -> None:
    played = play(ProgramAgents(str(tmp_path / "missing")))
    assert "cannot start" in played.faults[0].message


def test_the_sample_that_a_program_gets_has_no_answer(tmp_path: Path) -> None:
    code = 'ask("?"); print(json.dumps({"answer": "x", "metadata": {"sample": sys.stdin.read()}}))'
    assert "him" not in json.dumps(dict(play(program(tmp_path, code)).info))


def test_a_function_that_hangs_in_a_blocking_call_does_not_hold_the_program(tmp_path: Path) -> None:
    """A thread cannot be ended; neither the attempt nor the interpreter's exit waits for it."""
    code = """
        import asyncio, threading, types
        from conversations import CHAT, RecordingSampler, episode
        from rlfactory_agents.function import FunctionAgents
        from rlfactory_core.gateway.models import TokenModel
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
