"""OpenEnv as it is published: its echo environment is trained on, and its validation and clients play our server."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import blank_model
import pytest

pytest.importorskip("openenv.core", reason="nox -s environments installs it")
pytest.importorskip("torch")

from openenv.core import GenericEnvClient
from openenv.core.mcp_client import MCPToolClient

from rlfactory_core.cli.main import invoke

pytestmark = pytest.mark.slow
ECHO = """
import sys
from rlfactory_core.utils.listening import listener
import uvicorn
from server.app import app
sock = listener("127.0.0.1")
sock.listen()
print(f"at http://127.0.0.1:{sock.getsockname()[1]} now", flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="critical")).run(sockets=[sock])
"""


@contextmanager
def serving(*command: str, place: Path) -> Iterator[str]:
    """The address that a server's first line names; the server ends with the block."""
    with subprocess.Popen([sys.executable, *command], cwd=place, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            yield next(word for word in line.split() if word.startswith("http://"))
        finally:
            process.kill()


def openenv(*arguments: str, place: Path) -> str:
    """What OpenEnv's own command writes, which has to end well."""
    command = [str(Path(sys.executable).with_name("openenv")), *arguments]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_model_trains_on_the_echo_environment(tmp_path: Path) -> None:
    openenv("init", "echo_world", place=tmp_path)
    model = blank_model.write(tmp_path / "model", ["Echo World environment ready! Your whole reply is the action."] * 8)
    run = tmp_path / "run"
    sizes = ["train.prompts_per_step=2", "train.group_size=4", "eval.every=0", "eval.limit=2", "checkpoint.every=0"]
    limits = ["rollout.max_turn_tokens=128", "rollout.max_turns=2"]  # it ends about one turn of three by itself
    with serving("-c", ECHO, place=tmp_path / "echo_world") as url:
        command = ["run", "--plugin", "openenv", "--url", url, "--model", str(model), "--steps", "3"]
        assert invoke([*command, "--out", str(run), *sizes, *limits]) == 0
    steps = [json.loads(line) for line in (run / "metrics.jsonl").open()]
    assert [step["masked"] for step in steps] == [0.0] * 3
    for step, file in zip(steps, sorted(run.glob("trajectories/step-*.jsonl")), strict=True):
        rows = [json.loads(line) for line in file.open()]
        assert len(rows) == 2 * 4
        faults = [fault for row in rows for fault in row["faults"]]
        assert not [fault for fault in faults if fault["kind"] != "policy"], "a text may look like a broken call"
        assert step["trained_tokens"] == sum(map(sampled_tokens, rows)) - untrained_tokens(rows)
    assert sum(step["trained_tokens"] for step in steps) > 0
    assert invoke(["trace", str(run), "--verify"]) == 0


def sampled_tokens(row: Mapping[str, Any]) -> int:
    return sum(len(turn["sampled_ids"]) for turn in row["turns"])


def untrained_tokens(rows: Sequence[Mapping[str, Any]]) -> int:
    """Those of groups whose attempts all have the same reward, which teach nothing."""
    rewards: dict[str, set[float]] = {}
    for row in rows:
        rewards.setdefault(row["sample"]["id"], set()).add(row["reward"])
    return sum(sampled_tokens(row) for row in rows if len(rewards[row["sample"]["id"]]) == 1)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the search task as an OpenEnv environment."""
    pytest.importorskip("rlfactory_search")
    command = ("-m", "rlfactory_core", "serve", "--plugin", "search", "--as", "openenv", "--port", "0")
    with serving(*command, place=tmp_path_factory.mktemp("served")) as url:
        yield url


def test_openenvs_own_validation_passes_our_server(served: str, tmp_path: Path) -> None:
    report = json.loads(openenv("validate", "--url", served, "--json", place=tmp_path))
    assert report["passed"], report


def test_openenvs_own_client_plays_an_episode_of_our_server(served: str) -> None:
    async def play() -> None:
        async with GenericEnvClient(base_url=served) as env:
            begun = await env.reset(seed=3)
            again = await env.reset(seed=3)
            assert begun.observation["text"] == again.observation["text"] != ""
            found = await env.step({"type": "call_tool", "tool_name": "search", "arguments": {"query": "where"}})
            assert (found.done, bool(found.observation["text"])) == (False, True)
            ended = await env.step({"message": "<answer>nowhere</answer>"})
            assert ended.done
            assert 0.0 <= ended.reward < 1.0

    asyncio.run(play())


def test_openenvs_own_tool_client_calls_the_tools_of_our_server(served: str) -> None:
    async def play() -> None:
        async with MCPToolClient(base_url=served) as env:
            await env.reset(seed=3)
            assert [tool.name for tool in await env.list_tools()] == ["search"]
            assert await env.call_tool("search", query="where")

    asyncio.run(play())
