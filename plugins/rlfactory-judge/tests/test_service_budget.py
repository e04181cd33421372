"""A run's tokens: counted over its processes and a resume, and not overspent unseen."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from faulty_openai import hung, said, serve_faults
from judge_services import judging, question, run_alone
from rlfactory_judge.contract import BudgetError
from rlfactory_judge.service.service import TokenBudget

from rlfactory_core.errors import UsageError

pytestmark = pytest.mark.slow

SPENDER = """
import asyncio, sys
from pathlib import Path
from rlfactory_judge.service.service import TokenBudget

async def main():
    budget = TokenBudget(10**9, Path(sys.argv[1]))
    await budget.open()
    for number in range(300):
        await budget.spend(number)

asyncio.run(main())
"""


def test_what_is_spent_is_not_sent() -> None:
    with serve_faults() as server:

        async def work() -> None:
            async with judging(server.url, token_budget=200, cache="memory") as service:
                await service.ask(question("1"))  # 110 tokens each
                await service.ask(question("2"))
                with pytest.raises(BudgetError, match="220 of token_budget=200"):
                    await service.ask(question("3"))
                assert (await service.ask(question("2"))).cached  # what is at hand costs nothing
                assert service.counts["over_budget"] == 1
                assert service.budget.spent == 220

        run_alone(work)
        assert len(server.requests) == 2


def test_two_workers_and_a_resumed_run_share_it(tmp_path: Path) -> None:
    with serve_faults() as server:

        async def work() -> None:
            more = {"token_budget": 300, "folder": tmp_path}
            async with judging(server.url, **more) as one, judging(server.url, **more) as other:
                await one.ask(question("1"))
                await other.ask(question("2"))
                assert other.budget.spent == 220
                await one.ask(question("3"))
                with pytest.raises(BudgetError):
                    await other.ask(question("4"))
                assert (one.budget.spent, other.budget.spent) == (330, 330)
            async with judging(server.url, **more) as resumed:
                with pytest.raises(BudgetError, match="330 of token_budget=300"):
                    await resumed.ask(question("5"))

        run_alone(work)
        assert (tmp_path / "judge-tokens").read_text() == "110\n" * 3


def test_processes_that_spend_at_once_lose_nothing(tmp_path: Path) -> None:
    file = tmp_path / "run" / "judge-tokens"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    spenders = [subprocess.Popen([sys.executable, "-c", SPENDER, str(file)], env=environment) for _ in range(3)]
    assert [spender.wait(60) for spender in spenders] == [0, 0, 0]

    async def work() -> None:
        budget = TokenBudget(10**9, file)
        await budget.open()
        assert budget.spent == 3 * sum(range(300))

    run_alone(work)


def test_half_a_line_of_another_process_waits_for_its_end(tmp_path: Path) -> None:
    file = tmp_path / "judge-tokens"
    file.write_bytes(b"100\n5")

    async def work() -> None:
        budget = TokenBudget(1000, file)
        await budget.open()
        assert budget.spent == 100
        with file.open("ab") as more:
            more.write(b"00\n")
        assert not await budget.is_spent()
        assert budget.spent == 600

    run_alone(work)


def test_a_server_that_does_not_count_is_estimated() -> None:
    with serve_faults(then=said("5", usage=False)) as server:

        async def work() -> None:
            async with judging(server.url, token_budget=10) as service:
                assert (await service.ask(question("東" * 400))).prompt_tokens >= 300
                assert 300 <= service.budget.spent <= 400
                with pytest.raises(BudgetError):
                    await service.ask(question("more"))

        run_alone(work)


def test_a_folder_that_cannot_be_written_is_said_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with serve_faults() as server:

        async def work() -> None:
            with pytest.raises(UsageError, match=r"token_budget: .*judge-tokens cannot be written"):
                async with judging(server.url, token_budget=10, folder=tmp_path / "file"):
                    pass

        run_alone(work)


def test_a_folder_that_goes_away_costs_no_judgement(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with serve_faults() as server:

        async def work() -> None:
            async with judging(server.url, token_budget=300, folder=tmp_path / "run") as service:
                await service.ask(question("1"))
                (tmp_path / "run" / "judge-tokens").unlink()
                (tmp_path / "run").rmdir()
                (tmp_path / "run").write_text("in the way")
                await service.ask(question("2"))
                await service.ask(question("3"))
                assert service.budget.spent == 330
                with pytest.raises(BudgetError):
                    await service.ask(question("4"))

        run_alone(work)
    assert caplog.text.count("cannot be used") == 1


def test_questions_under_way_are_answered_and_counted(tmp_path: Path) -> None:
    with serve_faults() as server:

        async def work() -> None:
            async with judging(server.url, token_budget=100, folder=tmp_path, concurrency=4) as service:
                outcomes = await asyncio.gather(
                    *(service.ask(question(f"{n}")) for n in range(4)), return_exceptions=True
                )
                answered = [outcome for outcome in outcomes if not isinstance(outcome, BudgetError)]
                assert service.budget.spent == 110 * len(answered)
                assert answered

        run_alone(work)


def test_without_a_budget_no_file_is_written(tmp_path: Path) -> None:
    with serve_faults(hung(), then=said("5")) as server:

        async def work() -> None:
            async with judging(server.url, folder=tmp_path, request_s=0.3) as service:
                await service.ask(question())
                assert service.budget.spent == 110

        run_alone(work)
    assert list(tmp_path.iterdir()) == []
