"""A second request for a question whose first one is slow, and room for no more requests than are allowed."""

from __future__ import annotations

import asyncio

import pytest
from faulty_openai import Gate, hung, refused, said, serve_faults
from judge_services import AT_ONCE, judging, options, question, run_alone
from rlfactory_judge.contract import UnavailableError
from rlfactory_judge.service.service import JudgeService

pytestmark = pytest.mark.slow


def test_the_hedge_wins_and_the_slow_request_ends() -> None:
    with serve_faults(then=hung()) as slow, serve_faults(then=said("8")) as quick:

        async def work() -> None:
            async with judging(slow.url, quick.url, hedge_s=0.05) as service:
                reply = await service.ask(question())
                assert (reply.values, reply.endpoint) == ((0.8,), quick.url)
                assert (reply.attempts, reply.hedged) == (2, True)
                await slow.until(lambda: slow.gave_up == 1)  # the server need not go on
                counts = service.counts
                assert (counts["requests"], counts["retries"], counts["hedged"]) == (2, 0, 1)
                assert counts["sampled_tokens"] == 10

        run_alone(work)


def test_the_first_request_may_still_win() -> None:
    gate = Gate()
    with serve_faults(then=gate.before(said("3"))) as first, serve_faults(then=hung()) as second:

        async def work() -> None:
            async with judging(first.url, second.url, hedge_s=0.05) as service:
                requests = asyncio.ensure_future(service.ask(question()))
                await second.until(lambda: len(second.requests) == 1)
                gate.open()
                reply = await requests
                assert (reply.values, reply.endpoint, reply.hedged) == ((0.3,), first.url, True)
                await second.until(lambda: second.gave_up == 1)

        run_alone(work)


@pytest.mark.parametrize("status", [500, 400])
def test_a_hedge_that_fails_does_not_end_the_wait(status: int) -> None:
    gate = Gate()
    with serve_faults(then=gate.before(said("3"))) as first, serve_faults(then=refused(status)) as second:

        async def work() -> None:
            async with judging(first.url, second.url, hedge_s=0.05) as service:
                requests = asyncio.ensure_future(service.ask(question()))
                await second.until(lambda: len(second.requests) == 1)
                gate.open()
                assert (await requests).endpoint == first.url

        run_alone(work)


def test_both_failing_is_one_failure_that_is_retried() -> None:
    gate = Gate()
    with (
        serve_faults(gate.before(refused(503)), then=said("2")) as first,
        serve_faults(gate.before(refused(503)), then=said("2")) as second,
    ):

        async def work() -> None:
            async with judging(first.url, second.url, hedge_s=0.05) as service:
                requests = asyncio.ensure_future(service.ask(question()))
                await second.until(lambda: len(first.requests) + len(second.requests) == 2)
                gate.open()
                reply = await requests
                assert (reply.values, reply.attempts) == ((0.2,), 3)
                assert (service.counts["retries"], service.counts["hedged"]) == (1, 1)

        run_alone(work)


def test_a_single_endpoint_is_not_asked_twice() -> None:
    gate = Gate()
    with serve_faults(then=gate.before(said("3"))) as server:

        async def work() -> None:
            async with judging(server.url, hedge_s=0.01) as service:
                requests = asyncio.ensure_future(service.ask(question()))
                await server.until(lambda: len(server.requests) == 1)
                asyncio.get_running_loop().call_later(0.1, gate.open)
                reply = await requests
                assert (reply.attempts, reply.hedged) == (1, False)

        run_alone(work)


def test_hedges_take_no_more_slots_than_there_are() -> None:
    gate = Gate()
    with serve_faults(then=gate.before(said("3"))) as first, serve_faults(then=gate.before(said("3"))) as second:

        async def work() -> None:
            async with judging(first.url, second.url, concurrency=4, hedge_s=0.01) as service:
                requests = [asyncio.ensure_future(service.ask(question(f"{n}"))) for n in range(20)]
                await first.until(lambda: len(first.requests) == 2)
                await second.until(lambda: len(second.requests) == 2)
                held: list[int] = []

                def end_the_wait() -> None:  # ten times hedge_s later
                    held.append(len(first.requests) + len(second.requests))
                    gate.open()

                asyncio.get_running_loop().call_later(0.1, end_the_wait)
                replies = await asyncio.gather(*requests)
                assert all(reply.values == (0.3,) for reply in replies)
                assert held == [4]

        run_alone(work)


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
        service = JudgeService(options(server.url, hedge_s=0.01, cache="memory"), timing=AT_ONCE)

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
