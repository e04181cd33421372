"""The supervisor: starts a server anew, gives up where that is no use, and leaves none behind."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from judge_serving import living, pids, program, stub_server
from rlfactory_judge.serving.command import keep_serving
from rlfactory_judge.serving.servers import Server
from said import Said
from waiting import until

from rlfactory_core.errors import BackendError

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")]

PATIENCE_S = 120.0


async def keep(server: Server, log: Path, ready_s: float = PATIENCE_S) -> None:
    await asyncio.wait_for(keep_serving(server, log, lambda: None, Said().say, ready_s=ready_s), PATIENCE_S)


@asynccontextmanager
async def running(server: Server, folder: Path, said: Said) -> AsyncIterator[asyncio.Future[None]]:
    """From when it is ready."""
    ready = asyncio.Event()
    serving = keep_serving(server, folder / "server.log", ready.set, said.say, ready_s=PATIENCE_S, first_pause_s=0.01)
    work = asyncio.ensure_future(serving)
    try:
        await asyncio.to_thread(until, lambda: ready.is_set() or work.done(), "the server")
        if work.done():
            work.result()
        yield work
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


def test_it_answers_and_ends_with_its_supervisor(tmp_path: Path) -> None:
    async def scenario() -> None:
        said, server = Said(), stub_server(tmp_path)
        async with running(server, tmp_path, said):
            assert len(living(tmp_path, "server")) == 1
            assert server.url in said.text
        await asyncio.to_thread(until, lambda: not living(tmp_path), "all to end")

    asyncio.run(scenario())


def test_a_server_that_dies_is_started_again_with_its_last_words_shown(tmp_path: Path) -> None:
    async def scenario() -> None:
        said = Said()
        async with running(stub_server(tmp_path), tmp_path, said):
            before = living(tmp_path, "server")
            (tmp_path / "die").touch()
            await asyncio.to_thread(until, lambda: said.text.count("answers at") == 2, "another server")
            assert len(living(tmp_path, "server") - before) == 1
            assert "exit code 3" in said.text
            assert "asked to die" in said.text
            assert "Starting it again in 0.01 s" in said.text

    asyncio.run(scenario())


def test_a_server_that_dies_again_and_again_ends_everything(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(stub_server(tmp_path), tmp_path, Said()) as work:
            (tmp_path / "die_at_start").write_text("CUDA out of memory")
            (tmp_path / "die").touch()
            with pytest.raises(BackendError) as caught:
                await asyncio.wait_for(work, PATIENCE_S)
        message = str(caught.value)
        assert "has failed 3 times in a row" in message
        assert "--max-model-len" in message
        assert "CUDA out of memory" in message
        await asyncio.to_thread(until, lambda: not living(tmp_path), "all to end")

    asyncio.run(scenario())


def test_a_server_that_does_not_start_is_tried_once_and_its_error_is_shown(tmp_path: Path) -> None:
    error = "OSError: nope/nope is not a valid model identifier"
    (tmp_path / "die_at_start").write_text(error + "\nshutting down" * 20)

    async def scenario() -> None:
        with pytest.raises(BackendError, match=rf"exit code 1\. Its log is .*\n{error}\n"):
            await keep(stub_server(tmp_path), tmp_path / "server.log")
        assert (tmp_path / "server.log").read_text().count("OSError") == 1

    asyncio.run(scenario())


def test_a_server_that_never_answers_is_stuck(tmp_path: Path) -> None:
    (tmp_path / "ill").touch()

    async def scenario() -> None:
        with pytest.raises(BackendError, match=r"does not answer at http://.* after 1 s\. Its log is .*server\.log"):
            await keep(stub_server(tmp_path), tmp_path / "server.log", 1.0)
        await asyncio.to_thread(until, lambda: not living(tmp_path), "it to end")

    asyncio.run(scenario())


def test_another_models_server_at_our_address_is_not_taken_for_ours(tmp_path: Path) -> None:
    """Our own server cannot listen, takes its time to say so, and the stranger answers meanwhile."""

    async def scenario() -> None:
        stranger = stub_server(tmp_path)
        async with running(stranger, tmp_path, Said()):
            words = (sys.executable, "-c", "import time; time.sleep(600)")
            ours = program(*words, port=stranger.port, model="ours")
            with pytest.raises(BackendError, match=r"does not answer questions to ours: .*there is no model ours"):
                await keep(ours, tmp_path / "ours.log")

    asyncio.run(scenario())


def test_it_can_be_stopped_while_the_server_starts(tmp_path: Path) -> None:
    (tmp_path / "ill").touch()

    async def scenario() -> None:
        work = asyncio.ensure_future(keep(stub_server(tmp_path), tmp_path / "server.log"))
        await asyncio.to_thread(until, lambda: pids(tmp_path, "server"), "the server")
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        await asyncio.to_thread(until, lambda: not living(tmp_path), "all to end")

    asyncio.run(scenario())
