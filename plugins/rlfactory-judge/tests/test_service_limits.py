"""How much is under way at once, and what is given up."""

from __future__ import annotations

import asyncio

import pytest
from faulty_openai import Gate, hung, said, serve_faults
from judge_services import AT_ONCE, judging, options, question, run_alone
from rlfactory_judge.contract import UnavailableError
from rlfactory_judge.service.service import JudgeService

pytestmark = pytest.mark.slow


def test_no_more_requests_and_connections_than_allowed() -> None:
    gate = Gate()
    with serve_faults(then=gate.before(said("5"))) as server:

        async def work() -> None:
            async with judging(server.url, concurrency=3) as service:
                requests = [asyncio.ensure_future(service.ask(question(f"{n}"))) for n in range(60)]
                await server.until(lambda: len(server.requests) == 3)
                gate.open()
                await asyncio.gather(*requests)

        run_alone(work)
        assert len(server.requests) == 60
        assert server.most_at_once == 3
        assert server.most_connections == 3


def test_a_cancelled_question_frees_its_slot_and_its_connection() -> None:
    with serve_faults(hung(), then=said("4")) as server:

        async def work() -> None:
            async with judging(server.url, concurrency=1) as service:
                requests = asyncio.ensure_future(service.ask(question("1")))
                await server.until(lambda: len(server.requests) == 1)
                requests.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await requests
                await server.until(lambda: server.gave_up == 1)
                assert (await service.ask(question("2"))).values == (0.4,)

        run_alone(work)


def test_closing_gives_up_what_is_under_way_and_opens_again_on_another_loop() -> None:
    with serve_faults(hung(), then=said("4")) as server:
        service = JudgeService(options(server.url, cache="memory"), timing=AT_ONCE)

        async def first() -> None:
            await service.open()
            requests = asyncio.ensure_future(service.ask(question()))
            await server.until(lambda: len(server.requests) == 1)
            await service.close()
            with pytest.raises(UnavailableError, match="closed before it answered"):
                await requests
            await server.until(lambda: server.connections == 0)

        async def second() -> None:
            await service.open()
            assert (await service.ask(question())).values == (0.4,)
            await service.close()
            await server.until(lambda: server.connections == 0)

        run_alone(first)
        run_alone(second)
        run_alone(second)  # from memory
        assert len(server.requests) == 2
