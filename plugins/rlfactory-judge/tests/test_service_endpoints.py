"""Several servers of one judge: who is asked, who is left alone, and when they come back."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import pytest
from faulty_openai import FaultyServer, Gate, refused, said, sent, serve_faults
from judge_services import Clock, judging, options, question, run_alone
from rlfactory_judge.contract import UnavailableError
from rlfactory_judge.options import JudgeOptions
from rlfactory_judge.service.service import JudgeService

from rlfactory_core.errors import BackendError, UsageError

pytestmark = pytest.mark.slow


def three(stack: ExitStack) -> list[FaultyServer]:
    return [stack.enter_context(serve_faults()) for _ in range(3)]


def test_the_least_loaded_is_asked_and_equals_take_turns() -> None:
    gate = Gate()
    with ExitStack() as stack:
        slow = stack.enter_context(serve_faults(then=gate.before(said("5"))))
        quick = [stack.enter_context(serve_faults()) for _ in range(2)]

        async def work() -> None:
            async with judging(slow.url, quick[0].url, quick[1].url) as service:
                held = asyncio.ensure_future(service.ask(question("held")))
                await slow.until(lambda: len(slow.requests) == 1)
                for number in range(6):
                    await service.ask(question(f"{number}"))
                gate.open()
                assert (await held).endpoint == slow.url

        run_alone(work)
        assert len(slow.requests) == 1
        assert [len(server.requests) for server in quick] == [3, 3]


def test_one_dead_of_three_is_said_and_the_run_begins() -> None:
    said_lines: list[str] = []
    with ExitStack() as stack:
        servers = three(stack)
        servers[1].go_down()

        async def work() -> None:
            urls = [server.url for server in servers]
            async with judging(*urls, say=said_lines.append) as service:
                assert f"without an answer from {urls[1]}" in service.describe()
                replies = await asyncio.gather(*(service.ask(question(f"{number}")) for number in range(12)))
                assert all(reply.values == (0.5,) for reply in replies)
                assert service.counts["retries"] == 0

        run_alone(work)
        assert len(said_lines) == 1
        assert f"warning: {servers[1].url} cannot be reached" in said_lines[0]


def test_none_alive_says_what_to_start() -> None:
    with serve_faults(down=True) as server:

        async def work() -> None:
            with pytest.raises(BackendError, match=r"rlfactory judge serve --model QwQ") as caught:
                async with judging(server.url, model="QwQ"):
                    pass
            assert server.url in str(caught.value)

        run_alone(work)


@pytest.mark.parametrize("dead", ["killed", "hung health"])
def test_a_replica_that_dies_in_mid_run_costs_no_question_and_comes_back(dead: str) -> None:
    clock = Clock()
    with ExitStack() as stack:
        servers = three(stack)
        urls = [server.url for server in servers]

        async def ask_many(service: JudgeService, tag: str) -> None:
            replies = await asyncio.gather(*(service.ask(question(f"{tag} {n}")) for n in range(30)))
            assert all(reply.values == (0.5,) for reply in replies)

        async def work() -> None:
            async with judging(*urls, timing=clock.timing(), concurrency=6, breaker_failures=2) as service:
                await ask_many(service, "before")
                servers[0].go_down()
                await ask_many(service, "while")
                assert urls[0] in service.describe().split("without an answer from")[1]
                failed = service.counts["retries"]
                assert 2 <= failed <= 12  # then it is left alone
                await ask_many(service, "while it is left alone")
                assert service.counts["retries"] == failed
                servers[0].come_up()
                checked = servers[0].health_checks
                if dead == "hung health":
                    servers[0].models = refused(503)
                    clock.now += 10.1
                    await ask_many(service, "it is there but not well")
                    await servers[0].until(lambda: servers[0].health_checks == checked + 1)
                    asked = len(servers[0].requests)
                    await ask_many(service, "still")
                    assert len(servers[0].requests) == asked
                    servers[0].models = servers[1].models
                clock.now += 10.1
                asked = len(servers[0].requests)
                await ask_many(service, "after its time")  # one of them has it asked for its health
                await ask_many(service, "after")
                assert len(servers[0].requests) > asked
                assert "without" not in service.describe()
                assert service.counts["unavailable"] == 0

        run_alone(work)


def test_all_dead_fails_at_once_until_one_is_back() -> None:
    clock = Clock()
    with serve_faults() as server:

        async def work() -> None:
            more = {"breaker_failures": 3, "retries": 4}
            async with judging(server.url, timing=clock.timing(), **more) as service:
                assert (await service.ask(question("1"))).values == (0.5,)
                server.go_down()
                with pytest.raises(UnavailableError, match=r"No endpoint .* after 3 failures .* cannot be reached"):
                    await service.ask(question("2"))
                assert service.counts["requests"] == 4
                with pytest.raises(UnavailableError, match="No endpoint of the judge answers"):
                    await service.ask(question("3"))
                assert service.counts["requests"] == 4  # it was spared
                server.come_up()
                checked = server.health_checks
                clock.now += 10.1
                replies = await asyncio.gather(*(service.ask(question(f"after {n}")) for n in range(5)))
                assert [reply.values for reply in replies] == [(0.5,)] * 5
                assert server.health_checks == checked + 1  # for all five
                assert service.counts["unavailable"] == 2

        run_alone(work)


def test_one_that_was_dead_at_the_start_joins_later() -> None:
    clock = Clock()
    with serve_faults() as first, serve_faults(down=True) as second:

        async def work() -> None:
            async with judging(first.url, second.url, timing=clock.timing()) as service:
                second.come_up()
                clock.now += 10.1
                await service.ask(question("1"))
                await second.until(lambda: len(second.probes) == 1)
                for number in range(200):
                    await service.ask(question(f"more {number}"))
                    if second.requests:
                        break
                assert second.requests
                assert second.requests[0]["model"] == "toy"

        run_alone(work)


def test_one_that_comes_up_with_another_model_is_not_asked() -> None:
    clock = Clock()
    other = sent(b'{"data": [{"id": "another"}]}')
    with serve_faults() as first, serve_faults(models=other, down=True) as second:

        async def work() -> None:
            async with judging(first.url, second.url, timing=clock.timing()) as service:
                second.come_up()
                clock.now += 10.1
                checked = second.health_checks
                await service.ask(question("1"))
                await second.until(lambda: second.health_checks > checked)
                await second.until(lambda: second.connections == 0)  # it has its answer and has hung up
                for number in range(2, 6):
                    await service.ask(question(f"{number}"))
                assert second.url in service.describe().split("without an answer from")[1]
                assert not second.requests

        run_alone(work)


def test_a_wrong_endpoint_is_given_up_for_the_others() -> None:
    with serve_faults(then=refused(404, "no such model")) as wrong, serve_faults() as right:

        async def work() -> None:
            async with judging(wrong.url, right.url, breaker_failures=2) as service:
                for number in range(10):
                    assert (await service.ask(question(f"{number}"))).endpoint == right.url
                assert len(wrong.requests) == 2

        run_alone(work)


def test_different_models_are_refused() -> None:
    other = sent(b'{"data": [{"id": "another"}]}')
    with serve_faults() as first, serve_faults(models=other) as second:

        async def work() -> None:
            with pytest.raises(UsageError, match=r"different models: another, toy\. Choose one with judge\.model"):
                async with judging(first.url, second.url):
                    pass

        run_alone(work)


def test_a_busy_server_at_the_start_is_asked_again() -> None:
    with serve_faults() as server:
        sound, tries = server.models, []

        async def busy_once(connection: object) -> None:
            tries.append(1)
            await (refused(503) if len(tries) == 1 else sound)(connection)  # type: ignore[arg-type]

        server.models = busy_once

        async def work() -> None:
            async with judging(server.url) as service:
                assert service.model == "toy"

        run_alone(work)


def test_a_pool_needs_an_engine_that_gives_one() -> None:
    async def work() -> None:
        service = JudgeService(JudgeOptions(placement="pool", model="QwQ", cache="off"))
        with pytest.raises(UsageError, match="engine=verl"):
            await service.open()

    run_alone(work)


def test_endpoints_that_are_given_win() -> None:
    with serve_faults() as server:

        async def work() -> None:
            service = JudgeService(JudgeOptions(placement="pool", model="/models/QwQ", cache="off", output="text"))
            service.use_endpoints([server.url], "toy")
            await service.open()
            assert (service.model, (await service.ask(question())).values) == ("toy", (0.5,))
            await service.close()

        run_alone(work)


def test_without_an_address_it_is_the_default_one_of_judge_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    with serve_faults() as server:
        monkeypatch.setattr("rlfactory_judge.service.service.DEFAULT_URL", server.url)

        async def work() -> None:
            service = JudgeService(options(url=None))
            await service.open()
            assert service.describe() == f"toy at {server.url}"
            await service.close()

        run_alone(work)


def test_it_must_be_open() -> None:
    async def work() -> None:
        service = JudgeService(options("http://127.0.0.1:9/v1"))
        assert service.describe() == "the model (not open)"
        with pytest.raises(RuntimeError, match="open"):
            await service.ask(question())
        await service.close()

    run_alone(work)
