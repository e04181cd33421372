"""Worker processes: they do what is asked, all at once, and whatever becomes of one of them harms nobody else."""

from __future__ import annotations

import asyncio
import importlib
import io
import logging
import os
import pickle
import pickletools
import signal
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from process_tree import is_gone, parent
from rlfactory_nl2sql.connection import Failure, QueryError, QueryLimits
from rlfactory_nl2sql.databases.reference import parse_reference
from rlfactory_nl2sql.verification.encoding import encode
from rlfactory_nl2sql.verification.jobs import QueryJob
from rlfactory_nl2sql.verification.pool import WorkerPool
from rlfactory_nl2sql.verification.process import WorkerBug

from rlfactory_core.errors import BackendError

pytestmark = pytest.mark.slow  # six seconds in all

SUPPORT = Path(__file__).parent / "support"
PATIENCE_S = 300.0  # a job that never ends fails the test


@pytest.fixture(scope="module")
def jobs() -> Iterator[Any]:
    """The module `pool_jobs`, which workers can import too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SUPPORT))
        yield importlib.import_module("pool_jobs")


def in_pool(work: Callable[[WorkerPool], Any], **options: Any) -> Any:
    """What ``work`` gives with a pool that is closed afterwards."""

    async def run() -> Any:
        pool = WorkerPool(**options)
        try:
            return await work(pool)
        finally:
            await pool.close()

    return asyncio.run(run())


def test_jobs_run_at_once_each_in_its_own_process(jobs: Any) -> None:
    async def work(pool: WorkerPool) -> Any:
        return await asyncio.gather(*(pool.run(jobs.Meet(3), 30) for _ in range(3)))

    processes = in_pool(work, workers=3)
    assert len({*processes, os.getpid()}) == 4
    assert all(map(is_gone, processes))


def test_a_query_sorts_more_than_fits_into_its_memory(tmp_path: Path) -> None:
    """SQLite does so with temporary files, for which it needs a folder that a worker may write to."""
    path = tmp_path / "empty.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE t (a)")
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)"
    sql = f"{numbers} SELECT sum(c) FROM (SELECT count(*) AS c FROM n GROUP BY printf('%0400d', i * 7 % 100003))"
    job = QueryJob(parse_reference(str(path)), sql, QueryLimits(seconds=PATIENCE_S))
    rows = in_pool(lambda pool: pool.run(job, PATIENCE_S), memory_mb=16)
    assert rows.rows == ((100000,),)


def test_a_pool_works_again_after_it_was_closed_also_on_another_event_loop(jobs: Any) -> None:
    pool = WorkerPool(workers=1)

    async def twice() -> int:
        first = await pool.run(jobs.Who(), 30)
        assert await pool.run(jobs.Who(), 30) == first
        await pool.close()
        second = await pool.run(jobs.Who(), 30)
        assert second != first
        await pool.close()
        return int(second)

    assert asyncio.run(twice()) != asyncio.run(twice())


def test_a_pool_that_was_left_open_on_an_ended_event_loop_starts_anew(jobs: Any) -> None:
    pool = WorkerPool(workers=1)

    async def leave() -> int:
        return int(await pool.run(jobs.Who(), 30))

    async def find() -> int:
        found = await leave()
        await pool.close()
        return found

    left = asyncio.run(leave())
    assert asyncio.run(find()) != left
    assert is_gone(left)


def test_two_pools_live_side_by_side(jobs: Any) -> None:
    async def work(pool: WorkerPool) -> None:
        other = WorkerPool(workers=1)
        theirs = await other.run(jobs.Who(), 30)
        ours = await pool.run(jobs.Who(), 30)
        await other.close()
        assert is_gone(theirs)
        assert await pool.run(jobs.Who(), 30) == ours

    in_pool(work, workers=1)


def test_a_job_that_hangs_ends_at_its_deadline_and_its_worker_is_replaced(jobs: Any) -> None:
    async def work(pool: WorkerPool) -> None:
        before = await pool.run(jobs.Who(), 30)
        began = time.monotonic()
        with pytest.raises(QueryError, match=r"longer than 0\.3 s") as caught:
            await asyncio.wait_for(pool.run(jobs.Hang(), 0.3), PATIENCE_S)
        assert caught.value.failure is Failure.DEADLINE
        assert time.monotonic() - began >= 0.3
        assert is_gone(before)
        assert await pool.run(jobs.Who(), 30) != before

    in_pool(work, workers=1)


def test_a_job_can_set_its_clock_but_not_beyond_its_deadline(jobs: Any) -> None:
    async def work(pool: WorkerPool) -> None:
        assert await pool.run(jobs.Extend(), 30) == "done"
        for deadline, own in ((30.0, 0.2), (0.2, 30.0)):
            began = time.monotonic()
            with pytest.raises(QueryError, match=r"longer than \S+ s") as caught:
                await asyncio.wait_for(pool.run(jobs.Hang(own), deadline), PATIENCE_S)
            assert caught.value.failure is Failure.DEADLINE
            assert float(str(caught.value).split()[-2]) <= 0.2  # what is left of the shorter of the two
            assert time.monotonic() - began >= 0.2

    in_pool(work, workers=1)


def test_jobs_that_hang_do_not_hold_up_others(jobs: Any) -> None:
    async def work(pool: WorkerPool) -> None:
        hanging = [asyncio.ensure_future(pool.run(jobs.Hang(60.0), 60)) for _ in range(4)]
        await asyncio.sleep(0)
        assert await asyncio.wait_for(pool.run(jobs.Who(), 30), 20)
        for task in hanging:
            task.cancel()
        done = await asyncio.gather(*hanging, return_exceptions=True)
        assert all(isinstance(each, asyncio.CancelledError) for each in done)

    in_pool(work, workers=2, most=6)


def test_jobs_that_take_long_to_prepare_bring_no_more_workers(jobs: Any) -> None:
    async def work(pool: WorkerPool) -> None:
        preparing = asyncio.ensure_future(pool.run(jobs.Hang(), 60))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(pool.run(jobs.Who(), 30), 0.5)
        preparing.cancel()
        await asyncio.wait((preparing,))

    in_pool(work, workers=1, most=6)


def test_there_are_never_more_workers_than_most(jobs: Any) -> None:
    async def work(pool: WorkerPool) -> None:
        hanging = [asyncio.ensure_future(pool.run(jobs.Hang(60.0), 60)) for _ in range(3)]
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(pool.run(jobs.Who(), 30), 0.5)
        hanging[0].cancel()
        assert await pool.run(jobs.Who(), 30)
        for task in hanging:
            task.cancel()
        await asyncio.gather(*hanging, return_exceptions=True)

    in_pool(work, workers=1, most=3)


def test_waiting_jobs_are_done_in_the_order_in_which_they_came(jobs: Any) -> None:
    order: list[int] = []

    async def one(pool: WorkerPool, number: int) -> None:
        await pool.run(jobs.Who(), 30)
        order.append(number)

    async def work(pool: WorkerPool) -> None:
        await asyncio.gather(*(one(pool, number) for number in range(20)))

    in_pool(work, workers=1, most=1)
    assert order == list(range(20))


def test_what_has_an_affinity_in_common_goes_to_one_worker(jobs: Any) -> None:
    async def work(pool: WorkerPool) -> None:
        meeting = jobs.Meet(3)
        keys = ("a", "b", "c")
        homes = await asyncio.gather(*(pool.run(meeting, 30, key) for key in keys))
        for other in range(40):  # a worker does not forget the first ones over these
            await pool.run(jobs.Who(), 30, str(other))
        for key, home in [*zip(keys, homes, strict=True)] * 2:
            assert await pool.run(jobs.Who(), 30, key) == home

    in_pool(work, workers=3)


def test_a_cancelled_job_ends_its_worker_and_leaves_the_pool_in_order(jobs: Any) -> None:
    async def work(pool: WorkerPool) -> None:
        before = await pool.run(jobs.Who(), 30)
        running = asyncio.ensure_future(pool.run(jobs.Hang(), 60))
        waiting = asyncio.ensure_future(pool.run(jobs.Who(), 60))
        for _ in range(5):
            await asyncio.sleep(0)
        waiting.cancel()
        running.cancel()
        await asyncio.wait((running, waiting))
        assert running.cancelled()
        assert waiting.cancelled()
        assert is_gone(before)
        assert await pool.run(jobs.Who(), 30) != before

    in_pool(work, workers=1, most=1)


def test_a_worker_that_dies_is_a_fault_of_the_query_only_if_it_happens_twice(jobs: Any) -> None:
    async def work(pool: WorkerPool) -> None:
        assert await pool.run(jobs.Crash(once=True), 30) == "done"
        with pytest.raises(QueryError) as caught:
            await pool.run(jobs.Crash(), 30)
        assert caught.value.failure is Failure.ERROR
        assert await pool.run(jobs.Who(), 30)

    in_pool(work, workers=1)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits a process's address space")
def test_memory_beyond_the_limit_is_a_fault_of_the_query(jobs: Any) -> None:
    async def work(pool: WorkerPool) -> None:
        before = await pool.run(jobs.Who(), 30)
        with pytest.raises(QueryError) as caught:
            await pool.run(jobs.Hoard(), 30)
        assert caught.value.failure is Failure.MEMORY
        assert await pool.run(jobs.Large(30 << 20), 30) == bytes(30 << 20)
        with pytest.raises(QueryError):
            await pool.run(jobs.Large(300 << 20), 30)
        assert await pool.run(jobs.Who(), 30) == before

    in_pool(work, workers=1, memory_mb=256)


def test_workers_write_no_large_files(jobs: Any) -> None:
    async def work(pool: WorkerPool) -> None:
        assert await pool.run(jobs.Write(), 30) == "OSError"

    in_pool(work, workers=1)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has these guards")
def test_workers_reach_nothing_that_their_jobs_do_not_need(
    jobs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("42")
    monkeypatch.setenv("API_KEY", "a secret")
    reached = in_pool(lambda pool: pool.run(jobs.Reach(str(secret)), 30), workers=1)
    assert "API_KEY" not in reached.pop("variables").split()
    assert reached == dict.fromkeys(("read", "write", "start", "connect"), "PermissionError")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has this guard")
def test_workers_do_not_reach_each_others_files(jobs: Any) -> None:
    async def work(pool: WorkerPool) -> None:
        await asyncio.gather(*(pool.run(jobs.Meet(2), 30) for _ in range(2)))
        assert await pool.run(jobs.Trespass(), 30) == ("PermissionError",)

    in_pool(work, workers=2)


def test_an_answer_that_is_not_one_is_the_querys_fault_and_runs_nothing(jobs: Any, tmp_path: Path) -> None:
    target = tmp_path / "taken over"
    command = b"cos\nmkdir\n(V" + str(target).encode() + b"\ntR."
    assert pickletools.dis(command, out=io.StringIO()) is None

    async def work(pool: WorkerPool) -> None:
        for answer in (
            command,
            encode(5),
            encode(("failed", 5)),
            encode(("nothing", 5)),
            encode(("started", {"a": {}})),
        ):
            with pytest.raises(QueryError, match="damaged the database's engine"):
                await pool.run(jobs.Forge(answer + b"\n"), 30)
        assert await pool.run(jobs.Who(), 30)

    in_pool(work, workers=1)
    assert not target.exists()


def test_large_jobs_and_results_go_through(jobs: Any) -> None:
    async def work(pool: WorkerPool) -> None:
        assert await pool.run(jobs.Echo(bytes(5_000_000)), 30) == 5_000_000
        assert len(await pool.run(jobs.Large(5_000_000), 30)) == 5_000_000

    in_pool(work, workers=1)


def test_each_job_gets_its_own_content_however_many_there_are_and_in_a_new_worker_too(jobs: Any) -> None:
    contents = [pickle.dumps(number) for number in range(300)]  # more than a worker keeps

    async def work(pool: WorkerPool) -> None:
        for number in (*range(300), *range(299, -1, -7), 5, 5):
            assert await pool.run(jobs.Share(), 30, content=contents[number]) == number
        with pytest.raises(QueryError):
            await pool.run(jobs.Hang(), 0.1)
        assert await pool.run(jobs.Share(), 30, content=contents[5]) == 5

    in_pool(work, workers=1)


def test_what_a_job_raises_is_raised_here(jobs: Any) -> None:
    async def work(pool: WorkerPool) -> None:
        before = await pool.run(jobs.Who(), 30)
        with pytest.raises(QueryError, match="it would write") as caught:
            await pool.run(jobs.Refuse(), 30)
        assert caught.value.failure is Failure.REFUSED
        with pytest.raises(QueryError, match="nested"):
            await pool.run(jobs.Recurse(), 30)
        assert await pool.run(jobs.Who(), 30) == before

    in_pool(work, workers=1)


def test_a_fault_of_ours_is_told_with_its_place(jobs: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def work(pool: WorkerPool) -> None:
        with pytest.raises(WorkerBug, match="KeyError: 'a fault of ours'"):
            await pool.run(jobs.Bug(), 30)
        assert await pool.run(jobs.Who(), 30)

    with caplog.at_level(logging.ERROR):
        in_pool(work, workers=1)
    assert "pool_jobs.py" in caplog.text


def test_closing_ends_what_is_under_way_and_what_waits(jobs: Any) -> None:
    async def work(pool: WorkerPool) -> None:
        await pool.run(jobs.Who(), 30)
        tasks = [asyncio.ensure_future(pool.run(jobs.Hang(), 60)) for _ in range(3)]
        for _ in range(5):
            await asyncio.sleep(0)
        await pool.close()
        for done in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(done, BackendError)
            assert "closed" in str(done)

    in_pool(work, workers=1, most=1)


def test_new_workers_come_when_the_fork_server_was_killed_and_the_old_ones_end(jobs: Any) -> None:
    async def work(pool: WorkerPool) -> None:
        before = await pool.run(jobs.Who(), 30)
        hanging = asyncio.ensure_future(pool.run(jobs.Hang(), 60))
        os.kill(parent(before), signal.SIGKILL)
        assert is_gone(before)
        assert await pool.run(jobs.Who(), 30) != before
        hanging.cancel()
        await asyncio.wait((hanging,))

    in_pool(work, workers=1)


def test_where_no_worker_starts_the_reason_is_said(jobs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(pool: WorkerPool) -> None:
        with pytest.raises(BackendError, match=r"(?s)no worker.*ModuleNotFoundError"):
            await pool.run(jobs.Who(), 30)

    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if "site-packages" not in entry])
    in_pool(work, workers=1)
