"""Worker processes beside the process that they work for: they end with it, and a fork of it has its own."""

from __future__ import annotations

import asyncio
import logging
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from process_tree import is_gone, parent
from rlfactory_nl2sql.connection import QueryLimits
from rlfactory_nl2sql.databases.reference import parse_reference
from rlfactory_nl2sql.verification.jobs import QueryJob
from rlfactory_nl2sql.verification.pool import WorkerPool
from rlfactory_nl2sql.verification.process import Request, Worker
from rlfactory_nl2sql.verification.worker import Access, message

pytestmark = pytest.mark.slow

SUPPORT = Path(__file__).parent / "support"
CLIENT = """
import asyncio, sys, os
sys.path.insert(0, {support!r})
import pool_jobs
from rlfactory_nl2sql.verification.pool import WorkerPool

async def main():
    pool = WorkerPool(workers=2)
    print(await pool.run(pool_jobs.Who(), 30), flush=True)
    hanging = asyncio.ensure_future(pool.run(pool_jobs.Hang(), 600))
    {then}

asyncio.run(main())
"""


def test_workers_end_with_the_process_that_they_work_for() -> None:
    then = "await asyncio.sleep(600)"
    with subprocess.Popen(
        [sys.executable, "-c", CLIENT.format(support=str(SUPPORT), then=then)], stdout=subprocess.PIPE, text=True
    ) as client:
        assert client.stdout is not None
        worker = int(client.stdout.readline())
        forkserver = parent(worker)
        client.kill()
    assert is_gone(worker)
    assert is_gone(forkserver)


def test_a_fork_has_workers_of_its_own() -> None:
    then = """
    child = os.fork()
    if child == 0:
        asyncio.set_event_loop(None)
        asyncio._set_running_loop(None)
        print(asyncio.new_event_loop().run_until_complete(pool.run(pool_jobs.Who(), 30)), flush=True)
        os._exit(0)
    print(os.waitpid(child, 0)[1], flush=True)
    print(await pool.run(pool_jobs.Who(), 30), flush=True)
    hanging.cancel()
    await pool.close()
"""
    code = CLIENT.format(support=str(SUPPORT), then=then)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    ours, theirs, status, again = done.stdout.split()
    assert (status, again) == ("0", ours)
    assert theirs != ours
    assert is_gone(int(theirs))


def test_missing_guards_are_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    """As a kernel without Landlock has it."""

    async def play() -> None:
        for _ in range(2):
            (ours, its), (lifeline, end) = socket.socketpair(), socket.socketpair()
            ours.settimeout(0.0)
            with its, end:
                its.sendall(message("started", {"files": "this kernel has no Landlock"}) + message("done", 5))
                worker = Worker(ours, lifeline, Access(), lambda _: None, lambda *_: None, lambda: None)
                request = Request(b"", b"", 60.0, 0.0, "", False, False, asyncio.get_running_loop().create_future())
                worker.run(request)
                assert await request.answer == 5
                worker.close()

    with caplog.at_level(logging.WARNING):
        asyncio.run(play())
    assert caplog.text.count("without some guards: files (this kernel has no Landlock)") == 1


def test_a_query_that_works_for_long_brings_another_worker(tmp_path: Path) -> None:
    path = tmp_path / "empty.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE t (a)")
    endless = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r"

    async def work() -> None:
        pool, ref = WorkerPool(workers=1, most=2), parse_reference(str(path))
        working = asyncio.ensure_future(pool.run(QueryJob(ref, endless, QueryLimits(seconds=10.0)), 10))
        found = await pool.run(QueryJob(ref, "SELECT 1"), 30)
        assert (found.rows, working.done()) == (((1,),), False)
        working.cancel()
        await asyncio.wait((working,))
        await pool.close()

    asyncio.run(work())


def test_surplus_workers_start_one_after_the_other_and_more_slowly_where_a_start_takes_long() -> None:
    @dataclass(eq=False)
    class Started:
        began: float
        started_at: float | None
        slow_from: float = 0.0

    async def work() -> list[bool]:
        pool, seen = WorkerPool(workers=1, most=9), []
        workers = pool._here(0)
        now = workers.loop.time()
        for newest in (Started(now, None), Started(now - 1.0, now), Started(now - 1.0, now - 0.9)):
            workers._known = dict.fromkeys((Started(0.0, 1.0), newest))  # type: ignore[arg-type]
            seen.append(workers._may_start())
        workers._known.clear()
        await pool.close()
        return seen

    assert asyncio.run(work()) == [False, False, True]
