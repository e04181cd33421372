"""Equal questions cost once: while one is under way, later in the run, and in later runs."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import pytest
from faulty_openai import Gate, hung, refused, said, serve_faults
from judge_services import Clock, judging, question, run_alone
from rlfactory_judge.contract import JudgePlace, Question, RefusedError, UnavailableError
from rlfactory_judge.forms import ScoreForm
from rlfactory_judge.scoring.factory import make_judge
from rlfactory_judge.trust.gate import kept_figures

from rlfactory_core.context import RunContext
from rlfactory_core.errors import BackendError
from rlfactory_core.tasks.task import Task

pytestmark = pytest.mark.slow


def test_equal_questions_under_way_share_one_request() -> None:
    gate = Gate()
    with serve_faults(then=gate.before(said("6"))) as server:

        async def work() -> None:
            async with judging(server.url) as service:
                requests = [asyncio.ensure_future(service.ask(question())) for _ in range(5)]
                await server.until(lambda: len(server.requests) == 1)
                gate.open()
                replies = await asyncio.gather(*requests)
                assert [reply.values for reply in replies] == [(0.6,)] * 5
                assert sum(reply.sampled_tokens for reply in replies) == 10  # counted once
                assert sorted(reply.attempts for reply in replies) == [0, 0, 0, 0, 1]
                assert [reply.cached for reply in replies].count(True) == 4
                assert service.budget.spent == 110

        run_alone(work)
        assert len(server.requests) == 1


def test_if_the_one_that_asks_is_cancelled_another_one_asks() -> None:
    gate = Gate()
    with serve_faults(then=gate.before(said("6"))) as server:

        async def work() -> None:
            async with judging(server.url) as service:
                first, second, third = (asyncio.ensure_future(service.ask(question())) for _ in range(3))
                await server.until(lambda: len(server.requests) == 1)
                first.cancel()
                third.cancel()
                await asyncio.gather(first, third, return_exceptions=True)
                await server.until(lambda: len(server.requests) == 2)
                gate.open()
                reply = await second
                assert (reply.values, reply.attempts, reply.sampled_tokens) == ((0.6,), 1, 10)
                assert first.cancelled()
                assert third.cancelled()

        run_alone(work)


def test_when_all_are_cancelled_the_request_ends_and_the_next_asks_anew() -> None:
    with serve_faults(hung(), then=said("6")) as server:

        async def work() -> None:
            async with judging(server.url) as service:
                requests = [asyncio.ensure_future(service.ask(question())) for _ in range(3)]
                await server.until(lambda: len(server.requests) == 1)
                for task in requests:
                    task.cancel()
                await asyncio.gather(*requests, return_exceptions=True)
                assert (await service.ask(question())).values == (0.6,)
                await server.until(lambda: server.gave_up == 1)

        run_alone(work)


def test_an_error_goes_to_all_and_is_counted_once() -> None:
    gate = Gate()
    with serve_faults(then=gate.before(refused(400))) as server:

        async def work() -> None:
            async with judging(server.url) as service:
                requests = [asyncio.ensure_future(service.ask(question())) for _ in range(3)]
                await server.until(lambda: len(server.requests) == 1)
                gate.open()
                errors = await asyncio.gather(*requests, return_exceptions=True)
                assert all(isinstance(error, RefusedError) for error in errors)
                assert sum(error.counts.get("requests", 0) for error in errors) == 1  # type: ignore[union-attr]

        run_alone(work)


@pytest.mark.parametrize("place", ["memory", "disk"])
def test_a_reply_is_remembered(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLFACTORY_CACHE", str(tmp_path))
    with serve_faults(said("", reasoning_content="hm"), said("6", reasoning_content="let me see")) as server:

        async def work() -> None:
            async with judging(server.url, cache=place) as service:
                await asyncio.gather(service.ask(question()), return_exceptions=True)  # unreadable: not kept
                fresh = await service.ask(question())
                again = await service.ask(question())
                assert (again.values, again.text, again.reasoning) == ((0.6,), "6", "let me see")
                assert (again.cached, again.attempts, again.prompt_tokens, again.endpoint) == (True, 0, 0, "")
                assert not fresh.cached
                assert service.counts["cached"] == 1

        run_alone(work)
        assert len(server.requests) == 2


def test_the_disk_serves_later_runs_and_other_addresses_of_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLFACTORY_CACHE", str(tmp_path))

    async def ask(url: str, **more: object) -> bool:
        async with judging(url, cache="disk", **more) as service:
            return (await service.ask(question())).cached

    with serve_faults() as first, serve_faults() as second:
        assert not run_alone(lambda: ask(first.url))
        assert run_alone(lambda: ask(second.url))
        assert not run_alone(lambda: ask(second.url, model="another"))
        assert not run_alone(lambda: ask(second.url, seed=1))
        assert not run_alone(lambda: ask(second.url, temperature=0.5))
        assert not run_alone(lambda: ask(second.url, max_tokens=64))
        assert run_alone(lambda: ask(second.url, retries=0, concurrency=1))


def test_another_model_of_the_same_name_and_address_is_asked_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLFACTORY_CACHE", str(tmp_path))

    async def ask(url: str) -> tuple[bool, tuple[float, ...]]:
        async with judging(url, cache="disk") as service:
            reply = await service.ask(question())
            return reply.cached, reply.values

    with serve_faults(then=said("9")) as server:
        assert run_alone(lambda: ask(server.url)) == (False, (0.9,))
        assert run_alone(lambda: ask(server.url)) == (True, (0.9,))
        server.probe, server.then = said("Good day"), said("1")
        assert run_alone(lambda: ask(server.url)) == (False, (0.1,))


def test_a_model_replaced_while_its_server_was_away_is_asked_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("RLFACTORY_CACHE", str(tmp_path))
    clock = Clock()
    with serve_faults(then=said("9")) as server:

        async def work() -> None:
            more = {"cache": "disk", "breaker_failures": 1, "retries": 0}
            async with judging(server.url, timing=clock.timing(), **more) as service:
                assert (await service.ask(question("1"))).values == (0.9,)
                server.go_down()
                with pytest.raises(UnavailableError):
                    await service.ask(question("2"))
                server.probe, server.then = said("Good day"), said("1")
                server.come_up()
                clock.now += 10.1
                assert (await service.ask(question("2"))).values == (0.1,)
                assert (await service.ask(question("1"))).values == (0.1,)

        run_alone(work)
        assert any("is it the same model?" in message for message in caplog.messages)


def test_another_model_of_a_tasks_own_judge_is_measured_anew_although_nothing_is_kept_on_disk(tmp_path: Path) -> None:
    labels = tmp_path / "labels.jsonl"
    rows = [{"prompt": "What is 2 + 3?", "answer": str(number), "label": number == 5} for number in range(8)]
    labels.write_text("\n".join(map(json.dumps, rows)))

    class Host(Task):
        async def serve_judge(self) -> JudgePlace:
            return JudgePlace(server.url, "judge", labels)

    async def measure() -> list[int]:
        task, judge = Host(), make_judge(cache="memory")
        task.run = RunContext(tmp_path)
        await judge.open(task)
        await judge.close()
        found = [each.agreement for each in kept_figures(tmp_path)]
        return sorted(each.confusion.wrong_accepted for each in found if each and each.confusion)

    with serve_faults(then=said("9")) as server:
        assert run_alone(measure) == [7]
        assert run_alone(measure) == [7]
        server.probe, server.then = said("Good day"), said("1")
        assert run_alone(measure) == [0, 7]


def test_what_is_measured_does_not_come_from_the_cache() -> None:
    with serve_faults(then=said("9")) as server:

        async def work() -> None:
            async with judging(server.url, cache="memory") as service:
                await service.ask(question())
                server.then = said("1")
                assert (await service.ask(replace(question(), measures=True))).values == (0.1,)
                assert (await service.ask(question())).values == (0.9,)

        run_alone(work)


def test_a_closed_service_that_cannot_be_opened_again_says_so_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLFACTORY_CACHE", str(tmp_path))
    with serve_faults() as server:

        async def work() -> None:
            async with judging(server.url, cache="disk") as service:
                await service.ask(question())
            server.go_down()
            before = perf_counter()
            with pytest.raises(BackendError):
                await service.open()
            assert perf_counter() - before < 5.0  # seconds

        run_alone(work)


def test_a_damaged_cache_costs_a_request_and_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLFACTORY_CACHE", str(tmp_path))
    (tmp_path / "judge").write_text("not a folder")
    with serve_faults() as server:

        async def work() -> None:
            async with judging(server.url, cache="disk") as service:
                assert (await service.ask(question())).values == (0.5,)

        run_alone(work)


def test_votes_differ_in_seed_and_are_remembered_apart() -> None:
    with serve_faults(said("1"), said("2"), said("3")) as server:

        async def work() -> None:
            async with judging(server.url, votes=3, cache="memory", concurrency=1, seed=7) as service:
                votes = [(await service.ask(question(), sample=number)).values for number in range(3)]
                again = [(await service.ask(question(), sample=number)).values for number in range(3)]
                assert votes == again == [(0.1,), (0.2,), (0.3,)]

        run_alone(work)
        assert [body["seed"] for body in server.requests] == [7, 8, 9]
        assert {body["temperature"] for body in server.requests} == {0.7}


def test_another_scale_is_another_question() -> None:
    with serve_faults() as server:

        async def work() -> None:
            async with judging(server.url, cache="memory") as service:
                five = Question("You judge.", question().user, ScoreForm(0.0, 5.0))
                replies = await asyncio.gather(service.ask(question()), service.ask(five))
                assert [reply.values for reply in replies] == [(0.5,), (1.0,)]

        run_alone(work)
