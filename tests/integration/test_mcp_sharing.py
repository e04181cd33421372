"""How many of a server there are: one for all, one per trajectory, or a pool."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from real_servers import (
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
    trajectory,
    write,
)
from waiting import until

from rlfactory_core.context import ToolContext
from rlfactory_core.tools import DefaultToolManager

pytestmark = [needs_servers, pytest.mark.usefixtures("nothing_left")]

HOOK = """#!/bin/sh
# A commit that waits until as many commits as told are under way, and gives up after a while.
touch {under_way}/$$
for _ in $(seq 200); do
    [ "$(ls {under_way} | wc -l)" -ge {together} ] && exit 0
    sleep 0.05
done
echo "only $(ls {under_way} | wc -l) at once" >&2
exit 1
"""

WORKER = """
import asyncio, json, sys
from real_servers import call, opened

async def work():
    servers, group = json.loads(sys.stdin.readline())
    async with opened(servers, group=group) as manager:
        print("open", flush=True)
        for line in sys.stdin:
            name, arguments = json.loads(line)
            print(json.dumps((await call(manager, name, **arguments)).content), flush=True)

asyncio.run(work())
"""


class Worker:
    """Another process of the run, which opens the servers and makes the calls that it is asked for."""

    def __init__(self, servers: dict[str, Server], group: str) -> None:
        support = os.pathsep.join(path for path in sys.path if path)
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER],
            env={**os.environ, "PYTHONPATH": support},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._write([servers, group])

    def is_open(self) -> bool:
        """Waits until it is, or has failed."""
        return self._read() == "open\n"

    def call(self, name: str, **arguments: object) -> str:
        self._write([name, arguments])
        content: str = json.loads(self._read())
        return content

    def leave(self) -> int:
        self.process.communicate(timeout=120)
        return self.process.returncode

    def _write(self, message: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def _read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()


StartWorkers = Callable[..., list[Worker]]


@pytest.fixture
def workers(nothing_left: None) -> Iterator[StartWorkers]:
    """Start one worker per group named, all at once; gives them opened. They are gone after the test."""
    started: list[Worker] = []

    def start(servers: dict[str, Server], *groups: str) -> list[Worker]:
        started.extend(Worker(servers, group) for group in groups)
        assert all(worker.is_open() for worker in started)
        return started

    yield start
    for worker in started:
        worker.process.kill()
        worker.process.communicate(timeout=120)


def entity(name: str) -> dict[str, object]:
    return {"name": name, "entityType": "person", "observations": []}


def test_trajectories_share_one_server_process(tmp_path: Path) -> None:
    async def work() -> None:
        async with opened({"memory": npm("memory", MEMORY_FILE_PATH=str(tmp_path / "graph.jsonl"))}) as manager:
            await asyncio.gather(*(call(manager, "read_graph") for _ in range(20)))
            assert len(processes("server-memory")) == 1

    asyncio.run(work())


def private_memory(folder: Path) -> Server:
    """A memory server whose file is its process's own: without that, they would all share one file."""
    node = npm("memory")
    script = f'MEMORY_FILE_PATH={folder}/$$.jsonl exec "$0" "$@"'
    return {**node, "command": "sh", "args": ["-c", script, node["command"], *node["args"]], "session": "trajectory"}


async def graph(manager: DefaultToolManager, context: ToolContext) -> list[str]:
    (result,) = await manager.invoke([write("read_graph")], context)
    return [item["name"] for item in json.loads(result.content)["entities"]]


def test_a_server_with_state_is_each_trajectory_s_own(tmp_path: Path) -> None:
    async def work() -> None:
        async with opened({"memory": private_memory(tmp_path)}) as manager:
            ada, bob = trajectory("ada"), trajectory("bob")
            for context, name in ((ada, "Ada"), (bob, "Bob")):
                calls = [write("create_entities", entities=[entity(name)]), write("read_graph"), write("read_graph")]
                results = await manager.invoke(calls, context)  # at once: still one session
                assert [result.fault for result in results] == [None] * 3
            assert await graph(manager, ada) == ["Ada"]
            assert await graph(manager, bob) == ["Bob"]
            alive = processes("server-memory")
            await ada.end()
            assert len(alive - processes("server-memory")) == 1
            assert await graph(manager, bob) == ["Bob"]
            await bob.end()

    asyncio.run(work())


