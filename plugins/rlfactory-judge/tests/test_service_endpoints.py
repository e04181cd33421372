"""The judge's one server: where it is, when it is left alone, and when it is asked again."""

from __future__ import annotations

import asyncio

import pytest
from faulty_openai import refused, sent, serve_faults
from judge_services import Clock, judging, options, question, run_alone
from rlfactory_judge.contract import UnavailableError
from rlfactory_judge.options import JudgeOptions
from rlfactory_judge.service.service import JudgeService

from rlfactory_core.errors import BackendError, UsageError

pytestmark = pytest.mark.slow


def test_a_server_that_is_not_there_is_named_with_what_to_start() -> None:
    with serve_faults(down=True) as server:

        async def work() -> None:
            with pytest.raises(BackendError, match=r"`vllm serve QwQ` starts a server") as caught:
                async with judging(server.url, model="QwQ"):
                    pass
            assert server.url in str(caught.value)

        run_alone(work)


def test_a_server_that_dies_is_left_alone_until_it_is_well_again() -> None:
    clock = Clock()
    with serve_faults() as server:
        sound = server.models

        async def work() -> None:
            more = {"breaker_failures": 3, "retries": 4}
            async with judging(server.url, timing=clock.timing(), **more) as service:
                assert (await service.ask(question("1"))).values == (0.5,)
                server.go_down()
                with pytest.raises(UnavailableError, match=r"left alone .* after 3 failures .* cannot be reached"):
                    await service.ask(question("2"))
                assert service.counts["requests"] == 4
                with pytest.raises(UnavailableError, match="does not answer; it is left alone for 10 s"):
                    await service.ask(question("3"))
                assert service.counts["requests"] == 4  # it was spared
                server.come_up()
                server.models = refused(503)
                clock.now += 10.1
                with pytest.raises(UnavailableError):  # it is there, but not well
                    await service.ask(question("4"))
                server.models = sound
                checked = server.health_checks
                clock.now += 10.1
                replies = await asyncio.gather(*(service.ask(question(f"after {n}")) for n in range(5)))
                assert [reply.values for reply in replies] == [(0.5,)] * 5
                assert server.health_checks == checked + 1  # for all five
                assert service.counts["unavailable"] == 3

        run_alone(work)


def test_several_models_need_a_name() -> None:
    with serve_faults(models=sent(b'{"data": [{"id": "one"}, {"id": "two"}]}')) as server:

        async def work() -> None:
            with pytest.raises(UsageError, match="serves 2 models"):
                async with judging(server.url):
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


def test_an_address_that_is_given_wins() -> None:
    with serve_faults() as server:

        async def work() -> None:
            service = JudgeService(JudgeOptions(placement="pool", model="/models/QwQ", cache="off", output="text"))
            service.use_endpoint(server.url, "toy")
            await service.open()
            assert (service.model, (await service.ask(question())).values) == ("toy", (0.5,))
            await service.close()

        run_alone(work)


def test_without_an_address_it_is_the_default_one_of_vllm_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    with serve_faults() as server:
        monkeypatch.setattr("rlfactory_judge.service.service.DEFAULT_URL", server.url)

        async def work() -> None:
            service = JudgeService(options(None))
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
