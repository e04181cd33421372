"""A task as an OpenEnv server: its messages, its tools and its rewards are those of the task itself."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest
from click.testing import CliRunner
from rlfactory_devkit import TaskBench, constant, oracle
from rlfactory_environments.serve import app
from rlfactory_environments.serve.app import run_server
from rlfactory_environments.serve.sessions import Sessions
from websockets.asyncio.client import connect

from rlfactory_core import serving
from rlfactory_core.errors import DataError, UsageError

Value = TypeVar("Value")
CALL = {"type": "call_tool", "tool_name": "search", "arguments": {"query": "x"}}


@pytest.fixture(scope="module")
def bench() -> Iterator[TaskBench]:
    with TaskBench("search") as opened:
        yield opened


def serve(
    bench: TaskBench, use: Callable[[str], Awaitable[Value]], most: int = 8, idle_s: float = 600.0
) -> tuple[Value, Sessions]:
    """What ``use`` returns, given the address of a server of the task."""
    sessions = Sessions(bench.runtime, bench.rows, most=most, idle_s=idle_s)

    async def run() -> Value:
        bound = serving.listener("127.0.0.1", 0)
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        running = asyncio.ensure_future(run_server(sessions, bound, "search"))
        try:
            return await use(url)
        finally:
            running.cancel()
            await asyncio.wait({running})

    return bench.run(run()), sessions


def talk(bench: TaskBench, *messages: object, most: int = 8, path: str = "/ws") -> list[dict[str, Any]]:
    """The answers of one WebSocket."""

    async def use(url: str) -> list[dict[str, Any]]:
        async with connect(url.replace("http", "ws") + path) as socket:
            answers = []
            for message in messages:
                await socket.send(message if isinstance(message, str) else json.dumps(message))
                answers.append(json.loads(await socket.recv()))
            return answers

    answers, sessions = serve(bench, use, most)
    assert sessions.is_empty
    return answers


def post(bench: TaskBench, *requests: tuple[str, object]) -> list[httpx.Response]:
    async def use(url: str) -> list[httpx.Response]:
        async with httpx.AsyncClient(base_url=url, timeout=300) as client:
            return [await client.post(path, json=body) for path, body in requests]

    return serve(bench, use)[0]


def test_a_session_gives_the_prompt_the_results_and_the_reward(bench: TaskBench) -> None:
    sample = bench.rows("train")[3]
    begun, called, state, ended, after = talk(
        bench,
        {"type": "reset", "data": {"seed": 3, "episode_id": "mine"}},
        {"type": "step", "data": CALL},
        {"type": "state"},
        {"type": "step", "data": {"message": f"<answer>{sample.answer}</answer>"}},
        {"type": "step", "data": {"message": "again"}},
    )
    observation = begun["data"]["observation"]
    assert (begun["type"], begun["data"]["reward"], begun["data"]["done"]) == ("observation", None, False)
    assert observation["text"] == "\n\n".join(message.content for message in sample.messages)
    assert [tool["function"]["name"] for tool in observation["metadata"]["tools"]] == ["search"]
    result = called["data"]["observation"]
    assert (result["tool_name"], result["result"]["is_error"]) == ("search", False)
    assert result["text"] == result["result"]["content"][0]["text"]
    assert state["data"] == {"episode_id": "mine", "step_count": 1, "sample": sample.id, "done": False}
    (played,) = bench.play(oracle(bench.task), [sample])
    assert (ended["data"]["done"], ended["data"]["reward"]) == (True, played.reward)
    assert ended["data"]["observation"]["metadata"]["stop"] == "final_answer"
    assert (after["type"], after["data"]["code"]) == ("error", "EXECUTION_ERROR")


def test_our_client_gets_from_a_served_task_what_the_task_itself_gives(bench: TaskBench) -> None:
    rows = bench.rows("train")

    def solve(sample: Any, messages: Any, tools: Any, rng: Any) -> Any:
        return bench.task.solve(rows[sample.metadata["seed"] % len(rows)], messages)

    async def use(url: str) -> list[Any]:
        def play() -> list[Any]:
            with TaskBench("openenv", [f"task.url={url}", "task.introduction="]) as other:
                return [other.play(policy, other.rows("train")[:5]) for policy in (solve, constant("dunno"))]

        return await asyncio.to_thread(play)

    (solved, failed), sessions = serve(bench, use)
    expected = [bench.play(policy, rows[1:6]) for policy in (oracle(bench.task), constant("dunno"))]
    assert [each.reward for each in solved] == [each.reward for each in expected[0]]
    assert [each.reward for each in failed] == [each.reward for each in expected[1]]
    results = [[[result.content for result in turn.results] for turn in each.turns] for each in solved]
    assert results == [[[result.content for result in turn.results] for turn in each.turns] for each in expected[0]]
    assert sessions.is_empty


def test_a_sample_can_be_named_and_a_wrong_name_is_explained(bench: TaskBench) -> None:
    sample = bench.rows("eval")[2]
    named, wrong, split = talk(
        bench,
        {"type": "reset", "data": {"split": "eval", "sample": sample.id}},
        {"type": "reset", "data": {"sample": "nobody"}},
        {"type": "reset", "data": {"split": "test"}},
    )
    assert sample.messages[-1].content in named["data"]["observation"]["text"]
    assert "the split train has no such sample" in wrong["data"]["message"]
    assert "split='test': the task has no such data" in split["data"]["message"]


def test_wrong_messages_are_refused_and_the_session_goes_on(bench: TaskBench) -> None:
    answers = talk(
        bench,
        {"type": "step", "data": {"message": "before the reset"}},
        {"type": "reset"},
        "{",
        "[]",
        {"type": "dance"},
        {"type": "step", "data": {"colour": "red"}},
        {"type": "step", "data": {"type": "call_tool", "tool_name": "search", "arguments": "x"}},
        {"type": "step", "data": {"type": "call_tool", "tool_name": "find", "arguments": {}}},
        {"type": "step", "data": {"type": "call_tool", "tool_name": "search", "arguments": {}}},
    )
    assert [answer["data"].get("code") for answer in answers[:1] + answers[2:7]] == [
        "EXECUTION_ERROR",
        "INVALID_JSON",
        "UNKNOWN_TYPE",
        "UNKNOWN_TYPE",
        "VALIDATION_ERROR",
        "VALIDATION_ERROR",
    ]
    unknown, invalid = (answer["data"]["observation"]["result"] for answer in answers[7:])
    assert unknown["is_error"]
    assert "there is no tool" in unknown["content"][0]["text"]
    assert "'query'" in invalid["content"][0]["text"]


def test_tools_can_be_called_by_mcp_within_the_episode(bench: TaskBench) -> None:
    def rpc(method: str, **params: object) -> dict[str, object]:
        return {"type": "mcp", "data": {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}}

    _, listed, called, unknown, state = talk(
        bench,
        {"type": "reset"},
        rpc("tools/list"),
        rpc("tools/call", name="search", arguments={"query": "x"}),
        rpc("tools/fly"),
        {"type": "state"},
    )
    assert [tool["name"] for tool in listed["data"]["result"]["tools"]] == ["search"]
    assert called["data"]["id"] == 7
    assert called["data"]["result"]["content"][0]["type"] == "text"
    assert unknown["data"]["error"]["code"] == -32601
    assert state["data"]["step_count"] == 1


def test_tools_can_be_called_by_mcp_alone(bench: TaskBench) -> None:
    request = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "search", "arguments": {"query": "x"}},
    }
    (by_socket,) = talk(bench, request, path="/mcp")
    assert by_socket["result"]["content"]
    (by_http, empty) = post(bench, ("/mcp", request), ("/mcp", {}))
    assert by_http.json()["result"]["content"]
    assert empty.json()["error"]["code"] == -32600


def test_a_session_of_http_can_be_attached_to_and_closed(bench: TaskBench) -> None:
    async def use(url: str) -> list[dict[str, Any]]:
        async with httpx.AsyncClient(base_url=url, timeout=300) as client:

            async def rpc(method: str, **params: object) -> dict[str, Any]:
                body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
                answer: dict[str, Any] = (await client.post("/mcp", json=body)).json()
                return answer

            name = (await rpc("openenv/session/create"))["result"]["session_id"]
            async with connect(url.replace("http", "ws") + f"/ws?session_id={name}") as socket:
                await socket.send(json.dumps({"type": "reset", "data": {"seed": 1}}))
                await socket.recv()
                called = await rpc("tools/call", session_id=name, name="search", arguments={"query": "x"})
                busy = await rpc("openenv/session/close", session_id=name)
                await socket.send(json.dumps({"type": "close"}))
                await socket.wait_closed()
            closed = await rpc("openenv/session/close", session_id=name)
            return [called, busy, closed, await rpc("openenv/session/close", session_id=name)]

    (called, busy, closed, gone), _ = serve(bench, use)
    assert called["result"]["content"]
    assert "a WebSocket uses" in busy["error"]["message"]
    assert closed["result"]["closed"] is True
    assert "Unknown session_id" in gone["error"]["message"]


def test_there_are_as_many_sessions_as_allowed(bench: TaskBench) -> None:
    async def use(url: str) -> list[Any]:
        address = url.replace("http", "ws") + "/ws"
        async with connect(address) as one, connect(address) as other, connect(address) as third:
            answer = json.loads(await third.recv())
            await one.send(json.dumps({"type": "close"}))
            await one.wait_closed()
            async with connect(address) as fourth:
                await fourth.send(json.dumps({"type": "reset"}))
                begun = json.loads(await fourth.recv())
            await other.close()
        return [answer, begun]

    (refused, begun), _ = serve(bench, use, most=2)
    assert refused["data"]["code"] == "CAPACITY_REACHED"
    assert (refused["data"]["active_sessions"], refused["data"]["max_sessions"]) == (2, 2)
    assert begun["type"] == "observation"


def test_an_unused_session_of_http_makes_room(bench: TaskBench) -> None:
    create = {"jsonrpc": "2.0", "id": 1, "method": "openenv/session/create"}

    async def use(url: str) -> list[dict[str, Any]]:
        async with httpx.AsyncClient(base_url=url, timeout=300) as client:
            return [(await client.post("/mcp", json=create)).json() for _ in range(2)]

    (first, second), _ = serve(bench, use, most=1, idle_s=0.0)
    assert "result" in first
    assert "result" in second
    (first, second), _ = serve(bench, use, most=1)
    assert second["error"]["data"] == {"active_sessions": 1, "max_sessions": 1}


def test_http_steps_are_episodes_of_their_own(bench: TaskBench) -> None:
    begun, stepped, wrong = post(
        bench,
        ("/reset", {"seed": 3}),
        ("/step", {"action": {"message": "dunno"}, "seed": 3}),
        ("/step", {"action": {"colour": "red"}}),
    )
    assert begun.json()["observation"]["text"] == bench.rows("train")[3].messages[-1].content
    assert stepped.json()["done"] is True
    assert wrong.status_code == 422


def test_many_sessions_play_at_once(bench: TaskBench) -> None:
    async def use(url: str) -> list[Any]:
        def play() -> list[Any]:
            with TaskBench("openenv", [f"task.url={url}"]) as other:
                return other.play(constant("dunno"), other.rows("train")[:24])

        return await asyncio.to_thread(play)

    played, _ = serve(bench, use, most=8)
    assert len(played) == 24
    assert not any(each.masked for each in played)


HALF = "\\ud800"  # of a surrogate pair, which JSON may hold, and no encoding
CALL_HALF = f'{{"action": {{"type": "call_tool", "tool_name": "search", "arguments": {{"query": "{HALF}"}}}}}}'


@pytest.mark.parametrize(
    ("path", "body", "status", "said"),
    [
        ("/reset", b"{oops", 422, "Expecting property name"),
        ("/reset", b"[" * 200_000, 422, "nested too deeply"),
        ("/reset", b"[1]", 422, "expected an object, not [1]"),
        ("/step", CALL_HALF.encode(), 200, "cannot be written as JSON"),
        ("/step", b"x" * (17 << 20), 413, "longer than 16,777,216 bytes"),
        ("/mcp", b"x" * (17 << 20), 413, "longer than 16,777,216 bytes"),
        ("/mcp", b"[" * 200_000, 200, "Parse error"),
        ("/mcp", f'{{"jsonrpc": "2.0", "id": NaN, "method": "{HALF}"}}'.encode(), 200, "Method not found"),
    ],
)
def test_a_wrong_body_is_refused_with_the_reason(
    bench: TaskBench, path: str, body: bytes, status: int, said: str
) -> None:
    async def use(url: str) -> httpx.Response:
        async with httpx.AsyncClient(base_url=url, timeout=300) as client:
            return await client.post(path, content=body)

    response, sessions = serve(bench, use)
    assert response.status_code == status
    assert said in response.text
    assert sessions.is_empty


@pytest.mark.parametrize("path", ["/ws", "/mcp"])
@pytest.mark.parametrize("first", [b"\xff", b"{}", "[" * 200_000])
def test_a_socket_outlives_messages_that_are_none(bench: TaskBench, path: str, first: str | bytes) -> None:
    request = {"jsonrpc": "2.0", "id": 7, "method": "tools/list"}

    async def use(url: str) -> list[dict[str, Any]]:
        async with connect(url.replace("http", "ws") + path) as socket:
            await socket.send(first)
            refused = json.loads(await socket.recv())
            await socket.send(json.dumps(request if path == "/mcp" else {"type": "mcp", "data": request}))
            return [refused, json.loads(await socket.recv())]

    (refused, listed), _ = serve(bench, use)
    assert "error" in (refused, refused.get("type"), *refused)
    assert "search" in json.dumps(listed)


@pytest.mark.parametrize("begun", [b"", b"POST /reset HTTP/1.1\r\nhost: x\r\nx-"])
def test_a_client_that_does_not_finish_its_head_is_closed(
    bench: TaskBench, begun: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "HEAD_S", 0.2)

    async def use(url: str) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        writer.write(begun)
        async with asyncio.timeout(60):
            answer = await reader.read()
        writer.close()
        return answer

    assert serve(bench, use)[0] == b""


def test_a_client_that_does_not_send_its_body_is_answered_408(
    bench: TaskBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "_BODY_S", 0.2)

    async def use(url: str) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        writer.write(b"POST /reset HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
        async with asyncio.timeout(60):
            answer = await reader.read()
        writer.close()
        return answer

    assert serve(bench, use)[0].startswith(b"HTTP/1.1 408 ")


def test_ctrl_c_with_an_open_socket_ends_in_silence() -> None:
    command = [sys.executable, "-m", "rlfactory_core", "serve", "--plugin", "search", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = process.stdout.readline().partition("127.0.0.1:")[2].partition(" ")[0]

        async def leave_open() -> None:
            async with connect(f"ws://127.0.0.1:{port}/ws") as socket:
                await socket.send(json.dumps({"type": "reset"}))
                await socket.recv()
                process.send_signal(signal.SIGINT)
                await asyncio.to_thread(process.wait, 60)

        try:
            asyncio.run(leave_open())
        finally:
            process.kill()
        assert process.stderr is not None
        assert (process.returncode, process.stderr.read()) == (0, "")


def test_data_that_cannot_be_read_and_a_port_in_use_are_said_at_the_start(tmp_path: Path) -> None:
    from rlfactory_environments.serve.command import serve as command

    with pytest.raises(DataError, match=r"none\.jsonl"):
        CliRunner().invoke(
            command,
            ["--plugin", "search", "--port", "0", "--data", str(tmp_path / "none.jsonl")],
            catch_exceptions=False,
        )
    with serving.listener("127.0.0.1", 0) as taken, pytest.raises(UsageError, match="Choose another --host or --port"):
        serving.listener("127.0.0.1", taken.getsockname()[1])
