"""A pool of processes: it does all jobs, and whatever becomes of one process harms no other."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rlfactory_sandbox import Pool, WorkerLostError

from rlfactory_core.errors import BackendError

SUPPORT = Path(__file__).parent / "support"
LONG_S = 60.0  # a job that hangs without end fails the test


def in_pool(work: Callable[[Any], Any], **options: Any) -> Any:
    """What ``work`` returns, given a function that runs a job in a pool."""

    async def main() -> Any:
        pool = Pool("pool_programs:program", **options)

        async def run(kind: str, *arguments: Any, seconds: float = LONG_S, **how: Any) -> Any:
            return json.loads(await pool.run(json.dumps([kind, *arguments]).encode(), seconds, **how))

        run.pool = pool  # type: ignore[attr-defined]
        try:
            return await work(run)
        finally:
            await pool.close()

    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SUPPORT))
        return asyncio.run(main())


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def wait_for_end(pid: int) -> None:
    while not is_gone(pid):
        time.sleep(0.01)


def test_jobs_run_at_once_each_in_its_own_process() -> None:
    async def work(run: Any) -> Any:
        return await asyncio.gather(*(run("meet", 3) for _ in range(3)))

    processes = in_pool(work, workers=3)
    assert len({*processes, os.getpid()}) == 4
    assert all(map(is_gone, processes))


def test_jobs_with_a_key_find_what_the_ones_before_left() -> None:
    async def work(run: Any) -> Any:
        keys = ("a", "b", "c")
        homes = await asyncio.gather(*(run("meet", 3, key=key) for key in keys))
        for _ in range(3):
            assert await asyncio.gather(*(run("who", key=key) for key in keys)) == homes
        return [await run("count", key="a") for _ in range(3)]

    assert in_pool(work, workers=3) == [1, 2, 3]


def test_a_job_that_hangs_ends_at_its_deadline_and_others_keep_their_processes() -> None:
    async def work(run: Any) -> None:
        hanging, other = await asyncio.gather(*(run("meet", 2, key=key) for key in "ab"))
        with pytest.raises(WorkerLostError, match=r"longer than 0\.2 s") as caught:
            await run("hang", key="a", seconds=0.2)
        assert caught.value.late
        assert await run("who", key="b") == other
        assert await run("who", key="a") != hanging

    in_pool(work, workers=2)


def test_short_jobs_do_not_wait_for_long_ones() -> None:
    async def work(run: Any) -> None:
        hanging = [asyncio.ensure_future(run("hang", key=key)) for key in ("a", "b", "")]
        await asyncio.sleep(0)
        assert await run("who")
        assert await run("who", key="a")
        for task in hanging:
            task.cancel()
        await asyncio.gather(*hanging, return_exceptions=True)

    in_pool(work, workers=2, most=4)


def test_jobs_begin_in_the_order_in_which_they_came() -> None:
    order: list[int] = []

    async def one(run: Any, number: int) -> None:
        await run("who", key=str(number % 3))
        order.append(number)

    async def work(run: Any) -> None:
        await asyncio.gather(*(one(run, number) for number in range(20)))

    in_pool(work, workers=1)
    assert order == list(range(20))


def test_a_cancelled_job_ends_its_process_and_leaves_the_pool_in_order() -> None:
    async def work(run: Any) -> None:
        before = await run("who")
        tasks = [asyncio.ensure_future(run(kind)) for kind in ("hang", "who")]
        for _ in range(5):
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(each, asyncio.CancelledError) for each in done)
        assert await run("who") != before
        assert is_gone(before)

    in_pool(work, workers=1)


def test_a_process_that_dies_is_the_jobs_fault_only_if_it_happens_twice() -> None:
    async def work(run: Any) -> None:
        assert await run("crash_in", "1") == "done"
        with pytest.raises(WorkerLostError) as caught:
            await run("crash")
        assert (caught.value.late, caught.value.exit) == (False, -signal.SIGABRT)
        assert await run("who")

    in_pool(work, workers=1)


def test_what_a_hostile_process_sends_is_no_answer() -> None:
    async def work(run: Any) -> None:
        for sent in (b"\xff" * 8, b"\0" * 7 + b"\2" + b"1" * 3):
            with pytest.raises(WorkerLostError):
                await run("send", sent.decode("latin-1"))
        assert await run("who")

    in_pool(work, workers=1)


def test_large_jobs_and_answers_go_through() -> None:
    async def work(run: Any) -> Any:
        return [await run("size", "x" * 5_000_000), len(await run("large", 5_000_000))]

    assert in_pool(work, workers=1) == [5_000_000, 5_000_000]


@pytest.mark.skipif(sys.platform != "linux", reason="these guards are Linux's")
def test_processes_reach_only_what_their_jobs_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = tmp_path / "secret"
    secret.write_text("42")
    monkeypatch.setenv("API_KEY", "a secret")

    async def work(run: Any) -> None:
        refused = dict.fromkeys(("read", "write", "start", "connect", "memory", "large_file"), "refused")
        assert await run("reach", str(secret)) == refused | {"variables": False}
        reached = await run("reach", str(secret), reads=[str(tmp_path)])
        assert reached == refused | {"read": "42", "variables": False}

    in_pool(work, workers=1, memory_mb=64, file_mb=1)


def test_closing_ends_what_runs_and_what_waits_and_the_pool_can_be_used_again() -> None:
    async def work(run: Any) -> None:
        before = await run("who")
        tasks = [asyncio.ensure_future(run("hang")) for _ in range(3)]
        for _ in range(5):
            await asyncio.sleep(0)
        await run.pool.close()
        for done in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(done, BackendError)
            assert "closed" in str(done)
        assert is_gone(before)
        assert await run("who") != before

    in_pool(work, workers=1)


def test_a_pool_that_was_left_open_on_an_ended_event_loop_starts_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SUPPORT))
    pool = Pool("pool_programs:program", workers=1)

    async def who(*, close: bool) -> int:
        found = json.loads(await pool.run(b'["who"]', LONG_S))
        if close:
            await pool.close()
        return int(found)

    left = asyncio.run(who(close=False))
    assert asyncio.run(who(close=True)) != left
    assert is_gone(left)


@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
def test_a_fork_server_that_was_killed_is_replaced() -> None:
    async def work(run: Any) -> None:
        before = await run("who")
        os.kill(await run("parent"), signal.SIGKILL)
        await asyncio.to_thread(wait_for_end, before)
        assert await run("who") != before

    in_pool(work, workers=1)


def test_where_no_process_starts_the_reason_is_named() -> None:
    async def main() -> None:
        pool = Pool("no_such_module:program", workers=1)
        with pytest.raises(BackendError, match=r"(?s)no worker process starts.*no_such_module"):
            await pool.run(b"", LONG_S)
        await pool.close()

    asyncio.run(main())
