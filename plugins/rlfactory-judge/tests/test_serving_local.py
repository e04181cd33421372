"""`local_server`: with stand-ins, and with the real ``transformers serve``."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import httpx
import pytest
from judge_services import judging, question
from judge_serving import Program, living, pids, save_tiny_model, stub_server
from process_tree import is_running
from rlfactory_judge.contract import UnreadableError
from rlfactory_judge.serving import servers
from rlfactory_judge.serving.servers import ServerProcess, local_server
from waiting import until

from rlfactory_core.errors import BackendError, UsageError

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")]

_OWNER = """
import asyncio, os, sys
from pathlib import Path
from rlfactory_judge.serving.servers import local_server
async def main():
    async with local_server(Path(sys.argv[1])) as server:
        print(server.pid, server.url, flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary folders go; at the end the server's has to be gone."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def orders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Servers are stand-ins, which take orders from this folder."""
    folder = tmp_path / "orders"
    folder.mkdir()

    def stand_in(model: str, *_: object, **more: object) -> Program:
        return stub_server(folder, model)

    monkeypatch.setattr(servers, "Server", stand_in)
    return folder


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """A model that stand-ins are content with."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return folder


async def ask(server: ServerProcess, **more: object) -> httpx.Response:
    body = {"model": server.model, "messages": [{"role": "user", "content": "Paris?"}], "max_tokens": 4, **more}
    async with httpx.AsyncClient(trust_env=False, timeout=60.0) as client:
        return await client.post(f"{server.url}/chat/completions", json=body)


def test_it_answers_and_leaves_nothing(orders: Path, empty: Path, scratch: Path) -> None:
    async def scenario() -> None:
        async with local_server(empty) as server:
            assert server.url.startswith("http://127.0.0.1:")
            assert server.url.endswith("/v1")
            assert server.model == str(empty)
            assert (await ask(server)).json()["choices"][0]["message"]["content"] == "7"

    asyncio.run(scenario())
    until(lambda: not living(orders), "the server to end")
    assert not os.listdir(scratch)


def test_one_that_dies_says_its_last_words(orders: Path, empty: Path, scratch: Path) -> None:
    (orders / "die_at_start").write_text("KeyError: 'a weight'")

    async def scenario() -> None:
        with pytest.raises(BackendError, match=r"ended with exit code 1\. Its log is .*\nKeyError: 'a weight'"):
            async with local_server(empty):
                raise AssertionError("not to be reached")

    asyncio.run(scenario())
    assert not os.listdir(scratch)


def test_one_that_does_not_answer_in_time_is_ended(orders: Path, empty: Path, scratch: Path) -> None:
    (orders / "ill").touch()

    async def scenario() -> None:
        with pytest.raises(BackendError, match=r"does not answer at .* after 0\.5 s"):
            await local_server(empty, ready_s=0.5).__aenter__()

    asyncio.run(scenario())
    until(lambda: not living(orders), "the server to end")
    assert not os.listdir(scratch)


def test_one_can_be_given_up_while_it_starts(orders: Path, empty: Path, scratch: Path) -> None:
    (orders / "ill").touch()

    async def scenario() -> None:
        entering = asyncio.ensure_future(local_server(empty).__aenter__())
        await asyncio.to_thread(until, lambda: len(pids(orders)) == 2, "the server to start")
        entering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await entering

    asyncio.run(scenario())
    until(lambda: not living(orders), "the server to end")
    assert not os.listdir(scratch)


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"config\.json is missing"):
        asyncio.run(local_server(tmp_path).__aenter__())


def test_transformers_serves_a_model_and_the_service_takes_its_noise_for_no_score(
    tmp_path: Path, scratch: Path
) -> None:
    pytest.importorskip("fastapi", reason="needs transformers[serving]")
    from tiny_judge import tiny_judge

    model = tiny_judge(tmp_path / "model")

    async def scenario() -> None:
        async with local_server(model) as server:
            pid = server.pid
            replies = await asyncio.gather(*(ask(server, seed=number, top_p=1.0) for number in range(8)))
            for reply in replies:
                assert reply.status_code == 200, reply.text
                assert reply.json()["usage"]["completion_tokens"] <= 4
            greedy = [(await ask(server, temperature=0.0)).json()["choices"][0]["message"] for _ in range(2)]
            assert greedy[0] == greedy[1]
            assert (await ask(server, model="another")).status_code == 400
            async with httpx.AsyncClient(trust_env=False) as client:  # clients ask for it as a sign of life
                listed = (await client.get(f"{server.url}/models", timeout=60.0)).json()["data"]
            assert {row["id"] for row in listed} <= {server.model}  # before 5.24 it lists nothing
            await enforces_no_form(server)
        assert pid is not None
        assert not is_running(pid)

    asyncio.run(scenario())
    assert not [*scratch.glob("rlfactory-judge-*")]


async def enforces_no_form(server: ServerProcess) -> None:
    """What the service makes of this server; `test_verl_judge_serving` asks vLLM."""
    async with judging(server.url, model=server.model, output="auto", max_tokens=32) as service:
        asked = (service.ask(question(f"{number}")) for number in range(4))
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        assert all(isinstance(outcome, UnreadableError) for outcome in outcomes)
        counts = service.counts
        assert (counts["unreadable"], counts["sampled_tokens"]) == (4, 4 * 32)
        assert service.budget.spent == counts["prompt_tokens"] + counts["sampled_tokens"] > 4 * 32


def test_transformers_server_ends_with_its_killed_owner(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="the server")
    model = save_tiny_model(tmp_path / "model")
    command = [sys.executable, "-c", _OWNER, str(model)]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    owner = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert owner.stdout is not None
        server, url = owner.stdout.readline().split()
        assert httpx.get(f"{url.removesuffix('/v1')}/health", trust_env=False).is_success
        owner.send_signal(signal.SIGKILL)
        until(lambda: not is_running(int(server)), "the server to end")
        with pytest.raises(httpx.ConnectError):
            httpx.get(url, trust_env=False)
    finally:
        owner.kill()
        owner.communicate()


def test_transformers_last_words_over_a_damaged_model_are_shown(tmp_path: Path, scratch: Path) -> None:
    pytest.importorskip("transformers", reason="the server")
    model = save_tiny_model(tmp_path / "model")
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "model_type": "no_such_model"}))

    async def scenario() -> None:
        with pytest.raises(BackendError, match="no_such_model"):
            await local_server(model).__aenter__()

    asyncio.run(scenario())
    assert not [*scratch.glob("rlfactory-judge-*")]