def test_a_session_per_trajectory_needs_no_second_remote_server() -> None:
    port = free_port()
    server = {**remote("streamable-http", port), "session": "trajectory"}

    async def work() -> None:
        async with opened({"everything": server}) as manager:
            first, second = trajectory("first"), trajectory("second")
            answers = []
            for context in (first, second, first):
                (result,) = await manager.invoke([write("toggle-simulated-logging")], context)
                answers.append(result.content.split()[0])
            assert answers == ["Started", "Started", "Stopped"]
            await first.end()
            await second.end()

    with listening("streamable-http", port):
        asyncio.run(work())


def repositories(folder: Path, count: int, together: int) -> list[str]:
    """Repositories with something to commit; a commit ends once ``together`` of them are under way."""
    (folder / "under-way").mkdir()
    for number in range(count):
        place = folder / f"repository-{number}"
        subprocess.run(["git", "init", "--quiet", str(place)], check=True)
        for key, value in {"user.name": "Ada", "user.email": "ada@example.org"}.items():
            subprocess.run(["git", "-C", str(place), "config", key, value], check=True)
        hook = place / ".git" / "hooks" / "pre-commit"
        hook.write_text(HOOK.format(under_way=folder / "under-way", together=together))
        hook.chmod(0o755)
        (place / "poem.txt").write_text("roses are red\n")
        subprocess.run(["git", "-C", str(place), "add", "poem.txt"], check=True)
    return [str(folder / f"repository-{number}") for number in range(count)]


def test_a_pool_of_a_server_that_takes_one_call_at_a_time_takes_as_many_as_it_has(tmp_path: Path) -> None:
    places = repositories(tmp_path, 3, together=3)

    async def work() -> None:
        async with opened({"git": {**pypi("git"), "replicas": 3}}) as manager:
            assert len(processes("mcp-server-git")) == 3
            commits = [write("git_commit", repo_path=place, message="A poem") for place in places]
            results = await manager.invoke(commits, trajectory())
            assert [result.fault for result in results] == [None] * 3

    asyncio.run(work())


def test_a_frozen_replica_costs_the_calls_that_it_had(tmp_path: Path) -> None:
    async def work() -> None:
        server = {**npm("filesystem", str(tmp_path)), "replicas": 3, "ping_timeout": 0.5}
        async with opened({"files": server}, retries=0, deadline_s=5.0) as manager:
            frozen = min(processes("server-filesystem"))
            os.kill(frozen, signal.SIGSTOP)
            listings = [write("list_directory", path=str(tmp_path)) for _ in range(30)]
            results = await manager.invoke(listings, trajectory())
            assert sum(result.fault is not None for result in results) <= 1
            again = await manager.invoke(listings, trajectory())
            assert [result.fault for result in again] == [None] * 30

            def is_replaced() -> bool:
                found = processes("server-filesystem")
                return len(found) == 3 and frozen not in found

            await asyncio.to_thread(until, is_replaced, "the frozen replica to be replaced")

    asyncio.run(work())


def test_a_killed_replica_leaves_the_others_at_work(tmp_path: Path) -> None:
    (place,) = repositories(tmp_path, 1, together=1)

    async def work() -> None:
        async with opened({"git": {**pypi("git"), "replicas": 2}}) as manager:
            dead = min(processes("mcp-server-git"))
            os.kill(dead, signal.SIGKILL)
            for _ in range(4):
                assert (await call(manager, "git_status", repo_path=place)).fault is None

            def is_back() -> bool:
                return len(processes("mcp-server-git") - {dead}) == 2

            await asyncio.to_thread(until, is_back, "the replica's return")

    asyncio.run(work())


def shared_memory(folder: Path) -> dict[str, Server]:
    return {"memory": npm("memory", MEMORY_FILE_PATH=str(folder / "graph.jsonl"))}


def test_processes_of_one_group_share_the_server(tmp_path: Path, workers: StartWorkers) -> None:
    one, two = workers(shared_memory(tmp_path), "run-7", "run-7")
    server = processes("server-memory")
    assert len(server) == 1
    one.call("create_entities", entities=[entity("Ada")])
    assert '"Ada"' in two.call("read_graph")
    one.process.kill()  # whoever came first may go first, and in whatever way
    assert '"Ada"' in two.call("read_graph")
    assert processes("server-memory") == server
    assert two.leave() == 0


@pytest.mark.parametrize("group", ["", "run-7"])
def test_a_killed_process_takes_its_servers_along(tmp_path: Path, workers: StartWorkers, group: str) -> None:
    (worker,) = workers(shared_memory(tmp_path), group)
    worker.process.kill()
    worker.leave()
    until(lambda: not processes(), "the servers to end")
