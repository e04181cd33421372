"""The tools as a rollout calls them: what the model reads, and whose fault a failure is."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rlfactory_nl2sql.task import Nl2SqlTask

from rlfactory_core import FaultKind, Sample, ToolCall, ToolContext, ToolResult
from rlfactory_core.tools.manager import DefaultToolManager
from rlfactory_core.tools.settings import ToolsConfig

ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"


def call(name: str, **arguments: Any) -> ToolCall:
    return ToolCall(name, name, json.dumps(arguments), arguments)


def invoke(task: Nl2SqlTask, *calls: ToolCall, tools: Sequence[Any] = ()) -> tuple[ToolResult, ...]:
    async def run() -> tuple[ToolResult, ...]:
        manager = DefaultToolManager(tools or task.tools, ToolsConfig(retries=0))
        try:
            return await manager.invoke(calls, ToolContext("t", Sample("s", "Which?")))
        finally:
            await manager.close()
            await task.close()

    return asyncio.run(run())


def test_a_model_can_find_its_way_to_a_query(shops: Path) -> None:
    tables, columns, rows = invoke(
        Nl2SqlTask({"db": shops}),
        call("list_tables"),
        call("describe", table=' "Shop" '),
        call("run_query", sql="SELECT name, sales FROM shop WHERE city_id = 1 ORDER BY sales"),
    )
    assert all(name in tables.content for name in ("city", "shop"))
    assert "city_id INTEGER" in columns.content
    assert rows.content.splitlines()[1:] == ["Nord | 7.0", "Fjord | 10.5"]
    assert not any(result.fault for result in (tables, columns, rows))


def test_what_is_left_out_of_a_result_is_counted(shops: Path) -> None:
    (result,) = invoke(Nl2SqlTask({"db": shops, "rows": 2}), call("run_query", sql="SELECT id FROM shop ORDER BY id"))
    assert result.content.splitlines() == ["id", "1", "2", "... 5 rows in all"]


WRONG: list[tuple[ToolCall, FaultKind, str]] = [
    (call("describe", table="shopp"), FaultKind.POLICY, "no table 'shopp'. Did you mean 'shop'?"),
    (call("describe", table="x" * 10_000), FaultKind.POLICY, "no table 'xxx"),
    (call("run_query", query="SELECT 1"), FaultKind.POLICY, "sql"),
    (call("run_query", sql="SELECT nam FROM shop"), FaultKind.TOOL, "no such column: nam"),
    (call("run_query", sql="SELEC name FROM shop"), FaultKind.TOOL, "syntax error"),
    (call("run_query", sql=""), FaultKind.TOOL, ""),
    (call("run_query", sql="SELECT '\0'"), FaultKind.TOOL, ""),
    (call("run_query", sql="DELETE FROM shop"), FaultKind.TOOL, ""),
    (call("run_query", sql="ATTACH 'x.sqlite' AS x"), FaultKind.TOOL, ""),
    (call("run_query", sql=ENDLESS), FaultKind.TOOL, "longer than 1 s"),
    (call("run_query", sql="SELECT 1 FROM shop a, shop b, shop c, shop d, shop e, shop f"), FaultKind.TOOL, "rows"),
]


def test_a_wrong_call_is_answered_in_words(shops: Path) -> None:
    before = shops.read_bytes()
    results = invoke(Nl2SqlTask({"db": shops, "seconds": 1.0}), *(call for call, _, _ in WRONG))
    for (_, kind, says), result in zip(WRONG, results, strict=True):
        assert result.fault is kind, result
        assert says in result.content
        assert len(result.content) < 500
        assert str(shops.parent) not in result.content
    assert shops.read_bytes() == before


def test_a_lost_database_is_nobody_s_fault(shops: Path) -> None:
    task = Nl2SqlTask({"db": shops})
    shops.unlink()
    results = invoke(task, call("list_tables"), call("describe", table="shop"), call("run_query", sql="SELECT 1"))
    assert [result.fault for result in results] == [FaultKind.INFRA] * 3
    assert not any(str(shops) in result.content for result in results)


@pytest.mark.slow
def test_a_database_that_needs_something_of_the_user_is_not_the_model_s_fault(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("psycopg", reason="the extra postgresql is not installed")
    pytest.importorskip("sqlalchemy", reason="the extra postgresql is not installed")
    monkeypatch.delenv("SHOP_PASSWORD", raising=False)
    # The seconds are the query's: to import the driver in a new worker takes longer, and longest on a busy machine.
    task = Nl2SqlTask({"db": "postgresql://me:${SHOP_PASSWORD}@127.0.0.1:1/shops", "seconds": 0.01})
    results = invoke(task, call("run_query", sql="SELECT 1"), call("list_tables"))
    assert [result.fault for result in results] == [FaultKind.INFRA] * 2
    assert all("SHOP_PASSWORD, which is not set" in record.message for record in caplog.records)


@pytest.mark.slow
def test_a_slow_query_holds_up_neither_the_event_loop_nor_another_query(shops: Path) -> None:
    async def run() -> list[str]:
        task = Nl2SqlTask({"db": shops, "seconds": 5.0, "workers": 1})
        ended = []

        async def query(name: str, sql: str) -> None:
            manager = DefaultToolManager(task.tools, ToolsConfig(retries=0))
            await manager.invoke([call("run_query", sql=sql)], ToolContext("t", Sample("s", "Which?")))
            ended.append(name)

        await asyncio.gather(query("slow", ENDLESS), query("quick", "SELECT 1"))
        await task.close()
        return ended

    assert asyncio.run(run()) == ["quick", "slow"]


def test_the_control_s_tools_look_the_same_and_know_nothing(shops: Path) -> None:
    task = Nl2SqlTask({"db": shops})
    control = task.controls()["no_database"]
    assert [tool.spec for tool in control] == [tool.spec for tool in task.tools]
    calls = call("list_tables"), call("describe", table="shop"), call("run_query", sql="SELECT name FROM shop")
    assert [result.content for result in invoke(task, *calls, tools=control)] == [
        "No tables.",
        "No columns.",
        "No rows.",
    ]


def test_the_tools_read_only_so_they_may_be_called_again(shops: Path) -> None:
    assert all(tool.idempotent and tool.stateful for tool in Nl2SqlTask({"db": shops}).tools)
