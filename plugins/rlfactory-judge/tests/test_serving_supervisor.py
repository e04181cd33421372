"""The supervisor: starts servers anew, gives up where that is no use, and leaves none behind."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from judge_serving import MODEL, living, pids, stub_launch
from rlfactory_judge.serving.machine import free_ports
from rlfactory_judge.serving.servers import Launch, Replica
from rlfactory_judge.serving.supervisor import ServerGroup, Supervisor, Timeouts
from said import Said

from rlfactory_core.errors import BackendError

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")]

PATIENCE_S = 120.0
QUICK = Timeouts(ready_s=PATIENCE_S, backoff_s=0.01, look_s=0.02, health_s=0.05, sick_s=PATIENCE_S)


async def until(holds: Callable[[], Any], what: str) -> None:
    async def wait() -> None:
        while not holds():  # noqa: ASYNC110 - another process tells nobody
            await asyncio.sleep(0.02)

    try:
        await asyncio.wait_for(wait(), PATIENCE_S)
    except TimeoutError:
        raise AssertionError(f"waited {PATIENCE_S:g} s for {what}") from None


def make(
    folder: Path, count: int, said: Said, *, model: str = MODEL, movable: bool = False, timeouts: Timeouts = QUICK
) -> Supervisor:
    replicas = [Replica(port) for port in free_ports("127.0.0.1", count)]
    group = ServerGroup(model, replicas, stub_launch(folder), movable)
    return Supervisor(group, logs=folder, progress=said, timeouts=timeouts)


@asynccontextmanager
async def running(supervisor: Supervisor) -> AsyncIterator[None]:
    """From when all replicas are ready."""
    ready = asyncio.Event()
    work = asyncio.ensure_future(supervisor.run(ready.set))
    try:
        waits = asyncio.ensure_future(ready.wait())
        await asyncio.wait([work, waits], timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            work.result()
        assert ready.is_set()
        yield
    finally:
        waits.cancel()
        work.cancel()
        await asyncio.gather(work, waits, return_exceptions=True)


def test_all_replicas_answer_and_end_with_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        said = Said()
        supervisor = make(tmp_path, 3, said)
        async with running(supervisor):
            assert len(living(tmp_path, "server")) == 3
            assert len({*supervisor.urls}) == 3
            for url in supervisor.urls:
                assert url in said.text
        await until(lambda: not living(tmp_path), "all to end")

    asyncio.run(scenario())


def test_a_replica_that_dies_is_started_again_with_its_last_words_shown(tmp_path: Path) -> None:
    async def scenario() -> None:
        said = Said()
        async with running(make(tmp_path, 2, said)):
            before = living(tmp_path, "server")
            (tmp_path / "die").touch()
            await until(lambda: len(living(tmp_path, "server") | before) == 3, "another server")
            await until(lambda: said.text.count("answers at") == 3, "its answer")
            assert len(living(tmp_path, "server")) == 2
            assert "exit code 3" in said.text
            assert "asked to die" in said.text
            assert "Starting it again in 0.01 s" in said.text

    asyncio.run(scenario())


def test_a_replica_that_dies_again_and_again_ends_everything(tmp_path: Path) -> None:
    async def scenario() -> None:
        ready = asyncio.Event()
        work = asyncio.ensure_future(make(tmp_path, 2, Said()).run(ready.set))
        await until(ready.is_set, "both to be ready")
        (tmp_path / "die_at_start").write_text("CUDA out of memory")
        (tmp_path / "die").touch()
        with pytest.raises(BackendError) as caught:
            await asyncio.wait_for(work, PATIENCE_S)
        message = str(caught.value)
        assert "has failed 3 times in a row" in message
        assert "--max-model-len" in message
        assert message.endswith("CUDA out of memory")
        await until(lambda: not living(tmp_path), "all to end")

    asyncio.run(scenario())


def test_a_server_that_can_never_start_is_tried_once(tmp_path: Path) -> None:
    (tmp_path / "die_at_start").write_text(
        "OSError: nope/nope is not a local folder and is not a valid model identifier"
    )

    async def scenario() -> None:
        with pytest.raises(BackendError, match=r"^Replica \d has failed\. .*The model is unknown"):
            await make(tmp_path, 2, Said()).run(lambda: None)
        assert (tmp_path / "replica-0.log").read_text().count("OSError") <= 1

    asyncio.run(scenario())


def test_a_server_that_dies_at_its_first_starts_is_tried_three_times(tmp_path: Path) -> None:
    (tmp_path / "die_at_start").write_text("out of memory")

    async def scenario() -> None:
        with pytest.raises(BackendError, match=r"Replica 0 has failed 3 times in a row"):
            await make(tmp_path, 1, Said()).run(lambda: None)
        assert (tmp_path / "replica-0.log").read_text().count("out of memory") == 3

    asyncio.run(scenario())


def test_a_server_that_never_answers_is_stuck(tmp_path: Path) -> None:
    (tmp_path / "ill").touch()

    async def scenario() -> None:
        supervisor = make(tmp_path, 1, Said(), timeouts=Timeouts(ready_s=1.0))
        with pytest.raises(BackendError, match=r"does not answer at http://.* after 1 s\. Its log is .*replica-0\.log"):
            await supervisor.run(lambda: None)
        await until(lambda: not living(tmp_path), "it to end")

    asyncio.run(scenario())


def test_a_server_that_hangs_is_started_anew(tmp_path: Path) -> None:
    async def scenario() -> None:
        said = Said()
        async with running(make(tmp_path, 1, said, timeouts=replace(QUICK, sick_s=0.3))):
            (tmp_path / "ill").touch()
            await until(lambda: "has not been healthy for 0.3 s" in said.text, "it to be missed")
            (tmp_path / "ill").unlink()
            await until(lambda: said.text.count("answers at") >= 2, "another one")
            assert len(living(tmp_path, "server")) == 1

    asyncio.run(scenario())


def test_a_free_port_that_is_taken_meanwhile_is_exchanged(tmp_path: Path) -> None:
    async def scenario() -> None:
        said = Said()
        supervisor = make(tmp_path, 2, said, movable=True)
        taken = supervisor.urls[1]
        with socket.create_server(("127.0.0.1", int(taken.rpartition(":")[2].removesuffix("/v1"))), backlog=1):
            async with running(supervisor):
                assert taken not in supervisor.urls
                assert len(living(tmp_path, "server")) == 2
        assert "The port is taken" in said.text

    asyncio.run(scenario())


def test_another_models_server_at_our_address_is_not_taken_for_ours(tmp_path: Path) -> None:
    """Our own server cannot listen, takes its time to say so, and the stranger answers meanwhile."""
    other = tmp_path / "other"
    other.mkdir()

    async def scenario() -> None:
        stranger = make(other, 1, Said())
        async with running(stranger):
            port = int(stranger.urls[0].rpartition(":")[2].removesuffix("/v1"))
            slow = Launch((sys.executable, "-c", "import time; time.sleep(600)"))
            group = ServerGroup("ours", [Replica(port)], lambda _: slow)
            ours = Supervisor(group, logs=tmp_path, progress=Said(), timeouts=QUICK)
            with pytest.raises(BackendError, match=r"does not answer questions to ours: .*there is no model ours"):
                await ours.run(lambda: None)

    asyncio.run(scenario())


def test_it_can_be_stopped_while_servers_start(tmp_path: Path) -> None:
    (tmp_path / "ill").touch()

    async def scenario() -> None:
        work = asyncio.ensure_future(make(tmp_path, 2, Said()).run(lambda: None))
        await until(lambda: len(pids(tmp_path, "server")) == 2, "the servers")
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        await until(lambda: not living(tmp_path), "all to end")

    asyncio.run(scenario())
