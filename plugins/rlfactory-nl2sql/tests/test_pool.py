"""Workers: what a job returns or raises, what it may reach, and what happens to one that hangs or dies."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pool_jobs
import pytest
from pool_jobs import Call
from rlfactory_nl2sql.connection import Failure, QueryError
from rlfactory_nl2sql.databases.reference import DatabaseRef, parse_reference
from rlfactory_nl2sql.verification import pool as pools
from rlfactory_nl2sql.verification.pool import WorkerBug, WorkerPool

Run = Callable[..., Awaitable[Any]]


@pytest.fixture
def ref(shops: Path) -> DatabaseRef:
    return parse_reference(shops)


def with_pool(work: Callable[[Run], Awaitable[Any]], ref: DatabaseRef, **options: Any) -> Any:
    """``work`` with a function that runs one of `pool_jobs` in one worker."""

    async def run() -> Any:
        pool = WorkerPool(1, **options)

        async def call(function: Callable[..., Any], *arguments: Any, seconds: float = 60.0, key: str = "") -> Any:
            return await pool.run(Call(ref, function, arguments, seconds), key)

        try:
            return await work(call)
        finally:
            await pool.close()

    return asyncio.run(run())


@pytest.mark.slow
def test_what_a_job_raises_is_raised_here_and_the_worker_goes_on(
    ref: DatabaseRef, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(run: Run) -> list[int]:
        before = await run(pool_jobs.place)
        with pytest.raises(QueryError, match="not this one") as refused:
            await run(pool_jobs.refuse)
        assert refused.value.failure is Failure.REFUSED
        with pytest.raises(QueryError, match="memory") as greedy:
            await run(pool_jobs.hoard)
        assert greedy.value.failure is Failure.MEMORY
        with pytest.raises(WorkerBug, match="a bug of ours"):
            await run(pool_jobs.blunder)
        assert "in blunder" in caplog.text
        return [before, await run(pool_jobs.place)]

    before, after = with_pool(work, ref)
    assert before == after


@pytest.mark.slow
def test_a_worker_that_hangs_or_dies_is_the_querys_fault_and_is_replaced(
    ref: DatabaseRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "PREPARE_S", 0.0)

    async def work(run: Run) -> set[int]:
        places = {await run(pool_jobs.place)}
        with pytest.raises(QueryError, match=r"longer than 0\.1 s") as late:
            await run(pool_jobs.hang, seconds=0.1)
        assert late.value.failure is Failure.DEADLINE
        places.add(await run(pool_jobs.place))
        with pytest.raises(QueryError, match="ended the database's engine"):
            await run(pool_jobs.die)
        return places | {await run(pool_jobs.place)}

    assert len(with_pool(work, ref)) == 3


@pytest.mark.parametrize("answer", ["", "{}", '["odd", "?"]', '["query", "odd", "?"]', '["error", "SystemExit", "?"]'])
def test_an_answer_that_is_none_is_the_querys_fault(
    answer: str, ref: DatabaseRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hostile(*_: Any, **__: Any) -> bytes:
        return answer.encode()

    monkeypatch.setattr("rlfactory_sandbox.Pool.run", hostile)
    with pytest.raises(QueryError, match="damaged"):
        with_pool(lambda run: run(pool_jobs.place), ref)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_workers_reach_their_databases_and_nothing_else(
    kind: str, ref: DatabaseRef, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "secret")
    monkeypatch.setenv("OTHER_PASSWORD", "secret")
    beside = Path(ref.location).with_name("notes.txt")
    beside.write_text("beside")
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "notes.txt"
    elsewhere.write_text("elsewhere")
    server = socket.create_server(("127.0.0.1", 0))
    if kind == "postgres":
        ref = replace(ref, kind="postgres", location="postgresql://me:${SHOP_PASSWORD}@127.0.0.1/shops")

    async def tried(run: Run, *call: Any) -> Any:
        try:
            return await run(*call)
        except WorkerBug:
            return "refused"

    async def work(run: Run) -> list[Any]:
        calls: list[tuple[Any, ...]] = [(pool_jobs.file, str(beside)), (pool_jobs.file, str(elsewhere))]
        calls += [(pool_jobs.variable, name) for name in ("SHOP_PASSWORD", "OTHER_PASSWORD")]
        calls.append((pool_jobs.connect, server.getsockname()[1]))
        return [await tried(run, *call) for call in calls]

    with server:
        found = with_pool(work, ref)
    if kind == "sqlite":
        assert found == ["beside", "refused", None, None, "refused"]
    else:
        assert found == ["refused", "refused", "secret", None, None]
