"""Published MCP servers, called as a run calls them: transports, kinds of answers, and whose fault a failure is."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from real_servers import (
    SERVERS,
    Server,
    call,
    free_port,
    listening,
    needs_servers,
    npm,
    opened,
    processes,
    pypi,
    remote,
    tagged,
    trajectory,
    write,
)

from rlfactory_core.types import FaultKind

Rlfactory = Callable[..., "subprocess.CompletedProcess[str]"]

pytestmark = [needs_servers, pytest.mark.usefixtures("nothing_left")]


@pytest.fixture(params=["stdio", "sse", "streamable-http"])
def everything(request: pytest.FixtureRequest, nothing_left: None) -> Iterator[Server]:
    """``server-everything`` over one of the three transports."""
    if request.param == "stdio":
        yield npm("everything", "stdio")
        return
    port = free_port()
    with listening(request.param, port):
        yield remote(request.param, port)


def test_tools_are_offered_with_their_schemas_and_answer(everything: Server) -> None:
    async def work() -> None:
        async with opened({"everything": everything}) as manager:
            specs = {spec.name: spec for spec in manager.specs}
            assert {"echo", "get-sum", "get-structured-content"} <= set(specs)
            assert specs["get-sum"].description == "Returns the sum of two numbers"
            properties = specs["get-sum"].parameters["properties"]
            assert properties["a"] == {"type": "number", "description": "First number"}
            assert specs["get-sum"].parameters["required"] == ["a", "b"]
            echoed = await call(manager, "echo", message="Grüße 👋\n<tool_call>")
            assert (echoed.content, echoed.fault) == ("Echo: Grüße 👋\n<tool_call>", None)
            assert (await call(manager, "get-sum", a=2, b=40)).content == "The sum of 2 and 40 is 42."

    asyncio.run(work())


def test_what_is_not_text_is_shown_as_text(everything: Server) -> None:
    async def work() -> None:
        async with opened({"everything": everything}) as manager:
            weather = await call(manager, "get-structured-content", location="Chicago")
            assert weather.content == '{"temperature":36,"conditions":"Light rain / drizzle","humidity":82}'
            image = await call(manager, "get-tiny-image")
            assert "Here's the image you requested:" in image.content
            assert "image/png" in image.content
            assert "iVBOR" not in image.content  # base64 that would fill the model's context
            links = await call(manager, "get-resource-links", count=2)
            assert links.content.count("demo://resource/dynamic/") == 2
            embedded = await call(manager, "get-resource-reference", resourceType="Text", resourceId=7)
            assert "This is a plaintext resource" in embedded.content
            assert {weather.fault, image.fault, links.fault, embedded.fault} == {None}

    asyncio.run(work())


def test_a_failure_is_put_down_to_who_failed(everything: Server) -> None:
    async def work() -> None:
        async with opened({"everything": everything}) as manager:
            unknown = await call(manager, "ecko", message="hello")
            assert unknown.fault is FaultKind.POLICY
            assert "echo" in unknown.content
            wrong = await call(manager, "get-sum", a="two", b=2)
            assert (wrong.fault, wrong.attempts) == (FaultKind.POLICY, 0)
            refused = await call(manager, "get-resource-reference", resourceType="Text", resourceId=-1)
            assert refused.fault is FaultKind.TOOL
            assert "Must be a finite positive integer" in refused.content
            assert (await call(manager, "echo", message="still here")).content == "Echo: still here"

    asyncio.run(work())


def test_a_call_that_takes_too_long_is_cut_and_only_that_one(everything: Server) -> None:
    async def work() -> None:
        async with opened({"everything": everything}, deadline_s=1.0, retries=0) as manager:
            before = processes()
            long, short = await manager.invoke(
                [write("trigger-long-running-operation", duration=60, steps=1), write("echo", message="quick")],
                trajectory(),
            )
            assert (long.fault, short.content) == (FaultKind.INFRA, "Echo: quick")
            assert 1.0 <= long.latency_s < 30.0
            assert (await call(manager, "echo", message="and on")).content == "Echo: and on"
            assert processes() == before  # the server answers others: no reason to start it anew

    asyncio.run(work())


def test_the_calls_of_a_turn_run_side_by_side_and_keep_their_order(everything: Server) -> None:
    async def work() -> None:
        async with opened({"everything": everything}) as manager:
            seconds = [2.0 - 0.25 * n for n in range(7)]  # the last to be called answers first
            calls = [write("trigger-long-running-operation", duration=s, steps=1) for s in seconds]
            results = await manager.invoke(calls, trajectory())
            assert [result.fault for result in results] == [None] * 7
            for wanted, result in zip(seconds, results, strict=True):
                assert f"Duration: {wanted:g} seconds" in result.content
            assert max(result.latency_s for result in results) < sum(seconds) / 2

    asyncio.run(work())


def test_the_filesystem_server_stays_in_its_folder(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "secret.txt"
    inside.mkdir()
    outside.write_text("secret")

    async def work() -> None:
        async with opened({"files": npm("filesystem", str(inside))}) as manager:
            written = await call(manager, "write_file", path=str(inside / "a.txt"), content="one\ntwo\nthree")
            assert written.fault is None
            assert (inside / "a.txt").read_text() == "one\ntwo\nthree"
            assert (await call(manager, "read_text_file", path=str(inside / "a.txt"), head=2)).content == "one\ntwo"
            assert "[FILE] a.txt" in (await call(manager, "list_directory", path=str(inside))).content
            denied = await call(manager, "read_text_file", path=str(outside))
            assert denied.fault is FaultKind.TOOL
            assert "outside allowed directories" in denied.content
            assert "secret\n" not in denied.content

    asyncio.run(work())


def test_only_the_tools_that_are_allowed_are_offered(tmp_path: Path) -> None:
    files = npm("filesystem", str(tmp_path))

    async def names(**choice: list[str]) -> set[str]:
        async with opened({"files": {**files, **choice}}) as manager:
            return {spec.name for spec in manager.specs}

    assert asyncio.run(names(allow=["read_text_file", "list_directory"])) == {"read_text_file", "list_directory"}
    allowed = asyncio.run(names(deny=["write_file", "edit_file", "move_file"]))
    assert "read_text_file" in allowed
    assert not allowed & {"write_file", "edit_file", "move_file"}


def test_two_servers_with_the_same_tools_get_a_prefix(tmp_path: Path) -> None:
    for name in ("red", "blue"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "colour.txt").write_text(name)

    async def work() -> None:
        only = {"allow": ["read_text_file"]}
        servers = {name: {**npm("filesystem", str(tmp_path / name)), **only} for name in ("red", "blue")}
        async with opened(servers) as manager:
            names = {spec.name for spec in manager.specs}
            assert len(names) == 2
            (of_blue,) = (name for name in names if "blue" in name)
            read = await call(manager, of_blue, path=str(tmp_path / "blue" / "colour.txt"))
            assert read.content == "blue"

    asyncio.run(work())


def test_a_server_started_through_npx_is_ended_with_all_that_npx_started() -> None:
    npx = shutil.which("npx")
    assert npx is not None, "npx comes with npm"
    arguments = ["--yes", "--prefix", SERVERS, "mcp-server-everything", "stdio"]
    server = tagged({"command": npx, "args": arguments})

    async def work() -> None:
        async with opened({"everything": server}) as manager:
            assert (await call(manager, "echo", message="through npx")).content == "Echo: through npx"
            assert len(processes()) > 1

    asyncio.run(work())


def test_the_memory_server_remembers_over_trajectories(tmp_path: Path) -> None:
    entity = {"name": "Ada", "entityType": "person", "observations": ["wrote the first program"]}

    async def work() -> None:
        async with opened({"memory": npm("memory", MEMORY_FILE_PATH=str(tmp_path / "graph.jsonl"))}) as manager:
            assert (await call(manager, "create_entities", entities=[entity])).fault is None
            found = await call(manager, "search_nodes", query="program")
            assert '"Ada"' in found.content
            missing = {"entityName": "Bob", "contents": ["?"]}
            refused = await call(manager, "add_observations", observations=[missing])
            assert (refused.fault, "Bob not found" in refused.content) == (FaultKind.TOOL, True)

    asyncio.run(work())


def test_the_time_server_answers() -> None:
    async def work() -> None:
        async with opened({"time": pypi("time", "--local-timezone", "UTC")}) as manager:
            tokyo = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
            assert "T21:00:00+09:00" in (await call(manager, "convert_time", **tokyo)).content
            nowhere = await call(manager, "get_current_time", timezone="Mars/Olympus")
            assert nowhere.fault is FaultKind.TOOL
            assert "Mars/Olympus" in nowhere.content

    asyncio.run(work())


def test_the_git_server_works_on_a_repository(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    subprocess.run(["git", "init", "--quiet", "--initial-branch", "main", str(repository)], check=True)
    for key, value in {"user.name": "Ada", "user.email": "ada@example.org"}.items():
        subprocess.run(["git", "-C", str(repository), "config", key, value], check=True)
    (repository / "poem.txt").write_text("roses are red\n")

    async def work() -> None:
        async with opened({"git": pypi("git", "--repository", str(repository))}) as manager:
            here = {"repo_path": str(repository)}
            assert "poem.txt" in (await call(manager, "git_status", **here)).content
            assert (await call(manager, "git_add", **here, files=["poem.txt"])).fault is None
            assert (await call(manager, "git_commit", **here, message="A poem")).fault is None
            assert "A poem" in (await call(manager, "git_log", **here)).content
            elsewhere = await call(manager, "git_status", repo_path=str(tmp_path))
            assert (elsewhere.fault, "outside" in elsewhere.content) == (FaultKind.TOOL, True)

    asyncio.run(work())


def test_the_command_line_lists_and_calls_the_tools_of_a_file(tmp_path: Path, rlfactory: Rlfactory) -> None:
    servers = {"mcpServers": {"everything": npm("everything", "stdio"), "time": pypi("time")}}
    (tmp_path / "mcp.json").write_text(json.dumps(servers))
    (tmp_path / "mcp.pydata").write_text(repr([servers]))
    listed = rlfactory("tools", "list", "--mcp", "mcp.pydata", "--json")
    names = {entry["function"]["name"] for entry in json.loads(listed.stdout)}
    assert {"get-sum", "convert_time"} <= names, listed.stderr
    called = rlfactory("tools", "call", "get-sum", "--mcp", "mcp.json", "a=2", "b=40")
    assert (called.stdout, called.returncode) == ("The sum of 2 and 40 is 42.\n", 0)
